//! The actor that admits and places: a thin shell round [`SchedulerCore`]. It keeps the addresses that the core does not know
//! (of sessions and devices) and sends what the core decides.

mod devices;
mod drain;
mod manage;

use crate::bus::Bus;
use crate::clock::Clock;
use crate::messages::{Assign, Cancel, DrainOutcome, Progress, Snapshot, Submit};
use crate::state::EngineState;
use actix::{Actor, AsyncContext, Context, Handler, MessageResult, Recipient, SpawnHandle};
use ropeteam_engine::fairness::Fairness;
use ropeteam_engine::ids::{DeviceId, Epoch, SeqId};
use ropeteam_engine::observe::Event;
use ropeteam_engine::scheduler::{
    Action, Cancelled, Refusal, SchedulerCore, SchedulerLimits, SchedulerSnapshot,
};
use ropeteam_engine::time::Time;
use std::collections::{BTreeSet, HashMap};
use tokio::sync::{oneshot, watch};

/// Room in its mailbox beyond one message per session, for devices and management.
const MAILBOX_SPARE: usize = 1024;

/// What the scheduler is made of.
pub(crate) struct SchedulerParts {
    pub limits: SchedulerLimits,
    pub fairness: Fairness,
    /// The devices that are being started.
    pub devices: Vec<DeviceId>,
    /// Most sessions there can be.
    pub max_sessions: usize,
    /// Most sequences a device runs at once.
    pub max_running: u32,
    pub codec_vocab: u32,
    pub clock: Clock,
    pub bus: Bus,
    pub state: watch::Sender<EngineState>,
}

/// The scheduler.
pub(crate) struct Scheduler {
    core: SchedulerCore,
    parts: SchedulerParts,
    /// Of every sequence that waits or runs and that somebody still wants.
    sessions: HashMap<SeqId, Recipient<Progress>>,
    devices: HashMap<DeviceId, DeviceAddress>,
    gone: BTreeSet<DeviceId>,
    /// Those that failed at least once.
    failed: BTreeSet<DeviceId>,
    alarm: Option<(Time, SpawnHandle)>,
    drains: Vec<oneshot::Sender<DrainOutcome>>,
    /// Sessions that have sequences whose device died, and have not said yet what becomes of them.
    astray: usize,
    told_queue: (usize, usize),
}

/// Where a device that takes work can be reached.
struct DeviceAddress {
    epoch: Epoch,
    assign: Recipient<Assign>,
    cancel: Recipient<Cancel>,
}

impl Scheduler {
    pub fn new(parts: SchedulerParts) -> Self {
        let mut core = SchedulerCore::new(parts.limits.clone());
        core.set_fairness(parts.fairness.clone());
        for &device in &parts.devices {
            core.device_expected(device);
        }
        Scheduler {
            core,
            parts,
            sessions: HashMap::new(),
            devices: HashMap::new(),
            gone: BTreeSet::new(),
            failed: BTreeSet::new(),
            alarm: None,
            drains: Vec::new(),
            astray: 0,
            told_queue: (0, 0),
        }
    }

    /// Does what the core wants done now; to be called after every change.
    fn settle(&mut self, ctx: &mut Context<Self>) {
        for action in self.core.tick(self.parts.clock.now()) {
            match action {
                Action::Assign {
                    device,
                    epoch,
                    work,
                } => {
                    let address = self.devices.get(&device).filter(|d| d.epoch == epoch);
                    if let (Some(address), Some(session)) =
                        (address, self.sessions.get(&work.seq).cloned())
                    {
                        // Bound: the device's credits.
                        address.assign.do_send(Assign { work, session });
                    }
                }
                Action::Refuse { seq, why } => {
                    if let Some(session) = self.sessions.remove(&seq) {
                        // Bound: once per sequence.
                        session.do_send(Progress::Refused { seq, why });
                    }
                }
            }
        }
        self.set_alarm(ctx);
        self.tell_queue();
        if self.core.is_idle() && self.astray == 0 {
            self.answer_drains(0);
        }
    }

    fn set_alarm(&mut self, ctx: &mut Context<Self>) {
        let wanted = self.core.next_deadline();
        if self.alarm.as_ref().map(|(at, _)| *at) == wanted {
            return;
        }
        if let Some((_, handle)) = self.alarm.take() {
            ctx.cancel_future(handle);
        }
        self.alarm = wanted.map(|at| {
            let handle = ctx.run_later(at.since(self.parts.clock.now()), |act, ctx| {
                act.alarm = None;
                act.settle(ctx);
            });
            (at, handle)
        });
    }

    fn tell_queue(&mut self) {
        let now = (self.core.waiting(), self.core.running());
        if now != self.told_queue {
            self.told_queue = now;
            self.parts.bus.publish(Event::Queue {
                waiting: now.0,
                running: now.1,
            });
        }
    }

    fn cancel(&mut self, seq: SeqId) {
        self.sessions.remove(&seq);
        if let Cancelled::On { device, epoch } = self.core.cancel(seq)
            && let Some(address) = self.devices.get(&device).filter(|d| d.epoch == epoch)
        {
            // Bound: once per sequence.
            address.cancel.do_send(Cancel { seq });
        }
    }
}

impl Actor for Scheduler {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        // Every session may have one message in it that waits for a reply, so none of them is ever held up.
        ctx.set_mailbox_capacity(self.parts.max_sessions + MAILBOX_SPARE);
    }
}

impl Handler<Submit> for Scheduler {
    type Result = Result<(), Refusal>;

    fn handle(&mut self, submit: Submit, ctx: &mut Context<Self>) -> Self::Result {
        let now = self.parts.clock.now();
        let mut taken = Vec::with_capacity(submit.works.len());
        for work in submit.works {
            let seq = work.seq;
            if let Err(refusal) = self.core.submit(work, submit.how, now) {
                taken.into_iter().for_each(|seq| self.cancel(seq));
                return Err(refusal);
            }
            self.sessions.insert(seq, submit.session.clone());
            taken.push(seq);
        }
        self.settle(ctx);
        Ok(())
    }
}

impl Handler<Cancel> for Scheduler {
    type Result = ();

    fn handle(&mut self, Cancel { seq }: Cancel, ctx: &mut Context<Self>) {
        self.cancel(seq);
        self.settle(ctx);
    }
}

impl Handler<Snapshot<SchedulerSnapshot>> for Scheduler {
    type Result = MessageResult<Snapshot<SchedulerSnapshot>>;

    fn handle(&mut self, _: Snapshot<SchedulerSnapshot>, _: &mut Context<Self>) -> Self::Result {
        MessageResult(self.core.snapshot())
    }
}
