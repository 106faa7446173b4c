//! What a step brought for one sequence: the device actor passes it on to the sequence's session.

use crate::ids::SeqId;
use crate::time::Time;
use crate::work::{DeviceFinish, PromptTokenLogprob, SampledToken};
use serde::{Deserialize, Serialize};

/// News of one sequence after one step. Sequences without news (a prompt that goes on) have none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeqUpdate {
    /// The sequence.
    pub seq: SeqId,
    /// Set in the first update of a sequence on this device (again after a replay elsewhere, not after a preemption).
    pub started: Option<SeqStarted>,
    /// Per prompt token, the first one included; set once, together with the first token, when the work asks for it
    /// and had no output yet.
    pub prompt_logprobs: Option<Vec<PromptTokenLogprob>>,
    /// The vector of the prompt, unnormalised, when the work asks for it; comes with the end.
    pub pooled: Option<Vec<f32>>,
    /// New tokens in order; an end id is one of them.
    pub tokens: Vec<SampledToken>,
    /// Set when the device is through with the sequence: its blocks are free and nothing more comes.
    pub finish: Option<DeviceFinish>,
}

/// When and how a device began with a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeqStarted {
    /// When its first step was planned.
    pub at: Time,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: u32,
}
