//! The command line: which commands there are. What each does stands in the file of its name.

mod config;
mod exit;
mod flags;

use crate::start_error::StartError;
use clap::{Parser, Subcommand};
pub use exit::Exit;
use std::process::ExitCode;

/// Version, in a release with the commit it was built from if that is known.
pub const VERSION: &str = env!("SERVER_VERSION");

/// An LLM inference server that goes on when a device fails.
#[derive(Debug, Parser)]
#[command(name = "ropeteam", version = VERSION, max_term_width = 110, after_help = exit::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check, show or list the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
}

/// Runs the command that the arguments name.
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Config(command) => config::run(command),
    };
    finish(result).into()
}

fn finish(result: Result<Exit, StartError>) -> Exit {
    result.unwrap_or_else(|error| {
        eprintln!("ropeteam: error: {error}");
        Exit::from(&error)
    })
}
