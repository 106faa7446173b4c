//! The actor of one life of one device. It stands between the device's inside (`inside.rs`) and everybody else: it passes orders
//! in, and news out to sessions, scheduler and supervisor. The inside is on the actor's own thread, where the actor turns the
//! circle (plan a step, run it, tell the sessions), or in a process of its own (`process`), which turns it there. Between two steps
//! orders are carried out, so assignments and cancellations wait one step at most. Restarts are the supervisor's business.

mod inside;
mod process;
mod report;

pub(crate) use process::Legacy;
#[doc(hidden)]
pub use process::read_frames;
pub use process::{ReadConstraint, Rebuilt, ServeError, Wanted, serve as serve_device};

use crate::bus::Bus;
use crate::clock::Clock;
use crate::config::{Hosting, Isolation};
use crate::messages::{
    Assign, Cancel, DeviceDown, DeviceUp, LoadReport, Progress, Reconfigure, Released, Retire,
    Snapshot,
};
use crate::pulse::SharedPulse;
use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Recipient, ResponseFuture,
    WrapFuture,
};
use inside::{Inside, News, Order, panic_fault};
use process::Process;
use report::Route;
use ropeteam_engine::batching::BatchLimits;
use ropeteam_engine::device_core::{AssignError, DeviceSnapshot, Load};
use ropeteam_engine::executor::{DeviceFault, FaultKind};
use ropeteam_engine::ids::{DeviceId, Epoch, SeqId};
use ropeteam_engine::plan::StepPlan;
use ropeteam_engine::time::Time;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// What a device actor is made of.
pub(crate) struct DeviceSetup {
    pub device: DeviceId,
    pub epoch: Epoch,
    pub isolation: Isolation,
    pub batching: BatchLimits,
    pub prefix_cache: bool,
    pub hosting: Hosting,
    pub clock: Clock,
    pub bus: Bus,
    pub pulse: Arc<SharedPulse>,
    /// What lives of this device in processes leave to each other.
    pub legacy: Arc<Legacy>,
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
    /// `None` once the life has ended: the executor's memory is free before the end is told.
    place: Option<Place>,
    routes: HashMap<SeqId, Route>,
    /// Works handed in so far.
    assigned: u64,
    /// The load last told.
    reported: Option<Load>,
    /// The next turn has been scheduled, or a step is under way.
    turning: bool,
    /// Who waits for a view.
    viewers: Vec<oneshot::Sender<DeviceSnapshot>>,
    /// Why the life ended, until its process is gone.
    ending: Option<DeviceFault>,
}

/// Where the inside is.
enum Place {
    Here(Box<Inside>),
    Process(Process),
}

impl Device {
    pub fn new(setup: DeviceSetup) -> Self {
        Device {
            setup,
            place: None,
            routes: HashMap::new(),
            assigned: 0,
            reported: None,
            turning: false,
            viewers: Vec::new(),
            ending: None,
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
            Err(payload) => panic_fault(kind, &*payload),
        };
        self.die(fault, ctx);
    }

    fn begin(&mut self, ctx: &mut Context<Self>) -> Result<(), DeviceFault> {
        match self.setup.isolation.clone() {
            Isolation::Thread(build) => {
                let setup = &self.setup;
                let executor = build(setup.epoch)?;
                let (batching, clock) = (setup.batching.clone(), setup.clock);
                let inside = Inside::new(executor, batching, setup.prefix_cache, clock);
                let capacity = inside.capacity();
                self.place = Some(Place::Here(Box::new(inside)));
                self.hear(News::Up(capacity), ctx)
            }
            Isolation::Process(spec) => {
                self.place = Some(Place::Process(Process::start(&self.setup, &spec, ctx)?));
                Ok(())
            }
        }
    }

    /// Hands an order in.
    fn order(&mut self, order: Order, ctx: &mut Context<Self>) -> Result<(), DeviceFault> {
        let news = match &mut self.place {
            None => None,
            Some(Place::Process(process)) => process.take(order)?,
            Some(Place::Here(inside)) => {
                let news = inside.take(order)?;
                if inside.is_due() && !self.turning {
                    self.schedule_turn(ctx);
                }
                news
            }
        };
        news.map_or(Ok(()), |news| self.hear(news, ctx))
    }

    /// Has the next step come after everything that is in the mailbox now.
    fn schedule_turn(&mut self, ctx: &mut Context<Self>) {
        self.turning = true;
        // Yielding also lets the thread's runtime see that it should stop.
        let turn = tokio::task::yield_now().into_actor(self);
        ctx.spawn(turn.map(|(), act, ctx| act.survive(ctx, FaultKind::Panic, Self::turn)));
    }

    fn turn(&mut self, ctx: &mut Context<Self>) -> Result<(), DeviceFault> {
        let Some(Place::Here(inside)) = &mut self.place else {
            return Ok(());
        };
        let news = match &self.setup.hosting {
            Hosting::Threads => inside.turn()?,
            Hosting::Simulated { step_time } => match inside.plan() {
                None => inside.rest(),
                Some((began, plan)) => {
                    let time = step_time(self.setup.device, &plan);
                    self.run_after(time, plan, began, ctx);
                    return Ok(());
                }
            },
        };
        self.conclude(news, ctx)
    }

