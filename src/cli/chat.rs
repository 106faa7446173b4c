//! `ropeteam chat`: a conversation in the terminal.

use super::answer;
use super::flags::{Answering, ConfigFlags};
use super::lines::Lines;
use super::local::Local;
use super::sampling::AnswerArgs;
use crate::exit::Exit;
use crate::start_error::StartError;
use serde_json::{Value, json};

const HELP: &str = "\
/system TEXT  begin anew with this instruction
/reset        begin anew
/help         show this
Ctrl-C stops an answer, Ctrl-D leaves.";

/// How to talk.
#[derive(Debug, clap::Args)]
pub struct ChatArgs {
    /// Instruction that stands before the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Print token counts and times after each answer
    #[arg(long)]
    stats: bool,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    config: ConfigFlags<Answering>,
}

/// Runs the command.
///
/// # Errors
/// When the model cannot be started or has no chat template.
pub fn run(args: ChatArgs) -> Result<Exit, StartError> {
    let ChatArgs {
        system,
        stats,
        answer,
        config,
    } = args;
    Local::run(config, async |local| {
        local.chat_template()?;
        eprintln!(
            "{} is ready; /help shows the commands, Ctrl-D leaves",
            local.model_name()
        );
        let conversation = Conversation::begin(system);
        Talk {
            local,
            answer,
            stats,
            conversation,
            asked: 0,
        }
        .run()
        .await
    })
}

/// The turns so far.
struct Conversation {
    system: Option<String>,
    turns: Vec<Value>,
}

impl Conversation {
    fn begin(system: Option<String>) -> Self {
        let turns = system.iter().map(|text| turn("system", text)).collect();
        Conversation { system, turns }
    }
}

fn turn(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

/// What a line means.
#[derive(Debug, PartialEq)]
enum Line {
    Nothing,
    Reset,
    System(String),
    Help,
    Unknown(String),
    Say(String),
}

fn understand(line: &str) -> Line {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match word {
        "" => Line::Nothing,
        "/reset" => Line::Reset,
        "/system" => Line::System(rest.trim().to_owned()),
        "/help" => Line::Help,
        command if command.starts_with('/') => Line::Unknown(command.to_owned()),
        _ => Line::Say(line.to_owned()),
    }
}

/// A conversation under way.
struct Talk {
    local: Local,
    answer: AnswerArgs,
    stats: bool,
    conversation: Conversation,
    asked: u32,
}

impl Talk {
    async fn run(mut self) -> Result<Exit, StartError> {
        let mut lines = Lines::open()?;
        loop {
            let line = tokio::select! {
                line = lines.next() => line?,
                _ = self.local.signals.next() => return Ok(Exit::Forced),
            };
            match line {
                Some(line) => self.obey(&line).await,
                None => return Ok(Exit::Done),
            }
        }
    }

    async fn obey(&mut self, line: &str) {
        match understand(line) {
            Line::Nothing => {}
            Line::Reset => {
                self.conversation = Conversation::begin(self.conversation.system.take());
            }
            Line::System(text) => {
                let text = Some(text).filter(|text| !text.is_empty());
                self.conversation = Conversation::begin(text);
            }
            Line::Help => eprintln!("{HELP}"),
            Line::Unknown(command) => eprintln!("{command} is no command; /help shows them"),
            Line::Say(text) => self.ask(&text).await,
        }
    }

    /// Asks and answers. What fails is told, and the conversation stands where it stood.
    async fn ask(&mut self, text: &str) {
        self.asked += 1;
        self.conversation.turns.push(turn("user", text));
        let answered = self.answer().await;
        println!();
        match answered {
            Ok(answer) => {
                self.conversation
                    .turns
                    .push(turn("assistant", &answer.text));
                if let Some(statistics) = answer.statistics().filter(|_| self.stats) {
                    eprintln!("{statistics}");
                }
            }
            Err(problem) => {
                self.conversation.turns.pop();
                eprintln!("{problem}");
            }
        }
    }

    async fn answer(&mut self) -> Result<answer::Answer, String> {
        let prompt = self
            .local
            .chat_prompt(&self.conversation.turns)
            .map_err(|error| error.to_string())?;
        let request = self.answer.request(
            format!("chat-{}", self.asked),
            prompt,
            self.local.defaults(),
        );
        let answered = answer::stream(&self.local.engine, request, &mut self.local.signals).await;
        answered.map_err(|error| format!("{error}; /reset begins a new conversation"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_or_something_to_say() {
        let check = |line: &str, expected| assert_eq!(understand(line), expected, "{line}");
        check("  ", Line::Nothing);
        check("/reset", Line::Reset);
        check("/system Be brief ", Line::System("Be brief".to_owned()));
        check("/help", Line::Help);
        check("/quit", Line::Unknown("/quit".to_owned()));
        check(" What is 1/2? ", Line::Say("What is 1/2?".to_owned()));
    }

    #[test]
    fn a_conversation_begins_with_its_instruction() {
        assert!(Conversation::begin(None).turns.is_empty());
        let turns = Conversation::begin(Some("Be brief".to_owned())).turns;
        assert_eq!(turns, [json!({"role": "system", "content": "Be brief"})]);
    }
}
