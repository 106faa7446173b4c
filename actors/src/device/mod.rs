//! The actor of one life of one device. It builds its executor on its own thread and then turns the circle: plan a step, run it,
//! tell the sessions. Between two steps it handles what has come in, so assignments and cancellations wait one step at most.
//! All decisions are in [`DeviceCore`]; restarts are the supervisor's business.

mod life;
mod report;

use crate::bus::Bus;
use crate::clock::Clock;
use crate::config::{BuildExecutor, Hosting};
use crate::messages::{
    Assign, Cancel, DeviceDown, DeviceUp, LoadReport, Progress, Released, Retire, Snapshot,
};
use crate::pulse::SharedPulse;
use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, MessageResult, Recipient,
    WrapFuture,
};
use life::{Life, Route, Turn};
use ropeteam_engine::batching::BatchLimits;
use ropeteam_engine::device_core::{DeviceCore, DeviceSnapshot};
use ropeteam_engine::executor::{DeviceFault, FaultKind};
use ropeteam_engine::ids::{DeviceId, Epoch};
use ropeteam_engine::plan::StepPlan;
use ropeteam_engine::time::Time;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// What a device actor is made of.
pub(crate) struct DeviceSetup {
    pub device: DeviceId,
    pub epoch: Epoch,
    pub build: BuildExecutor,
    pub batching: BatchLimits,
    pub prefix_cache: bool,
    pub hosting: Hosting,
    pub clock: Clock,
    pub bus: Bus,
    pub pulse: Arc<SharedPulse>,
    pub links: DeviceLinks,
}

/// To whom a device reports.
#[derive(Clone)]
pub(crate) struct DeviceLinks {
    pub up: Recipient<DeviceUp>,
    pub down: Recipient<DeviceDown>,
    pub released: Recipient<Released>,
    pub load: Recipient<LoadReport>,
}

/// One life of one device.
pub(crate) struct Device {
    setup: DeviceSetup,
    /// Gone once the life has ended; the executor's memory is free before the end is told.
    life: Option<Life>,
    /// A step is under way or its turn has been scheduled.
    turning: bool,
}

impl Device {
    pub fn new(setup: DeviceSetup) -> Self {
        Device {
            setup,
            life: None,
            turning: false,
        }
    }

    /// Does `work`; an error or a panic in it (in the executor or in the core) ends this life and nothing else.
    fn survive(
        &mut self,
        ctx: &mut Context<Self>,
        kind: FaultKind,
        work: impl FnOnce(&mut Self, &mut Context<Self>) -> Result<(), DeviceFault>,
    ) {
        // What a panic may have left half done is dropped with the life.
        let outcome = catch_unwind(AssertUnwindSafe(|| work(self, ctx)));
        let fault = match outcome {
            Ok(Ok(())) => return,
            Ok(Err(fault)) => fault,
            Err(payload) => DeviceFault {
                kind,
                detail: panic_text(&*payload),
            },
        };
        self.die(fault, ctx);
    }

    fn begin(&mut self, ctx: &mut Context<Self>) -> Result<(), DeviceFault> {
        let setup = &self.setup;
        let executor = (setup.build)(setup.epoch)?;
        let capacity = executor.capacity();
        let core = DeviceCore::new(setup.batching.clone(), capacity.clone(), setup.prefix_cache);
        self.life = Some(Life::new(core, executor));
        // Bound: once per life.
        setup.links.up.do_send(DeviceUp {
            device: setup.device,
            epoch: setup.epoch,
            capacity,
            assign: ctx.address().recipient(),
            cancel: ctx.address().recipient(),
        });
        Ok(())
    }

    /// Has the next step come after everything that is in the mailbox now.
    fn schedule_turn(&mut self, ctx: &mut Context<Self>) {
        self.turning = true;
        // Yielding also lets the thread's runtime see that it should stop.
        let turn = tokio::task::yield_now().into_actor(self);
        ctx.spawn(turn.map(|(), act, ctx| act.survive(ctx, FaultKind::Panic, Self::turn)));
    }

