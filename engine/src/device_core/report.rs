//! What a device core tells about itself: its load for the scheduler, a step's counts for events, a snapshot for people.

use crate::ids::SeqId;
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// How full a device is. Reported to the scheduler once per step at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Blocks that no sequence holds and that hold nothing worth keeping.
    pub blocks_free: u32,
    /// Blocks that no sequence holds but that the prefix cache keeps; they are given up when needed.
    pub blocks_cached: u32,
    /// Blocks in the pool.
    pub blocks_total: u32,
    /// Blocks that the device's own waiting sequences still need to start.
    pub blocks_wanted: u32,
    /// Sequences that hold blocks.
    pub running: u32,
    /// Sequences that were assigned and hold none (not begun, or preempted).
    pub waiting: u32,
    /// Works assigned since this core exists. A report covers exactly the first so many assignments of its epoch.
    pub assigned_total: u64,
}

impl Load {
    /// Blocks a new sequence may have: free or cached, and not wanted by those that wait on the device.
    pub fn blocks_available(&self) -> u32 {
        (self.blocks_free + self.blocks_cached).saturating_sub(self.blocks_wanted)
    }

    /// Share of the pool that sequences hold, 0 to 1.
    pub fn kv_usage(&self) -> f64 {
        let held = self.blocks_total - self.blocks_free - self.blocks_cached;
        f64::from(held) / f64::from(self.blocks_total.max(1))
    }
}

/// Counts of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCounts {
    /// Prompt (and replayed) tokens computed.
    pub prefill_tokens: u32,
    /// Tokens computed by decoding, one per sequence; guesses are counted apart.
    pub decode_tokens: u32,
    /// Guessed tokens that were computed behind those.
    pub draft_tokens: u32,
    /// Sequences with a guess.
    pub draft_seqs: u32,
    /// Guesses that were right; known when the step is applied.
    pub accepted_tokens: u32,
    /// Sequences with a prefill chunk.
    pub prefill_seqs: u32,
    /// Sequences that decode.
    pub decode_seqs: u32,
    /// Tokens that sequences which began in this step looked up in the prefix cache.
    pub prefix_queried_tokens: u32,
    /// Tokens of them that were found.
    pub prefix_hit_tokens: u32,
    /// Operators and graphs that the host launched; 0 where it computes itself.
    pub launches: u32,
    /// Microseconds that it was at work for that.
    pub host_us: u32,
}

/// What the planned step holds; also what had to give way for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepStats {
    /// What there is to count.
    pub counts: StepCounts,
    /// Sequences that lost their blocks and will be computed again.
    pub preempted: Vec<SeqId>,
}

impl StepStats {
    /// Back to nothing, keeping the room of its list.
    pub(super) fn clear(&mut self) {
        self.counts = StepCounts::default();
        self.preempted.clear();
    }
}

/// A view of a whole device core for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceSnapshot {
    /// How full it is.
    pub load: Load,
    /// When its last step was done: what its health is read from.
    pub last_step_at: Option<Time>,
    /// Preemptions since it exists.
    pub preemptions_total: u64,
    /// Prompt tokens found in the prefix cache since it exists.
    pub prefix_hit_tokens_total: u64,
    /// Prompt tokens looked up in the prefix cache since it exists.
    pub prefix_queried_tokens_total: u64,
    /// Its sequences, running ones first, in the order in which they are served.
    pub sequences: Vec<SeqView>,
}

/// One sequence on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeqView {
    /// The sequence.
    pub seq: SeqId,
    /// What it is doing.
    pub state: SeqState,
    /// Prompt tokens.
    pub prompt_len_tokens: u32,
    /// Generated tokens.
    pub output_len_tokens: u32,
    /// Positions whose K and V are in the pool.
    pub computed_tokens: u32,
    /// Blocks it holds.
    pub blocks: u32,
}

/// What a sequence on a device is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeqState {
    /// Assigned, holds no blocks yet.
    Waiting,
    /// Lost its blocks to an earlier sequence and waits for new ones.
    Preempted,
    /// Its prompt is being computed.
    Prefill,
    /// It produces a token per step.
    Decode,
}
