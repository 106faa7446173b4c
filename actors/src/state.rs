//! What anybody may know about the engine at once, without asking an actor: readiness and limits. The scheduler writes it.

use ropeteam_engine::executor::{Capacity, DeviceFault};
use serde::Serialize;

/// The engine as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EngineState {
    /// Devices that serve.
    pub devices_up: usize,
    /// Those among them that an operator gives no new work.
    pub devices_held_back: usize,
    /// Devices that were given up.
    pub devices_gone: usize,
    /// Devices there are.
    pub devices: usize,
    /// Devices that failed at least once.
    pub devices_failed: usize,
    /// Why a device last failed; `None` while none did.
    pub last_fault: Option<DeviceFault>,
    /// No new requests are admitted.
    pub draining: bool,
    /// What requests must keep to; `None` before the first device was up.
    pub limits: Option<Limits>,
}

impl EngineState {
    /// Whether a request would be served now.
    pub fn is_ready(&self) -> bool {
        self.devices_up > self.devices_held_back && !self.draining
    }

    /// Whether every device was given up: only an operator can help.
    pub fn is_hopeless(&self) -> bool {
        self.devices_gone == self.devices
    }
}

/// What a request must keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// The model's length limit: prompt and output together.
    pub max_model_len: u32,
    /// Tokens that the largest KV pool holds.
    pub pool_tokens: u32,
    /// Tokens per block.
    pub block_size: u32,
    /// Token ids are below this.
    pub vocab: u32,
}

impl Limits {
    /// Those of a device with that capacity and a tokenizer with so many ids.
    pub(crate) fn of(capacity: &Capacity, codec_vocab: u32) -> Self {
        Limits {
            max_model_len: capacity.max_model_len,
            pool_tokens: capacity.blocks.saturating_mul(capacity.block_size),
            block_size: capacity.block_size,
            vocab: capacity.vocab.min(codec_vocab),
        }
    }

    /// Longest sequence, prompt and output together; at least 1.
    pub fn longest_sequence(&self) -> u32 {
        self.max_model_len.min(self.pool_tokens).max(1)
    }

    /// Which limit that is.
    pub(crate) fn which(&self) -> &'static str {
        match self.pool_tokens < self.max_model_len {
            true => "the KV pool",
            false => "the model's length limit",
        }
    }
}
