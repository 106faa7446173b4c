//! `ropeteam config`: check a file, show what is in effect, list all options.

use super::flags::{ConfigFlags, Serving};
use super::output;
use crate::config::{Note, check_file, reference, resolve, to_json, to_text};
use crate::exit::Exit;
use crate::start_error::StartError;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Widest column of fields or values.
const COLUMN_MAX: usize = 72;

/// What to do with the configuration.
#[derive(Debug, clap::Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration file; of one of MindIE's, show what each field becomes
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
            let notes = check_file(&file)?;
            output::print(&checked(&file, &notes))?;
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

/// That a file is good and, if it is MindIE's, what became of each field.
fn checked(file: &Path, notes: &[Note]) -> String {
    let mut text = format!("{}: good\n", file.display());
    let widest = |of: fn(&Note) -> &str| {
        let widths = notes.iter().map(|note| of(note).chars().count());
        widths.max().unwrap_or(0).min(COLUMN_MAX)
    };
    let (fields, values) = (widest(|note| &note.field), widest(|note| &note.value));
    for Note {
        field,
        value,
        became,
    } in notes
    {
        let _ = writeln!(text, "  {field:<fields$}  {value:<values$}  {became}");
    }
    text
}
