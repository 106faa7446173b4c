//! How a device is opened.

use crate::library::Search;
use ropeteam_device::{Float, Precision};

/// Steps that are enqueued behind the one that the host waits for: with one, the device has work while the host chooses tokens and
/// plans; more would only compute more in vain when a sequence ends.
pub const STEPS_AHEAD: usize = 1;

/// How a device is opened.
#[derive(Clone, Debug)]
pub struct AscendOptions {
    /// Its number among the visible devices.
    pub device: u32,
    /// What weights are held in.
    pub precision: Precision,
    /// What activations and KV are held in: bf16 or f16.
    pub activations: Float,
    /// Longest wait for the device in milliseconds; `None`: for ever.
    pub patience_ms: Option<u32>,
    /// Steps that may be enqueued behind the one that the host waits for; usually `STEPS_AHEAD`.
    pub steps_ahead: usize,
    /// Whether steps of decoding sequences are captured and replayed as graphs.
    pub graphs: bool,
    /// Where the CANN libraries are looked for.
    pub search: Search,
}
