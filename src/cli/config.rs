//! `ropeteam config`: check a file, show what is in effect, list all options.

use super::flags::{ConfigFlags, Serving};
use super::output;
use crate::config::{check_file, reference, resolve, to_json, to_text};
use crate::exit::Exit;
use crate::start_error::StartError;
use std::path::PathBuf;

/// What to do with the configuration.
#[derive(Debug, clap::Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration file
    Check {
        /// The file
        file: PathBuf,
    },
    /// Show the effective values and where each came from
    Show {
        /// As JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        flags: Box<ConfigFlags<Serving>>,
    },
    /// List all options as a table in Markdown
    Reference,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the configuration.
pub fn run(command: ConfigCommand) -> Result<Exit, StartError> {
    match command {
        ConfigCommand::Check { file } => {
            check_file(&file)?;
            output::print(&format!("{}: good\n", file.display()))?;
        }
        ConfigCommand::Show { json, flags } => {
            let resolved = resolve(flags.into_inputs())?;
            for warning in &resolved.warnings {
                eprintln!("warning: {warning}");
            }
            let text = match json {
                true => format!("{:#}\n", to_json(&resolved)),
                false => to_text(&resolved),
            };
            output::print(&text)?;
        }
        ConfigCommand::Reference => output::print(&reference())?,
    }
    Ok(Exit::Done)
}
