//! Everything the scheduler actor decides: whom to admit, who is next, which device gets it.
//! It spends credits (`credits.rs`) and never sees a block id; what runs in a step is the device's business (`device_core`).

mod report;

pub use report::{DeviceView, SchedulerSnapshot, TenantView};

use crate::device_core::{BrokenInvariant, Load};
use crate::executor::Capacity;
use crate::ids::{DeviceId, Epoch, SeqId};
use crate::placement::Role;
use crate::time::Time;
use crate::work::Work;
use std::time::Duration;

/// Bounds of the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerLimits {
    /// Most sequences in the waiting queue; resubmissions may exceed it.
    pub max_queue: usize,
}

/// What a device offers in one of its lives.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceProfile {
    /// Its executor's capacity.
    pub capacity: Capacity,
    /// Most sequences it runs at once (`BatchLimits::max_decode_batch_size`).
    pub max_running: u32,
    /// What it is used for.
    pub role: Role,
}

/// Whether a submitted work is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submission {
    /// A new sequence: refused when the queue is full or the server drains.
    New,
    /// A sequence that lost its device: goes to the front, is never refused for a full queue or a drain.
    Again,
}

/// Why a sequence will not be served. The caller learns what it can do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The waiting queue is full.
    #[error("the waiting queue is full ({limit} sequences)")]
    QueueFull {
        /// Its bound.
        limit: usize,
        /// When it is worth trying again, from the measured speed of the queue.
        retry_after: Duration,
    },
    /// It can never fit on any device.
    #[error("a prompt of {given} tokens is over the limit of {limit} tokens ({which})")]
    TooLong {
        /// Prompt (and output so far) in tokens.
        given: usize,
        /// Most prompt tokens possible; one place is left for the first generated token.
        limit: usize,
        /// Which limit: "the model's length limit" or "the KV pool".
        which: &'static str,
    },
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Draining,
    /// Every device was given up.
    #[error("no device is available")]
    NoDevice,
    /// It waited longer than allowed.
    #[error("waited {waited:?} in the queue, longer than allowed")]
    QueueTimeout {
        /// How long.
        waited: Duration,
    },
    /// The scheduler has this sequence already.
    #[error("sequence {0} was submitted already")]
    Duplicate(SeqId),
}

/// What the actor has to do after a tick.
#[derive(Clone, Debug)]
pub enum Action {
    /// Give the work to this life of the device.
    Assign {
        /// The device.
        device: DeviceId,
        /// Its life.
        epoch: Epoch,
        /// The work.
        work: Work,
    },
    /// Tell the session of `seq`, which was waiting, that it will not be served.
    Refuse {
        /// The sequence.
        seq: SeqId,
        /// Why.
        why: Refusal,
    },
}

/// Where a cancelled sequence was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// In the queue; it is gone.
    Waiting,
    /// On a device: tell it. The sequence counts there until `released`.
    On {
        /// The device.
        device: DeviceId,
        /// Its life.
        epoch: Epoch,
    },
    /// Nowhere: it ended before.
    Unknown,
}

/// The end of a sequence on a device, whatever the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// The device.
    pub device: DeviceId,
    /// The life in which it held the sequence.
    pub epoch: Epoch,
    /// The sequence.
    pub seq: SeqId,
    /// Tokens it generated there, charged to its tenant.
    pub generated_tokens: u32,
}

/// The state of the scheduler. Every call is cheap; after any of them [`tick`](Self::tick) says what to do.
///
/// A sequence is in exactly one place from `submit` to its end: waiting, or on one life of one device.
#[derive(Debug)]
pub struct SchedulerCore {}

impl SchedulerCore {
    /// A scheduler without devices.
    pub fn new(limits: SchedulerLimits) -> Self {
        unimplemented!("{limits:?}")
    }

    /// Takes a sequence into the queue.
    ///
    /// # Errors
    /// Refused at once; nothing was changed then.
    pub fn submit(&mut self, work: Work, how: Submission, now: Time) -> Result<(), Refusal> {
        unimplemented!("{work:?} {how:?} {now:?}")
    }

    /// Ends a sequence's claim. Idempotent.
    pub fn cancel(&mut self, seq: SeqId) -> Cancelled {
        unimplemented!("{seq}")
    }

    /// A device begins a life. Returns the sequences that an earlier life still held: they were interrupted.
    /// A message of an earlier life than the known one is ignored.
    pub fn device_up(
        &mut self,
        device: DeviceId,
        epoch: Epoch,
        profile: DeviceProfile,
    ) -> Vec<SeqId> {
        unimplemented!("{device} {epoch} {profile:?}")
    }

    /// A life of a device ended; it may come back. Returns the sequences it held: they were interrupted and may be
    /// submitted again. Ignored for any life but the present one.
    pub fn device_down(&mut self, device: DeviceId, epoch: Epoch) -> Vec<SeqId> {
        unimplemented!("{device} {epoch}")
    }

    /// A device will not come back. Returns the sequences it held.
    pub fn device_gone(&mut self, device: DeviceId) -> Vec<SeqId> {
        unimplemented!("{device}")
    }

    /// A device's report. Ignored for any life but the present one.
    pub fn load(&mut self, device: DeviceId, epoch: Epoch, load: Load) {
        unimplemented!("{device} {epoch} {load:?}")
    }

    /// A sequence left a device. Returns false (and changes nothing) for stale news.
    pub fn released(&mut self, released: Released) -> bool {
        unimplemented!("{released:?}")
    }

    /// What is to be done now: refusals of what waited too long, assignments within the credits.
    pub fn tick(&mut self, now: Time) -> Vec<Action> {
        unimplemented!("{now:?}")
    }

    /// When [`tick`](Self::tick) must be called at the latest, though nothing else happens.
    pub fn next_deadline(&self) -> Option<Time> {
        unimplemented!()
    }

    /// Takes no new sequences from now on; what was admitted goes on.
    pub fn drain(&mut self) {
        unimplemented!()
    }

    /// Whether [`drain`](Self::drain) was called.
    pub fn is_draining(&self) -> bool {
        unimplemented!()
    }

    /// Whether no sequence waits or runs.
    pub fn is_idle(&self) -> bool {
        unimplemented!()
    }

    /// Sequences in the queue.
    pub fn waiting(&self) -> usize {
        unimplemented!()
    }

    /// Sequences on devices.
    pub fn running(&self) -> usize {
        unimplemented!()
    }

    /// Longest sequence, prompt and output together, that some device can hold; `None` before the first device was up.
    pub fn longest_sequence(&self) -> Option<u32> {
        unimplemented!()
    }

    /// A view for people.
    pub fn snapshot(&self) -> SchedulerSnapshot {
        unimplemented!()
    }

    /// Checks every invariant.
    ///
    /// # Errors
    /// The first one that does not hold.
    pub fn check(&self) -> Result<(), BrokenInvariant> {
        unimplemented!()
    }
}