    fn turn(&mut self, ctx: &mut Context<Self>) -> Result<(), DeviceFault> {
        let Some(life) = &mut self.life else {
            return Ok(());
        };
        match &self.setup.hosting {
            Hosting::Threads => {
                let turn = life.plan_and_run(self.setup.clock)?;
                self.conclude(turn, ctx);
            }
            Hosting::Simulated { step_time } => {
                let began = self.setup.clock.now();
                match life.core.plan(began).cloned() {
                    None => self.conclude(None, ctx),
                    Some(plan) => {
                        let time = step_time(self.setup.device, &plan);
                        self.run_after(time, plan, began, ctx);
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs a step whose time passes on tokio's clock. Waiting keeps the mailbox shut, as a busy thread would.
    fn run_after(&mut self, time: Duration, plan: StepPlan, began: Time, ctx: &mut Context<Self>) {
        let run = move |act: &mut Self, ctx: &mut Context<Self>| {
            if let Some(life) = &mut act.life {
                let turn = life.run(&plan, began, act.setup.clock)?;
                act.conclude(Some(turn), ctx);
            }
            Ok(())
        };
        let step = tokio::time::sleep(time).into_actor(self);
        ctx.wait(step.map(|(), act, ctx| act.survive(ctx, FaultKind::Panic, run)));
    }

    fn conclude(&mut self, turn: Option<Turn>, ctx: &mut Context<Self>) {
        if self.setup.pulse.is_ended() {
            // Abandoned while it was stuck: another life has its place, so it ends without a word.
            self.life = None;
            ctx.stop();
            return;
        }
        match turn {
            Some(mut turn) => {
                let generated = turn.updates.iter().map(|u| u.tokens.len() as u32).sum();
                self.deliver(std::mem::take(&mut turn.updates));
                self.setup.pulse.beat(self.setup.clock.now());
                self.report_load();
                self.publish(&turn, generated);
                self.schedule_turn(ctx);
            }
            None => {
                self.turning = false;
                // A core that has sequences and plans nothing for them would be stuck; the pulse shows it.
                if self.life.as_ref().is_none_or(|life| life.core.is_idle()) {
                    self.setup.pulse.rest();
                }
                self.report_load();
            }
        }
    }

    /// Ends this life: frees the executor, then tells the supervisor, who has the sessions told.
    fn die(&mut self, fault: DeviceFault, ctx: &mut Context<Self>) {
        let life = self.life.take();
        if catch_unwind(AssertUnwindSafe(|| drop(life))).is_err() {
            tracing::error!(device = %self.setup.device, "dropping a failed executor panicked");
        }
        self.setup.pulse.rest();
        let (device, epoch) = (self.setup.device, self.setup.epoch);
        // Bound: once per life.
        self.setup.links.down.do_send(DeviceDown {
            device,
            epoch,
            fault,
        });
        ctx.stop();
    }
}

impl Life {
    /// One turn of the circle; `None` when there is nothing to do.
    fn plan_and_run(&mut self, clock: Clock) -> Result<Option<Turn>, DeviceFault> {
        let began = clock.now();
        let Some(plan) = self.core.plan(began) else {
            return Ok(None);
        };
        let start = clock.now();
        self.executor.step(plan, &mut self.output)?;
        self.take_in(began, start, clock).map(Some)
    }

    /// The second half of a turn whose plan was made at `began`.
    fn run(&mut self, plan: &StepPlan, began: Time, clock: Clock) -> Result<Turn, DeviceFault> {
        self.executor.step(plan, &mut self.output)?;
        self.take_in(began, began, clock)
    }

    /// Applies what the executor, at work since `start`, brought in a turn that began at `began`.
    fn take_in(&mut self, began: Time, start: Time, clock: Clock) -> Result<Turn, DeviceFault> {
        let end = clock.now();
        let threads = self.executor.threads();
        Ok(Turn {
            updates: self.core.apply(&self.output, end, threads)?,
            began,
            executor_time: end.since(start),
        })
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("no message"))
}

impl Actor for Device {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.survive(ctx, FaultKind::Start, Self::begin);
    }
}

impl Handler<Assign> for Device {
    type Result = ();

    fn handle(&mut self, Assign { work, session }: Assign, ctx: &mut Context<Self>) {
        self.survive(ctx, FaultKind::Panic, |act, ctx| {
            let Some(life) = &mut act.life else {
                return Ok(());
            };
            let seq = work.seq;
            let route = Route {
                session: session.clone(),
                generated: 0,
            };
            life.routes.insert(seq, route);
            if let Err(why) = life.core.assign(work) {
                // Bound: once per assignment.
                session.do_send(Progress::Rejected { seq, why });
                act.release(seq);
            } else if !act.turning {
                act.setup.pulse.beat(act.setup.clock.now());
                act.schedule_turn(ctx);
            }
            Ok(())
        });
    }
}

impl Handler<Cancel> for Device {
    type Result = ();

    fn handle(&mut self, Cancel { seq }: Cancel, ctx: &mut Context<Self>) {
        self.survive(ctx, FaultKind::Panic, |act, _| {
            act.release(seq);
            if !act.turning {
                act.report_load();
            }
            Ok(())
        });
    }
}

impl Handler<Retire> for Device {
    type Result = ();

    fn handle(&mut self, Retire: Retire, ctx: &mut Context<Self>) {
        let detail = "restart requested".to_owned();
        self.die(
            DeviceFault {
                kind: FaultKind::Requested,
                detail,
            },
            ctx,
        );
    }
}

impl Handler<Snapshot<Option<DeviceSnapshot>>> for Device {
    type Result = MessageResult<Snapshot<Option<DeviceSnapshot>>>;

    fn handle(
        &mut self,
        _: Snapshot<Option<DeviceSnapshot>>,
        _: &mut Context<Self>,
    ) -> Self::Result {
        MessageResult(self.life.as_ref().map(|life| life.core.snapshot()))
    }
}
