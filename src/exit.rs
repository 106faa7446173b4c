//! The exit codes, one per cause.

use crate::start_error::StartError;

/// How the process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// As asked, after all requests were finished.
    Done = 0,
    /// Something that no other code names.
    Failed = 1,
    /// Wrong flags, environment or configuration file.
    Config = 2,
    /// The model is missing, unreadable, broken or of an unknown kind.
    Model = 3,
    /// An address could not be listened on.
    Address = 4,
    /// The device could not be used, or its memory is too small.
    Device = 5,
    /// The drain deadline passed and running requests were ended.
    Cut = 6,
    /// A signal ended it before it was done; a server, which finishes its requests at the first signal, only a second one.
    Signal = 7,
}

/// The table of exit codes at the end of `--help`.
pub const HELP: &str = "\
Exit codes:
  0  done                            4  an address is in use or not ours
  1  any other failure               5  the device, or its memory, is not enough
  2  wrong flags or configuration    6  requests were cut at the drain deadline
  3  the model cannot be used        7  a signal cut it short (serve: a second one)";

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        std::process::ExitCode::from(exit as u8)
    }
}

impl From<&StartError> for Exit {
    fn from(error: &StartError) -> Self {
        match error {
            StartError::Config(_) | StartError::Usage(_) => Exit::Config,
            StartError::Model(_) => Exit::Model,
            StartError::Address { .. } => Exit::Address,
            StartError::Device(_) => Exit::Device,
            StartError::Signal(_) => Exit::Signal,
            StartError::Other(_) => Exit::Failed,
        }
    }
}
