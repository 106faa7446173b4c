//! The command line: which commands there are. What each does stands in the file of its name.

mod answer;
mod bench;
mod chat;
mod config;
mod devices;
mod doctor;
mod ending;
mod flags;
mod generate;
mod lines;
mod local;
mod meter;
mod output;
mod perplexity;
mod quantize;
mod replay;
mod sampling;
mod serve;

use crate::VERSION;
use crate::exit::{self, Exit};
use crate::start_error::StartError;
use crate::wiring::isolation;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  ropeteam serve                          the default model, on port 1025
  ropeteam serve --model ./Qwen3-0.6B     a folder in Hugging Face format, or a GGUF file
  ropeteam generate \"Once upon a time\"   one prompt, in the terminal
  ropeteam chat                           a conversation, in the terminal
  ropeteam config show                    what is in effect and where it came from
";

const SERVE_EXAMPLES: &str = "\
Examples:
  ropeteam serve
  ropeteam serve --model ./Qwen3-0.6B --host 0.0.0.0 --port 8000 --management-port 8001
  ropeteam serve --config config/config.json --max-queue 64
  ROPETEAM_LOG_FORMAT=json ropeteam serve --kv-memory 4GiB
";

const BENCH_EXAMPLES: &str = "\
Examples:
  ropeteam bench --url http://127.0.0.1:1025
  ropeteam bench --url http://127.0.0.1:1025 --concurrency 64 --input-len 64..256 --html result.html
  ropeteam bench --url http://127.0.0.1:8000 --dataset sharegpt --dataset-path talks.json
  ropeteam bench --url http://127.0.0.1:1025 --against http://127.0.0.1:8080 --rounds 3
  ropeteam bench --compare before.json after.json

Latencies count from the moment a request is due: TTFT to the first event with a token, TPOT from there to the last one over \
the tokens but one, inter-token between events (a server may put several tokens into one), end to end to the end marker. Token \
counts are the server's; with a tokenizer they are checked. The exit code is 1 when a request failed.

The flags of the benchmark tool for Ascend's servers are understood too: --DatasetPath, --DatasetType, --ModelName, --ModelPath \
(the tokenizer), --TestType client, --Http, --Concurrency, --TaskKind, --MaxOutputLen.
";

const GENERATE_EXAMPLES: &str = "\
Examples:
  ropeteam generate \"Once upon a time\" --max-tokens 50 --seed 7
  ropeteam generate --chat \"What is the capital of France?\" --temperature 0
  cat essay.txt | ropeteam generate --model ./Qwen3-0.6B -
";

const PERPLEXITY_EXAMPLES: &str = "\
Examples:
  ropeteam perplexity ./Qwen3-0.6B --text wiki.txt --quantize int8
  ropeteam perplexity ./Qwen3-0.6B-int4 --text wiki.txt --reference ./Qwen3-0.6B --json
";

const QUANTIZE_EXAMPLES: &str = "\
Examples:
  ropeteam quantize ./Qwen3-0.6B --to int8 --out ./Qwen3-0.6B-int8
  ropeteam quantize ./Qwen3-0.6B --to int4 --out ./Qwen3-0.6B-int4 --calibration talks.txt

The folder is in the compressed-tensors format. int4 weights are rounded with error feedback, which takes a few minutes per
billion of weights and memory for the model in bf16.
";

const REPLAY_EXAMPLES: &str = "\
Examples:
  ropeteam serve --record-dir ./records --record-content on
  ropeteam replay ./records/requests.jsonl
  ropeteam replay ./records/device-0-life-3-4711.jsonl --id chat-7

The model and its options must be those of the server. The exit code is 1 when anything differs, or nothing can be compared.
";

/// An LLM inference server that goes on when a device fails.
#[derive(Debug, Parser)]
#[command(name = "ropeteam", version = VERSION, max_term_width = 110, after_help = format!("{EXAMPLES}\n{}", exit::HELP))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a model over HTTP
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<serve::ServeArgs>),
    /// Generate text from one prompt, in the terminal
    #[command(after_help = GENERATE_EXAMPLES)]
    Generate(Box<generate::GenerateArgs>),
    /// Talk with a model in the terminal
    Chat(Box<chat::ChatArgs>),
    /// Load a server and measure it
    #[command(after_help = BENCH_EXAMPLES, args_override_self = true)]
    Bench(Box<bench::BenchArgs>),
    /// Measure how well a model predicts a text
    #[command(after_help = PERPLEXITY_EXAMPLES)]
    Perplexity(Box<perplexity::PerplexityArgs>),
    /// Write a model in few bits
    #[command(after_help = QUANTIZE_EXAMPLES)]
    Quantize(Box<quantize::QuantizeArgs>),
    /// Make recorded requests again and compare what comes
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(Box<replay::ReplayArgs>),
    /// Check, show or list the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// List what models can be served on
    Devices,
    /// Look for what keeps a server from starting or serving well, and say what to do
    Doctor(Box<doctor::DoctorArgs>),
    /// Serve one device to the server that starts this
    #[command(name = isolation::COMMAND, hide = true)]
    DeviceProcess,
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::run(*args),
        Command::Generate(args) => generate::run(*args),
        Command::Chat(args) => chat::run(*args),
        Command::Bench(args) => bench::run(*args),
        Command::Perplexity(args) => perplexity::run(*args),
        Command::Quantize(args) => quantize::run(*args),
        Command::Replay(args) => replay::run(*args),
        Command::Config(command) => config::run(command),
        Command::Devices => devices::run(),
        Command::Doctor(args) => doctor::run(*args),
        Command::DeviceProcess => isolation::serve_process(),
    };
    finish(result).into()
}

fn finish(result: Result<Exit, StartError>) -> Exit {
    result.unwrap_or_else(|error| {
        eprintln!("ropeteam: error: {error}");
        Exit::from(&error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Help of all commands one after the other, as a terminal of 100 columns shows it.
    fn help() -> String {
        let mut text = String::new();
        let mut command = Cli::command().term_width(100);
        command.build();
        for name in [
            "serve",
            "generate",
            "chat",
            "bench",
            "perplexity",
            "quantize",
            "replay",
            "config",
            "devices",
            "doctor",
        ] {
            let shown = command
                .find_subcommand_mut(name)
                .expect("a command")
                .render_help();
            text.push_str(&format!("$ ropeteam {name} --help\n{shown}\n"));
        }
        format!("$ ropeteam --help\n{}\n{text}", command.render_help())
    }

    /// Shows in review how a change of the options looks. To accept it: `UPDATE_HELP=1 cargo test -p ropeteam help`.
    #[test]
    fn help_is_as_written_down() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli/help.txt");
        let found: Vec<_> = help()
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        let found = found.join("\n") + "\n";
        if std::env::var_os("UPDATE_HELP").is_some() {
            std::fs::write(file, &found).expect("help.txt can be written");
        }
        let written = std::fs::read_to_string(file).expect("help.txt is there");
        assert!(
            found == written,
            "help differs from src/cli/help.txt:\n{found}"
        );
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