    /// Runs a step whose time passes on tokio's clock. Waiting keeps the mailbox shut, as a busy thread would.
    fn run_after(&mut self, time: Duration, plan: StepPlan, began: Time, ctx: &mut Context<Self>) {
        let run = move |act: &mut Self, ctx: &mut Context<Self>| {
            let Some(Place::Here(inside)) = &mut act.place else {
                return Ok(());
            };
            let news = inside.run(&plan, began)?;
            act.conclude(news, ctx)
        };
        let step = tokio::time::sleep(time).into_actor(self);
        ctx.wait(step.map(|(), act, ctx| act.survive(ctx, FaultKind::Panic, run)));
    }

    /// The end of a turn on this thread.
    fn conclude(&mut self, news: News, ctx: &mut Context<Self>) -> Result<(), DeviceFault> {
        if self.setup.pulse.is_ended() {
            // Abandoned while it was stuck: another life has its place, so it ends without a word.
            self.place = None;
            ctx.stop();
            return Ok(());
        }
        self.turning = false;
        let goes_on = matches!(news, News::Step(_));
        self.hear(news, ctx)?;
        if goes_on && !self.turning {
            self.schedule_turn(ctx);
        }
        Ok(())
    }

    /// Passes news of the inside on.
    fn hear(&mut self, news: News, ctx: &mut Context<Self>) -> Result<(), DeviceFault> {
        match news {
            News::Up(capacity) => {
                // Bound: once per life.
                self.setup.links.up.do_send(DeviceUp {
                    device: self.setup.device,
                    epoch: self.setup.epoch,
                    capacity,
                    assign: ctx.address().recipient(),
                    cancel: ctx.address().recipient(),
                });
                self.begin_pings(ctx);
            }
            News::Rejected { seq, why } => self.reject(seq, why),
            News::Step(step) => self.report(step, ctx)?,
            News::Load(load) => self.report_load(load),
            News::Idle(load) => {
                // News of a process may have crossed an assignment.
                if load.assigned_total == self.assigned {
                    self.setup.pulse.rest();
                }
                self.report_load(load);
            }
            News::Snapshot(view) => {
                for viewer in self.viewers.drain(..) {
                    // Who has lost patience does not listen any more.
                    let _ = viewer.send(view.clone());
                }
            }
            News::Down(fault) => return Err(fault),
        }
        Ok(())
    }

    fn reject(&mut self, seq: SeqId, why: AssignError) {
        if let Some(route) = self.routes.get(&seq) {
            // Bound: once per assignment.
            route.session.do_send(Progress::Rejected { seq, why });
        }
        self.release(seq);
    }

    /// Ends this life: frees the executor, then tells the supervisor, who has the sessions told.
    fn die(&mut self, fault: DeviceFault, ctx: &mut Context<Self>) {
        match self.place.take() {
            Some(Place::Process(process)) => return self.end_process(process, fault, ctx),
            // It is being waited for.
            None if self.ending.is_some() => return,
            place => {
                if catch_unwind(AssertUnwindSafe(|| drop(place))).is_err() {
                    tracing::error!(device = %self.setup.device, "dropping a failed executor panicked");
                }
            }
        }
        self.tell_end(fault, ctx);
    }

    fn tell_end(&mut self, fault: DeviceFault, ctx: &mut Context<Self>) {
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

impl Actor for Device {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.survive(ctx, FaultKind::Start, Self::begin);
    }
}

impl Handler<Assign> for Device {
    type Result = ();

    fn handle(&mut self, Assign { work, session }: Assign, ctx: &mut Context<Self>) {
        if self.place.is_none() {
            return;
        }
        let route = Route {
            session,
            generated: 0,
        };
        self.routes.insert(work.seq, route);
        self.assigned += 1;
        if !self.setup.pulse.read().busy {
            self.setup.pulse.beat(self.setup.clock.now());
        }
        self.survive(ctx, FaultKind::Panic, |act, ctx| {
            act.order(Order::Assign(work), ctx)
        });
    }
}

impl Handler<Cancel> for Device {
    type Result = ();

    fn handle(&mut self, Cancel { seq }: Cancel, ctx: &mut Context<Self>) {
        self.release(seq);
        self.survive(ctx, FaultKind::Panic, |act, ctx| {
            act.order(Order::Cancel(seq), ctx)
        });
    }
}

impl Handler<Reconfigure> for Device {
    type Result = ();

    /// Orders are carried out between two steps, so the next one keeps to the new limits.
    fn handle(&mut self, Reconfigure(live): Reconfigure, ctx: &mut Context<Self>) {
        self.setup.batching = live.batching.clone();
        self.survive(ctx, FaultKind::Panic, |act, ctx| {
            act.order(Order::Limits(live.batching), ctx)
        });
    }
}

impl Handler<Retire> for Device {
    type Result = ();

    fn handle(&mut self, Retire: Retire, ctx: &mut Context<Self>) {
        self.survive(ctx, FaultKind::Panic, |act, ctx| {
            act.order(Order::Retire, ctx)
        });
    }
}

impl Handler<Snapshot<Option<DeviceSnapshot>>> for Device {
    type Result = ResponseFuture<Option<DeviceSnapshot>>;

    fn handle(
        &mut self,
        _: Snapshot<Option<DeviceSnapshot>>,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        let (viewer, view) = oneshot::channel();
        self.viewers.push(viewer);
        self.survive(ctx, FaultKind::Panic, |act, ctx| {
            act.order(Order::Snapshot, ctx)
        });
        Box::pin(async { view.await.ok() })
    }
}
