//! Why a model could not be rewritten in few bits.

use crate::checkpoint::CheckpointError;
use crate::error::LoadError;
use ropeteam_device::DeviceError;
use std::path::{Path, PathBuf};

/// A model could not be quantised.
#[derive(Debug, thiserror::Error)]
pub enum QuantizeError {
    /// The model cannot be read, or the device that computes with it fails.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The model is not one that can be quantised.
    #[error("{path} {problem}", path = path.display())]
    Source {
        /// The model.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
    /// The result cannot be written.
    #[error("cannot write {file}: {problem}", file = file.display())]
    Write {
        /// The file or folder.
        file: PathBuf,
        /// Why not.
        problem: String,
    },
    /// The calibration text is too short.
    #[error("the calibration text has {found} tokens, at least {needed} are needed")]
    Calibration {
        /// Its tokens.
        found: usize,
        /// How many it takes.
        needed: usize,
    },
}

impl QuantizeError {
    /// A `Write` error.
    pub(super) fn write(file: &Path, problem: impl ToString) -> Self {
        Self::Write {
            file: file.to_path_buf(),
            problem: problem.to_string(),
        }
    }
}

impl From<CheckpointError> for QuantizeError {
    fn from(error: CheckpointError) -> Self {
        LoadError::from(error).into()
    }
}

impl From<DeviceError> for QuantizeError {
    fn from(error: DeviceError) -> Self {
        LoadError::from(error).into()
    }
}
