//! `ropeteam generate`: one prompt to the terminal.

use super::answer;
use super::flags::{Answering, ConfigFlags};
use super::local::Local;
use super::output;
use super::sampling::AnswerArgs;
use crate::exit::Exit;
use crate::start_error::StartError;
use ropeteam_engine::request::{FinishReason, Prompt};
use std::io::{IsTerminal, Read};

/// What to generate.
#[derive(Debug, clap::Args)]
pub struct GenerateArgs {
    /// The prompt; left out or "-": read from the standard input
    prompt: Option<String>,
    /// Ask the prompt as a question, through the model's chat template
    #[arg(long)]
    chat: bool,
    /// Instruction that stands before the question
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
    /// Print token counts and times to the standard error at the end
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
/// When the model cannot be started or gives no answer.
pub fn run(args: GenerateArgs) -> Result<Exit, StartError> {
    let text = prompt(args.prompt)?;
    Local::run(args.config, async |mut local| {
        let prompt = if args.chat {
            local.chat_prompt(&messages(args.system.as_deref(), &text))?
        } else {
            Prompt::Text {
                text,
                add_special_tokens: true,
            }
        };
        let request = args
            .answer
            .request("generate".to_owned(), prompt, local.defaults());
        let answer = answer::stream(&local.engine, request, &mut local.signals).await;
        let answer = answer.map_err(|error| StartError::Other(error.to_string()))?;
        output::print("\n")?;
        if let Some(statistics) = answer.statistics().filter(|_| args.stats) {
            eprintln!("{statistics}");
        }
        Ok(match answer.done.map(|done| done.reason) {
            Some(FinishReason::DeviceError | FinishReason::Timeout | FinishReason::Cancelled) => {
                Exit::Failed
            }
            Some(_) => Exit::Done,
            None => Exit::Signal,
        })
    })
}

fn prompt(given: Option<String>) -> Result<String, StartError> {
    match given {
        Some(text) if text != "-" => Ok(text),
        None if std::io::stdin().is_terminal() => Err(StartError::Usage(
            "a prompt is expected, as in: ropeteam generate \"Once upon a time\"".to_owned(),
        )),
        _ => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| StartError::Other(format!("the prompt cannot be read: {error}")))?;
            Ok(text)
        }
    }
}

fn messages(system: Option<&str>, question: &str) -> Vec<serde_json::Value> {
    let turn = |role: &str, content: &str| serde_json::json!({ "role": role, "content": content });
    system
        .map(|text| turn("system", text))
        .into_iter()
        .chain([turn("user", question)])
        .collect()
}
