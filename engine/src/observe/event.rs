//! The events on the bus. Whoever listens gets all of them; nobody in a request's way waits for a listener.

use crate::device_core::{Load, StepCounts};
use crate::executor::{Capacity, FaultKind};
use crate::ids::{DeviceId, Epoch, SeqId};
use crate::time::Time;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// Something that happened, told after it happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A request reached the engine; nothing is known about it yet.
    Received {
        /// The request's id.
        request: Arc<str>,
    },
    /// A request passed its checks and its sequences are in the queue.
    Admitted {
        /// The request's id.
        request: Arc<str>,
        /// Its sequences, one per choice.
        seqs: Vec<SeqId>,
        /// Prompt tokens, counted once.
        prompt_tokens: u32,
        /// Whose it is.
        tenant: Arc<str>,
    },
    /// A device began with a sequence: the end of its waiting.
    Scheduled {
        /// The sequence.
        seq: SeqId,
        /// The device.
        device: DeviceId,
        /// How long it waited.
        queued: Duration,
        /// Prompt tokens found in the prefix cache.
        cached_tokens: u32,
    },
    /// A sequence's first token reached its session.
    FirstToken {
        /// The sequence.
        seq: SeqId,
        /// From the arrival of the request.
        since_arrival: Duration,
    },
    /// A device finished a step.
    StepDone(StepDone),
    /// Sequences lost their blocks and will be computed again.
    Preempted {
        /// The device.
        device: DeviceId,
        /// They.
        seqs: Vec<SeqId>,
    },
    /// A request ended after it was admitted, whatever the cause; the last event of a request.
    Finished(FinishedRequest),
    /// A request was refused before or while it waited; its last event.
    Refused {
        /// The request's id.
        request: Arc<str>,
        /// Why.
        reason: RefusedReason,
    },
    /// Sequences of a lost device were submitted again.
    Replayed {
        /// They.
        seq: SeqId,
        /// Tokens that have to be computed again.
        tokens: u32,
    },
    /// A device takes work.
    DeviceUp {
        /// The device.
        device: DeviceId,
        /// Its life.
        epoch: Epoch,
        /// What it can hold and do.
        capacity: Capacity,
    },
    /// A device's life ended.
    DeviceDied {
        /// The device.
        device: DeviceId,
        /// Its life.
        epoch: Epoch,
        /// Coarse cause.
        cause: FaultKind,
        /// For people.
        detail: String,
        /// Sequences it held.
        interrupted: Vec<SeqId>,
    },
    /// A device will be started again.
    Restarting {
        /// The device.
        device: DeviceId,
        /// The life to come.
        epoch: Epoch,
        /// Why the last one ended.
        cause: FaultKind,
        /// When.
        after: Duration,
    },
    /// A device will not be started again.
    DeviceGivenUp {
        /// The device.
        device: DeviceId,
        /// For people.
        detail: String,
    },
    /// A device's load changed.
    Load {
        /// The device.
        device: DeviceId,
        /// Its life.
        epoch: Epoch,
        /// The load.
        load: Load,
    },
    /// The queue's length changed.
    Queue {
        /// Sequences that wait.
        waiting: usize,
        /// Sequences on devices.
        running: usize,
    },
    /// An operator, or the program that embeds the engine, asked for something.
    Managed {
        /// What: `restart`, `drain_device`, `resume_device`, `cancel`, `reconfigure` or `drain`.
        call: &'static str,
        /// To what, or from what to what.
        subject: String,
    },
    /// The server takes no new requests.
    Draining {
        /// When that began.
        at: Time,
    },
}

impl Event {
    /// The names of all events.
    pub const NAMES: &[&str] = &[
        "received",
        "admitted",
        "scheduled",
        "first_token",
        "step_done",
        "preempted",
        "finished",
        "refused",
        "replayed",
        "device_up",
        "device_died",
        "restarting",
        "device_given_up",
        "load",
        "queue",
        "managed",
        "draining",
    ];

