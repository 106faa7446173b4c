//! `ropeteam chat`: a conversation in the terminal.

use super::answer;
use super::flags::{Answering, ConfigFlags};
use super::lines::Lines;
use super::local::Local;
use super::sampling::AnswerArgs;
use crate::exit::Exit;
use crate::start_error::StartError;
use serde_json::{Value, json};
use std::io::IsTerminal;

const HELP: &str = "\
/system TEXT  begin anew with this instruction
/reset        begin anew
/help         show this
/exit         leave; so does /quit
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
            piped: !std::io::stdin().is_terminal(),
            failed: false,
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
    Leave,
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
        "/exit" | "/quit" => Line::Leave,
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
    /// Whether nobody sits there to read what failed.
    piped: bool,
    failed: bool,
}

impl Talk {
    async fn run(mut self) -> Result<Exit, StartError> {
        let mut lines = Lines::open()?;
        loop {
            let line = tokio::select! {
                line = lines.next() => line?,
                _ = self.local.signals.next() => return Ok(Exit::Signal),
            };
            let left = match line {
                Some(line) => self.obey(&line).await,
                None => Some(Exit::Done),
            };
            match left {
                Some(Exit::Done) if self.piped && self.failed => return Ok(Exit::Failed),
                Some(exit) => return Ok(exit),
                None => {}
            }
        }
    }

    /// Does what the line says; how to leave, if it says so.
    async fn obey(&mut self, line: &str) -> Option<Exit> {
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
            Line::Leave => return Some(Exit::Done),
            Line::Say(text) => return self.ask(&text).await,
        }
        None
    }

    /// Asks and answers. What fails is told, and the conversation stands where it stood. A signal ends the answer; where nobody types,
    /// it ends the command.
    async fn ask(&mut self, text: &str) -> Option<Exit> {
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
                (answer.done.is_none() && self.piped).then_some(Exit::Signal)
            }
            Err(problem) => {
                self.failed = true;
                self.conversation.turns.pop();
                eprintln!("{problem}");
                None
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
        check("/quit", Line::Leave);
        check(" /exit ", Line::Leave);
        check("/leave", Line::Unknown("/leave".to_owned()));
        check(" What is 1/2? ", Line::Say("What is 1/2?".to_owned()));
    }

    #[test]
    fn a_conversation_begins_with_its_instruction() {
        assert!(Conversation::begin(None).turns.is_empty());
        let turns = Conversation::begin(Some("Be brief".to_owned())).turns;
        assert_eq!(turns, [json!({"role": "system", "content": "Be brief"})]);
    }
}
