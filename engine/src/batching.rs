//! How large a step may be and who goes first: the limits that an operator sets.

use serde::{Deserialize, Serialize};

/// Limits of a device's steps. All are at least 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchLimits {
    /// Most sequences that have a prefill chunk in one step.
    pub max_prefill_batch_size: u32,
    /// Most prefill tokens in one step.
    pub max_prefill_tokens: u32,
    /// Most sequences that run (hold blocks) at once, and so the most that decode in one step.
    pub max_decode_batch_size: u32,
    /// Who goes first, `support_select_batch` 0 or 1.
    pub select: SelectBatch,
    /// New sequences join at every step; otherwise a batch is formed, runs until all its members are done, then the next is formed.
    pub continuous_batching: bool,
    /// Most tokens of one sequence's prefill in one step; longer prompts are cut into chunks.
    pub chunk_tokens: u32,
}

impl Default for BatchLimits {
    fn default() -> Self {
        BatchLimits {
            max_prefill_batch_size: 32,
            max_prefill_tokens: 8192,
            max_decode_batch_size: 64,
            select: SelectBatch::PrefillFirst,
            continuous_batching: true,
            chunk_tokens: 512,
        }
    }
}

/// Who goes first when prompts wait while sequences decode. Both keep going in every step; the question is how much of a step
/// prompts may take, and so how long a decode step may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectBatch {
    /// `support_select_batch: 0`. Prompts may fill a step up to `max_prefill_tokens`: short time to first token.
    PrefillFirst,
    /// `support_select_batch: 1`. While anything decodes, all prompts of a step together get `chunk_tokens` less the decoding
    /// sequences, and at least one block: running generations are hardly disturbed.
    DecodeFirst,
}
