//! What goes into the scheduler's state machine and what comes out of it.

use crate::executor::Capacity;
use crate::ids::{DeviceId, Epoch, SeqId};
use crate::placement::Role;
use crate::queue::QueueFull;
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
    /// At the speed of the queue it would wait longer than allowed.
    #[error("the queue is expected to take {forecast:?}, and the request allows {allowed:?}")]
    TooBusy {
        /// How long it would wait.
        forecast: Duration,
        /// How long it may.
        allowed: Duration,
        /// When it is worth trying again.
        retry_after: Duration,
    },
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

impl From<QueueFull> for Refusal {
    fn from(full: QueueFull) -> Self {
        Refusal::QueueFull {
            limit: full.limit,
            retry_after: full.retry_after,
        }
    }
}
