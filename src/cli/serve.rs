//! `ropeteam serve`.

use super::flags::{ConfigFlags, Serving};
use crate::config::resolve;
use crate::exit::Exit;
use crate::serve;
use crate::start_error::StartError;

/// What to serve and how.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    #[command(flatten)]
    config: ConfigFlags<Serving>,
}

/// Runs the command.
///
/// # Errors
/// Why it could not start.
pub fn run(args: ServeArgs) -> Result<Exit, StartError> {
    serve::run(resolve(args.config.into_inputs())?)
}
