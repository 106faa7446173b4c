//! Why a model could not be loaded.

use crate::checkpoint::CheckpointError;
use ropeteam_device::DeviceError;

/// A model could not be brought onto a device.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Its files are at fault.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The device is, or its memory.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The limits asked for cannot be had with this model.
    #[error("{option} is {found}, {expected}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        found: u64,
        /// What it has to be.
        expected: String,
    },
}
