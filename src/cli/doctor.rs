//! `ropeteam doctor`: looks for what keeps a server from starting or serving well, and says what to do about it.

use super::flags::{ConfigFlags, Serving};
use super::output;
use crate::config::resolve;
use crate::doctor::{Level, examine, report};
use crate::exit::Exit;
use crate::start_error::StartError;

/// The configuration to look after.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    config: ConfigFlags<Serving>,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the configuration.
pub fn run(args: DoctorArgs) -> Result<Exit, StartError> {
    let config = resolve(args.config.into_inputs())?.config;
    let findings = examine(&config);
    output::print(&report(&findings))?;
    let is_bad = findings.iter().any(|finding| finding.level == Level::Bad);
    Ok(if is_bad { Exit::Failed } else { Exit::Done })
}
