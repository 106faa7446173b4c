//! Why the server, or a generation on the command line, could not start. Each is one line; the exit code follows from it.

use crate::config::ConfigError;

/// Why it could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The model is missing, unreadable, broken or of an unknown kind.
    #[error("model: {0}")]
    Model(String),
    /// An address could not be listened on.
    #[error("cannot listen on {address}: {problem}")]
    Address {
        /// Host and port.
        address: String,
        /// Why; "already in use" for one.
        problem: String,
    },
    /// The device could not be used, or its memory is too small.
    #[error("device: {0}")]
    Device(String),
    /// The operating system refused something else.
    #[error("{0}")]
    Other(String),
}
