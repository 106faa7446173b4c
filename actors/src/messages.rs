//! Every message between the engine's actors. Each says who sends it, who gets it, what comes back, and what keeps it from
//! flooding its receiver. `do_send` ignores a mailbox's bound, so the bound is stated here and kept by the sender.

use crate::config::LiveConfig;
use actix::{Message, Recipient};
use ropeteam_engine::device_core::{AssignError, Load, SeqUpdate};
use ropeteam_engine::executor::{Capacity, DeviceFault};
use ropeteam_engine::ids::{DeviceId, Epoch, SeqId};
use ropeteam_engine::scheduler::{self, Refusal, Submission};
use ropeteam_engine::work::Work;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// Session → Scheduler. Reply: at once, whether all the sequences were taken into the queue; else none was.
/// Bound: one per session in flight, and the engine bounds its sessions (`EngineConfig::max_requests`).
#[derive(Message)]
#[rtype(result = "Result<(), Refusal>")]
pub struct Submit {
    /// One per choice; only the interrupted ones when they are submitted again.
    pub works: Vec<Work>,
    /// New ones, or interrupted ones, which go to the front and are never refused for a full queue.
    pub how: Submission,
    /// Where their progress is told.
    pub session: Recipient<Progress>,
}

/// Session → Scheduler → Device: nobody wants the sequence any more. No reply; idempotent.
/// Bound: one per sequence.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct Cancel {
    /// The sequence.
    pub seq: SeqId,
}

/// Scheduler → Device: begin (or go on) with a sequence. No reply; its end is told by [`Released`].
/// Bound: the device's credits, which the scheduler spends.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Assign {
    /// The sequence.
    pub work: Work,
    /// Where its progress goes.
    pub session: Recipient<Progress>,
}

/// Device, Scheduler → Session: what became of its sequences. No reply.
/// Bound: `Step` once per step and session, so never more than the request's tokens; the others once per sequence and life.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub enum Progress {
    /// From the device: news of all the session's sequences that were in one step.
    Step {
        /// The device.
        device: DeviceId,
        /// Its life. News of a life that the session knows to be over is dropped.
        epoch: Epoch,
        /// The news, one per sequence.
        updates: Vec<SeqUpdate>,
    },
    /// From the device: it cannot take the sequence.
    Rejected {
        /// The sequence.
        seq: SeqId,
        /// Why.
        why: AssignError,
    },
    /// From the scheduler: the life of the device that held these sequences is over. The session submits them again.
    Interrupted {
        /// They.
        seqs: Vec<SeqId>,
        /// The device.
        device: DeviceId,
        /// The life that ended.
        epoch: Epoch,
        /// Why it ended.
        fault: DeviceFault,
        /// Dropped when they are submitted again or have ended.
        astray: Arc<Astray>,
    },
    /// From the scheduler: a waiting sequence will not be served.
    Refused {
        /// The sequence.
        seq: SeqId,
        /// Why.
        why: Refusal,
    },
    /// From the scheduler: the server ends now, before the request is through.
    ShutDown,
}

/// Sequences that the scheduler gave back to their session when their device died. While they are with it the scheduler knows nothing of
/// them and must not think that all has ended.
#[derive(Debug)]
pub struct Astray(pub Recipient<Returned>);

impl Drop for Astray {
    fn drop(&mut self) {
        // Bound: once per session and life.
        self.0.do_send(Returned);
    }
}

/// From a session: what went astray is with the scheduler again, or has ended.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct Returned;

/// Device → Scheduler: a sequence left it. No reply. Bound: one per [`Assign`].
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct Released(pub scheduler::Released);

/// Device → Scheduler: how full it is. No reply. Bound: once per step at most, and only if it changed.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct LoadReport {
    /// The device.
    pub device: DeviceId,
    /// Its life; a late report of an earlier one is ignored.
    pub epoch: Epoch,
    /// The load.
    pub load: Load,
}

/// Device → Supervisor → Scheduler: a life begins to serve. No reply. Bound: one per life.
#[derive(Message, Clone)]
#[rtype(result = "()")]
pub struct DeviceUp {
    /// The device.
    pub device: DeviceId,
    /// Its life.
    pub epoch: Epoch,
    /// What it can hold and do.
    pub capacity: Capacity,
    /// Takes its sequences.
    pub assign: Recipient<Assign>,
    /// Takes its cancellations.
    pub cancel: Recipient<Cancel>,
}

/// Device → Supervisor, Supervisor → Scheduler: a life is over; what it held is lost. No reply.
/// Bound: one per life; the supervisor drops those of lives that it has ended already.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct DeviceDown {
    /// The device.
    pub device: DeviceId,
    /// The life that ended.
    pub epoch: Epoch,
    /// Why.
    pub fault: DeviceFault,
}

/// Supervisor → Scheduler: the device was given up, after its last [`DeviceDown`]. No reply. Bound: one per budget of restarts.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct DeviceGone {
    /// The device.
    pub device: DeviceId,
    /// It will be tried again some time: waiting is not in vain.
    pub returns: bool,
}

/// Supervisor → Device: end this life, between two steps. It answers with [`DeviceDown`]. Bound: one per life.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct Retire;

/// Management → Supervisor: start the device anew, with a fresh budget. Reply: whether there is such a device.
/// Bound: an operator's patience; repeated while a restart is under way it does nothing.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "bool")]
pub struct Restart {
    /// The device.
    pub device: DeviceId,
}

/// Management → Scheduler: give the device nothing new, or give it work again. Reply: whether there is such a device.
/// Bound: an operator's patience.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "bool")]
pub struct HoldBack {
    /// The device.
    pub device: DeviceId,
    /// Nothing new (true), or work again.
    pub hold: bool,
}

/// Management → Scheduler, Supervisor → Device: limits that hold from the next step on, in all lives to come as well. No reply.
/// Bound: an operator's patience.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Reconfigure(pub LiveConfig);

/// Management → Session: end the request, which is told to its client as [`RequestError::Cancelled`]. No reply; idempotent.
/// Bound: an operator's patience.
///
/// [`RequestError::Cancelled`]: crate::generation::RequestError::Cancelled
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct EndRequest;

/// Management → Scheduler: admit nothing more, finish what was admitted; what is left after `within` ends with
/// [`Progress::ShutDown`]. Reply: when the engine is empty. Bound: one per shutdown; a second one may shorten the time.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "DrainOutcome")]
pub struct Drain {
    /// How long what was admitted may go on.
    pub within: Duration,
}

/// How a drain went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainOutcome {
    /// Sequences that did not finish in time.
    pub cut_off: usize,
}

/// Management → any actor: a serialisable view `V` of itself, which is the reply. Bound: one per open management request.
pub struct Snapshot<V>(PhantomData<fn() -> V>);

impl<V> Snapshot<V> {
    /// Asks for the view.
    pub fn new() -> Self {
        Snapshot(PhantomData)
    }
}

impl<V> Default for Snapshot<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: 'static> Message for Snapshot<V> {
    type Result = V;
}