    /// Its name, as it is serialised.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Received { .. } => "received",
            Event::Admitted { .. } => "admitted",
            Event::Scheduled { .. } => "scheduled",
            Event::FirstToken { .. } => "first_token",
            Event::StepDone(_) => "step_done",
            Event::Preempted { .. } => "preempted",
            Event::Finished(_) => "finished",
            Event::Refused { .. } => "refused",
            Event::Replayed { .. } => "replayed",
            Event::DeviceUp { .. } => "device_up",
            Event::DeviceDied { .. } => "device_died",
            Event::Restarting { .. } => "restarting",
            Event::DeviceGivenUp { .. } => "device_given_up",
            Event::Load { .. } => "load",
            Event::Queue { .. } => "queue",
            Event::Managed { .. } => "managed",
            Event::Draining { .. } => "draining",
        }
    }
}

/// One step of a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepDone {
    /// The device.
    pub device: DeviceId,
    /// Its life.
    pub epoch: Epoch,
    /// What it held.
    #[serde(flatten)]
    pub counts: StepCounts,
    /// Tokens chosen.
    pub generated_tokens: u32,
    /// Time in the executor.
    pub duration: Duration,
    /// Time for planning it and for choosing its tokens.
    pub engine_duration: Duration,
}

/// A request's end with all that a request log and the histograms need. Times are from the arrival of the request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FinishedRequest {
    /// The request's id.
    pub request: Arc<str>,
    /// Whose it was.
    pub tenant: Arc<str>,
    /// How it ended.
    pub outcome: Outcome,
    /// Where it was, for a cancelled one.
    pub cancelled_in: Option<CancelStage>,
    /// Continuations asked for.
    pub choices: u32,
    /// Most tokens asked for, per choice.
    pub max_tokens: u32,
    /// Prompt tokens, counted once.
    pub prompt_tokens: u32,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: u32,
    /// Generated tokens of all choices.
    pub generated_tokens: u32,
    /// Until a device began with it; `None` if none did.
    pub queue_time: Option<Duration>,
    /// Until the first token; `None` if there was none.
    pub first_token_time: Option<Duration>,
    /// Until the last token; `None` if there was none.
    pub last_token_time: Option<Duration>,
    /// Until the end.
    pub total_time: Duration,
    /// How often it went on after the loss of a device.
    pub replays: u32,
}

/// How a request ended. Kept apart inside; each dialect maps them as honestly as it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// An end id or a stop string.
    Stop,
    /// Its length limit.
    Length,
    /// The client left or a management call ended it.
    Cancelled,
    /// Its deadline passed.
    Timeout,
    /// A device failed and it could not go on.
    DeviceError,
    /// Its constraint could not be followed to an end.
    ConstraintFailed,
}

impl Outcome {
    /// The word used as a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Stop => "stop",
            Outcome::Length => "length",
            Outcome::Cancelled => "cancelled",
            Outcome::Timeout => "timeout",
            Outcome::DeviceError => "device_error",
            Outcome::ConstraintFailed => "constraint_failed",
        }
    }
}

/// Where a cancelled request was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelStage {
    /// In the queue.
    Queue,
    /// On a device, before its first token.
    Prefill,
    /// On a device, after its first token.
    Decode,
}

impl CancelStage {
    /// The word used as a label.
    pub fn as_str(self) -> &'static str {
        match self {
            CancelStage::Queue => "queue",
            CancelStage::Prefill => "prefill",
            CancelStage::Decode => "decode",
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedReason {
    /// The waiting queue was full.
    QueueFull,
    /// It can never fit.
    TooLong,
    /// It would have waited longer than allowed.
    TooBusy,
    /// It waited longer than allowed.
    QueueTimeout,
    /// The request itself is wrong.
    Invalid,
    /// The server is shutting down.
    Draining,
    /// No device is left.
    NoDevice,
}

impl RefusedReason {
    /// The word used as a label.
    pub fn as_str(self) -> &'static str {
        match self {
            RefusedReason::QueueFull => "queue_full",
            RefusedReason::TooLong => "too_long",
            RefusedReason::TooBusy => "too_busy",
            RefusedReason::QueueTimeout => "queue_timeout",
            RefusedReason::Invalid => "invalid",
            RefusedReason::Draining => "draining",
            RefusedReason::NoDevice => "no_device",
        }
    }
}
