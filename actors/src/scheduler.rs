//! The actor that admits and places: a thin shell round [`SchedulerCore`]. It keeps the addresses that the core does not know
//! (of sessions and devices) and sends what the core decides.

use crate::bus::Bus;
use crate::clock::Clock;
use crate::mailing::by_session;
use crate::messages::{
    Assign, Cancel, DeviceDown, DeviceGone, DeviceUp, Drain, DrainOutcome, LoadReport, Progress,
    Released, Snapshot, Submit,
};
use crate::state::{EngineState, Limits};
use actix::{
    Actor, AsyncContext, Context, Handler, MessageResult, Recipient, ResponseFuture, SpawnHandle,
};
use ropeteam_engine::executor::{DeviceFault, FaultKind};
use ropeteam_engine::ids::{DeviceId, Epoch, SeqId};
use ropeteam_engine::observe::Event;
use ropeteam_engine::placement::Role;
use ropeteam_engine::scheduler::{
    Action, Cancelled, DeviceProfile, Refusal, SchedulerCore, SchedulerLimits, SchedulerSnapshot,
};
use ropeteam_engine::time::Time;
use std::collections::{BTreeSet, HashMap};
use tokio::sync::{oneshot, watch};

/// Room in its mailbox beyond one message per session, for devices and management.
const MAILBOX_SPARE: usize = 1024;

/// What the scheduler is made of.
pub(crate) struct SchedulerParts {
    pub limits: SchedulerLimits,
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
    alarm: Option<(Time, SpawnHandle)>,
    drains: Vec<oneshot::Sender<DrainOutcome>>,
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
        Scheduler {
            core: SchedulerCore::new(parts.limits.clone()),
            parts,
            sessions: HashMap::new(),
            devices: HashMap::new(),
            gone: BTreeSet::new(),
            alarm: None,
            drains: Vec::new(),
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
        if self.core.is_idle() {
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

    /// The sessions of these sequences are told that a life is over.
    fn interrupt(&mut self, seqs: Vec<SeqId>, device: DeviceId, epoch: Epoch, fault: &DeviceFault) {
        let sessions = &mut self.sessions;
        let wanted = seqs
            .into_iter()
            .filter_map(|seq| sessions.remove(&seq).map(|to| (to, seq)));
        for (session, seqs) in by_session(wanted) {
            let fault = fault.clone();
            // Bound: once per session and life.
            session.do_send(Progress::Interrupted {
                seqs,
                device,
                epoch,
                fault,
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

    fn answer_drains(&mut self, cut_off: usize) {
        for waiter in self.drains.drain(..) {
            // Who asked may have left meanwhile.
            let _ = waiter.send(DrainOutcome { cut_off });
        }
    }

    /// The time of a drain is up: what is left ends now.
    fn cut_off(&mut self, ctx: &mut Context<Self>) {
        let mut left: Vec<SeqId> = self.sessions.keys().copied().collect();
        left.sort_unstable();
        let sessions = left
            .iter()
            .filter_map(|seq| Some((self.sessions.get(seq)?.clone(), *seq)));
        for (session, _) in by_session(sessions) {
            // Bound: once per session.
            session.do_send(Progress::ShutDown);
        }
        for &seq in &left {
            self.cancel(seq);
        }
        self.answer_drains(left.len());
        self.settle(ctx);
    }

    fn update_state(&self, change: impl FnOnce(&mut EngineState)) {
        let (devices_up, devices_gone) = (self.devices.len(), self.gone.len());
        self.parts.state.send_modify(|state| {
            state.devices_up = devices_up;
            state.devices_gone = devices_gone;
            change(state);
        });
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

impl Handler<Released> for Scheduler {
    type Result = ();

    fn handle(&mut self, Released(released): Released, ctx: &mut Context<Self>) {
        if self.core.released(released) {
            self.sessions.remove(&released.seq);
            self.settle(ctx);
        }
    }
}

impl Handler<LoadReport> for Scheduler {
    type Result = ();

    fn handle(&mut self, report: LoadReport, ctx: &mut Context<Self>) {
        let LoadReport {
            device,
            epoch,
            load,
        } = report;
        if self.devices.get(&device).is_some_and(|d| d.epoch == epoch) {
            self.core.load(device, epoch, load);
            self.parts.bus.publish(Event::Load {
                device,
                epoch,
                load,
            });
            self.settle(ctx);
        }
    }
}

impl Handler<DeviceUp> for Scheduler {
    type Result = ();

    fn handle(&mut self, up: DeviceUp, ctx: &mut Context<Self>) {
        let DeviceUp {
            device,
            epoch,
            capacity,
            assign,
            cancel,
        } = up;
        let limits = Limits::of(&capacity, self.parts.codec_vocab);
        let profile = DeviceProfile {
            capacity: capacity.clone(),
            max_running: self.parts.max_running,
            role: Role::Mixed,
        };
        let lost = self.core.device_up(device, epoch, profile);
        let detail = "replaced by its next life".to_owned();
        let fault = DeviceFault {
            kind: FaultKind::Requested,
            detail,
        };
        self.interrupt(lost, device, Epoch(epoch.0.saturating_sub(1)), &fault);
        self.devices.insert(
            device,
            DeviceAddress {
                epoch,
                assign,
                cancel,
            },
        );
        self.gone.remove(&device);
        self.update_state(|state| {
            let roomier = |known: &Limits| known.longest_sequence() >= limits.longest_sequence();
            state.limits = Some(state.limits.filter(roomier).unwrap_or(limits));
        });
        self.parts.bus.publish(Event::DeviceUp {
            device,
            epoch,
            capacity,
        });
        self.settle(ctx);
    }
}

impl Handler<DeviceDown> for Scheduler {
    type Result = ();

    fn handle(&mut self, down: DeviceDown, ctx: &mut Context<Self>) {
        let DeviceDown {
            device,
            epoch,
            fault,
        } = down;
        let lost = self.core.device_down(device, epoch);
        self.devices.remove(&device);
        self.update_state(|_| {});
        self.parts.bus.publish(Event::DeviceDied {
            device,
            epoch,
            cause: fault.kind,
            detail: fault.detail.clone(),
            interrupted: lost.len(),
        });
        self.interrupt(lost, device, epoch, &fault);
        self.settle(ctx);
    }
}

impl Handler<DeviceGone> for Scheduler {
    type Result = ();

    fn handle(&mut self, DeviceGone { device }: DeviceGone, ctx: &mut Context<Self>) {
        self.core.device_gone(device);
        self.gone.insert(device);
        self.update_state(|_| {});
        self.settle(ctx);
    }
}

impl Handler<Drain> for Scheduler {
    type Result = ResponseFuture<DrainOutcome>;

    fn handle(&mut self, Drain { within }: Drain, ctx: &mut Context<Self>) -> Self::Result {
        if !self.core.is_draining() {
            self.core.drain();
            self.update_state(|state| state.draining = true);
            self.parts.bus.publish(Event::Draining {
                at: self.parts.clock.now(),
            });
        }
        let (waiter, answer) = oneshot::channel();
        self.drains.push(waiter);
        ctx.run_later(within, Scheduler::cut_off);
        self.settle(ctx);
        // Without an answer the scheduler is gone, and with it all it held.
        Box::pin(async move { answer.await.unwrap_or_default() })
    }
}

impl Handler<Snapshot<SchedulerSnapshot>> for Scheduler {
    type Result = MessageResult<Snapshot<SchedulerSnapshot>>;

    fn handle(&mut self, _: Snapshot<SchedulerSnapshot>, _: &mut Context<Self>) -> Self::Result {
        MessageResult(self.core.snapshot())
    }
}
