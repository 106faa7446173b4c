//! What can go wrong on a device, by what the caller can do about it.

/// A device operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The caller passed buffers, weights or ids that do not fit together.
    #[error("{op}: {detail}")]
    Shape {
        /// The operator.
        op: &'static str,
        /// What did not fit, with the numbers.
        detail: String,
    },
    /// Not enough memory.
    #[error("{what} needs {needed_bytes} bytes, {free_bytes} are free")]
    OutOfMemory {
        /// What was to be allocated.
        what: String,
        /// Bytes it needs.
        needed_bytes: u64,
        /// Bytes that are free.
        free_bytes: u64,
    },
    /// An operator failed on the device.
    #[error("{op} failed with code {code}: {text}")]
    Op {
        /// The operator.
        op: &'static str,
        /// The device's code.
        code: i64,
        /// The device's own words.
        text: String,
    },
    /// The device is gone; only a restart helps.
    #[error("device lost: {0}")]
    Lost(String),
}
