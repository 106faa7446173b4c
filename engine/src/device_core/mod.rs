//! Everything a device actor decides: which of its sequences run, what the next step holds, and which token follows.
//! The actor only carries plans to its executor and updates to the sessions.
//! Placement among several devices is the scheduler's business (`scheduler.rs`).

mod report;
mod update;

pub use report::{DeviceSnapshot, Load, SeqState, SeqView, StepStats};
pub use update::{SeqStarted, SeqUpdate};

use crate::batching::BatchLimits;
use crate::executor::{Capacity, DeviceFault};
use crate::ids::SeqId;
use crate::plan::{StepOutput, StepPlan};
use crate::time::Time;
use crate::work::Work;

/// The state of one device in one of its lives. A restart makes a new core.
///
/// The circle: [`plan`](Self::plan), run the plan, [`apply`](Self::apply). Works and cancellations may come in at any moment.
#[derive(Debug)]
pub struct DeviceCore {}

/// Why a work was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    /// It can never fit: prompt, output so far and one more token are over a limit.
    #[error("a sequence of {given} tokens is over the limit of {limit} tokens ({which})")]
    TooLong {
        /// Tokens it has, and one more.
        given: usize,
        /// Tokens possible.
        limit: usize,
        /// Which limit: "the model's length limit" or "the KV pool".
        which: &'static str,
    },
    /// Its prompt is empty.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// Its output has `max_tokens` tokens already.
    #[error("the sequence is complete already")]
    Complete,
    /// The device has it already.
    #[error("sequence {0} is here already")]
    Duplicate(SeqId),
}

/// An invariant does not hold; for tests and for operators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("broken invariant: {0}")]
pub struct BrokenInvariant(pub String);

impl DeviceCore {
    /// A core with an empty pool. `limits` are lowered to what `capacity` can do.
    pub fn new(limits: BatchLimits, capacity: Capacity, prefix_cache: bool) -> Self {
        unimplemented!("{limits:?} {capacity:?} {prefix_cache}")
    }

    /// Takes a sequence, to begin it or to go on with it.
    ///
    /// # Errors
    /// See [`AssignError`]; nothing was changed then.
    pub fn assign(&mut self, work: Work) -> Result<(), AssignError> {
        unimplemented!("{work:?}")
    }

    /// Drops a sequence; its blocks are free at once. Does nothing and returns false if it is not here.
    /// What a step in flight brings for it is dropped by [`apply`](Self::apply).
    pub fn cancel(&mut self, seq: SeqId) -> bool {
        unimplemented!("{seq}")
    }

    /// Makes the next step, `None` when there is nothing to do. It must be applied (or the core given up)
    /// before the next call.
    pub fn plan(&mut self, now: Time) -> Option<&StepPlan> {
        unimplemented!("{now:?}")
    }

    /// What the last planned step holds.
    pub fn step_stats(&self) -> &StepStats {
        unimplemented!()
    }

    /// Takes the result of the planned step in: chooses tokens and ends sequences.
    ///
    /// # Errors
    /// A `DeviceFault` when `output` does not fit the plan: the executor is broken, the core must be given up.
    pub fn apply(&mut self, output: &StepOutput, now: Time) -> Result<Vec<SeqUpdate>, DeviceFault> {
        unimplemented!("{output:?} {now:?}")
    }

    /// Whether any sequence is here, running or waiting.
    pub fn is_idle(&self) -> bool {
        unimplemented!()
    }

    /// Whether a planned step awaits its result.
    pub fn in_flight(&self) -> bool {
        unimplemented!()
    }

    /// How full it is.
    pub fn load(&self) -> Load {
        unimplemented!()
    }

    /// A view for people.
    pub fn snapshot(&self) -> DeviceSnapshot {
        unimplemented!()
    }

    /// Ends the core's life after a fault: all sequences with what they have produced, in serving order.
    /// The core is empty afterwards.
    pub fn take_all(&mut self) -> Vec<Work> {
        unimplemented!()
    }

    /// Checks every invariant, O(blocks + sequences).
    ///
    /// # Errors
    /// The first one that does not hold.
    pub fn check(&self) -> Result<(), BrokenInvariant> {
        unimplemented!()
    }
}
