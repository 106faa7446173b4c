//! What can go wrong on a device, by what the caller can do about it.

/// What a failure took with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Nothing but the call: its arguments were refused.
    Call,
    /// What the device holds; it can be reset.
    Device,
    /// The driver's state in this process; only another process, or a reset from outside, helps.
    Process,
}

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
    #[error("{op} failed with code {code} ({name}): {text}")]
    Op {
        /// The operator.
        op: &'static str,
        /// The device's code.
        code: i64,
        /// The code's own name.
        name: &'static str,
        /// The device's own words.
        text: String,
        /// What it took with it.
        damage: Damage,
    },
    /// There is no such device here, or not with what it would need; the text says what is missing.
    #[error("{0}")]
    Unavailable(String),
    /// The device is gone; only a restart helps.
    #[error("device lost: {0}")]
    Lost(String),
}
