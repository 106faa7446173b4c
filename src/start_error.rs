//! Why the server, or a generation on the command line, could not start or go on. Each is one line; the exit code follows from it.

use crate::config::ConfigError;
use ropeteam_models::LoadError;
use ropeteam_models::quantize::QuantizeError;

/// Why it could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Something is missing on the command line.
    #[error("{0}")]
    Usage(String),
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
    /// A signal came before it was done.
    #[error("stopped by {0}")]
    Signal(&'static str),
    /// The operating system refused something else.
    #[error("{0}")]
    Other(String),
}

impl From<LoadError> for StartError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Checkpoint(error) => StartError::Model(error.to_string()),
            LoadError::Device(error) => StartError::Device(error.to_string()),
            LoadError::Option { .. } => StartError::Usage(error.to_string()),
        }
    }
}

impl From<QuantizeError> for StartError {
    fn from(error: QuantizeError) -> Self {
        match error {
            QuantizeError::Load(error) => error.into(),
            QuantizeError::Source { .. } => StartError::Model(error.to_string()),
            QuantizeError::Calibration { .. } => StartError::Usage(error.to_string()),
            QuantizeError::Write { .. } => StartError::Other(error.to_string()),
        }
    }
}
