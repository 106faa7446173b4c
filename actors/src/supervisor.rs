//! The actor that keeps devices alive: it starts each life on a thread of its own, watches its pulse, and starts the next life
//! when one ends. When and whether is decided by [`Lives`].

use crate::bus::Bus;
use crate::clock::Clock;
use crate::config::{DeviceSpec, EngineConfig, Hosting, Isolation};
use crate::device::{Device, DeviceLinks, DeviceSetup, Legacy};
use crate::messages::{DeviceDown, DeviceGone, DeviceUp, Reconfigure, Restart, Retire, Snapshot};
use crate::pulse::SharedPulse;
use crate::scheduler::Scheduler;
use actix::{Actor, Addr, Arbiter, ArbiterHandle, AsyncContext, Context, Handler, MessageResult};
use ropeteam_engine::executor::{DeviceFault, FaultKind};
use ropeteam_engine::ids::{DeviceId, Epoch};
use ropeteam_engine::observe::Event;
use ropeteam_engine::supervision::{Ending, LifeState, Lives, Verdict};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// What the supervisor is made of.
pub(crate) struct SupervisorParts {
    pub config: EngineConfig,
    pub devices: Vec<DeviceSpec>,
    pub clock: Clock,
    pub bus: Bus,
    pub scheduler: Addr<Scheduler>,
}

/// The supervisor.
pub(crate) struct Supervisor {
    config: EngineConfig,
    clock: Clock,
    bus: Bus,
    scheduler: Addr<Scheduler>,
    devices: Vec<Supervised>,
}

/// One device under supervision.
struct Supervised {
    spec: DeviceSpec,
    lives: Lives,
    pulse: Arc<SharedPulse>,
    legacy: Arc<Legacy>,
    life: Option<Living>,
}

/// The actor of the present life.
struct Living {
    actor: Addr<Device>,
    /// Ends the life's thread; `None` where it has none of its own.
    thread: Option<ArbiterHandle>,
}

/// A view of the lives of all devices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SupervisorView {
    /// One entry per device.
    pub devices: Vec<LivesView>,
}

/// A view of the lives of one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LivesView {
    /// The device.
    pub device: DeviceId,
    /// Its present or last life.
    pub epoch: Epoch,
    /// `starting`, `up`, `down` or `given_up`.
    pub state: &'static str,
    /// How often it was started again.
    pub restarts: u32,
    /// Why its last life ended.
    pub last_fault: Option<DeviceFault>,
    /// How its last lives ended, oldest first.
    pub endings: Vec<Ending>,
}

impl Supervisor {
    pub fn new(parts: SupervisorParts) -> Self {
        let now = parts.clock.now();
        let lives = |spec: &DeviceSpec| {
            let lives = Lives::new(parts.config.restart.clone(), now);
            match spec.isolation {
                Isolation::Thread(_) => lives.in_this_process(),
                Isolation::Process(_) => lives,
            }
        };
        let supervised = |spec: DeviceSpec| Supervised {
            lives: lives(&spec),
            spec,
            pulse: Arc::default(),
            legacy: Arc::default(),
            life: None,
        };
        Supervisor {
            devices: parts.devices.into_iter().map(supervised).collect(),
            config: parts.config,
            clock: parts.clock,
            bus: parts.bus,
            scheduler: parts.scheduler,
        }
    }

    fn index(&self, device: DeviceId) -> Option<usize> {
        self.devices.iter().position(|d| d.spec.id == device)
    }

    /// Starts the life that `lives` has entered.
    fn start_life(&mut self, i: usize, ctx: &mut Context<Self>) {
        let links = DeviceLinks {
            up: ctx.address().recipient(),
            down: ctx.address().recipient(),
            released: self.scheduler.clone().recipient(),
            load: self.scheduler.clone().recipient(),
        };
        let supervised = &mut self.devices[i];
        let epoch = supervised.lives.epoch();
        // One of its own: what an abandoned life does later must not be taken for this one's progress.
        supervised.pulse = Arc::default();
        let setup = DeviceSetup {
            device: supervised.spec.id,
            epoch,
            isolation: supervised.spec.isolation.clone(),
            batching: self.config.batching.clone(),
            prefix_cache: self.config.prefix_cache,
            hosting: self.config.hosting.clone(),
            clock: self.clock,
            bus: self.bus.clone(),
            pulse: supervised.pulse.clone(),
            legacy: supervised.legacy.clone(),
            links,
        };
        let (home, thread) = match self.config.hosting {
            Hosting::Threads => match Arbiter::try_new() {
                Ok(thread) => (thread.handle(), Some(thread.handle())),
                Err(error) => {
                    let fault = DeviceFault {
                        kind: FaultKind::Start,
                        detail: format!("no thread for the device: {error}"),
                    };
                    return self.end_life(i, epoch, fault, ctx);
                }
            },
            Hosting::Simulated { .. } => (Arbiter::current(), None),
        };
        let actor = Device::start_in_arbiter(&home, move |_| Device::new(setup));
        supervised.life = Some(Living { actor, thread });
    }

    /// The present life is over, or is taken to be.
    fn end_life(&mut self, i: usize, epoch: Epoch, fault: DeviceFault, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        let supervised = &mut self.devices[i];
        let device = supervised.spec.id;
        let Some(verdict) = supervised.lives.down(epoch, fault.clone(), now) else {
            return;
        };
        tracing::warn!(%device, %epoch, %fault, ?verdict, "device life ended");
        supervised.pulse.end();
        if let Some(thread) = supervised.life.take().and_then(|life| life.thread) {
            // A stuck thread reads this when its step returns; until then it is left alone.
            thread.stop();
        }
        let DeviceFault {
            kind: cause,
            detail,
        } = fault.clone();
        // Bound: once per life.
        self.scheduler.do_send(DeviceDown {
            device,
            epoch,
            fault,
        });
        match verdict {
            Verdict::RestartAt(at) => {
                let (after, next) = (at.since(now), Epoch(epoch.0 + 1));
                self.bus.publish(Event::Restarting {
                    device,
                    epoch: next,
                    cause,
                    after,
                });
                ctx.run_later(after, move |act, ctx| act.revive(i, epoch, ctx));
            }
            Verdict::GiveUp { trial } => {
                let returns = trial.is_some();
                self.devices[i].legacy.clear();
                self.scheduler.do_send(DeviceGone { device, returns });
                self.bus.publish(Event::DeviceGivenUp { device, detail });
                if let Some(at) = trial {
                    let revive = move |act: &mut Self, ctx: &mut _| act.revive(i, epoch, ctx);
                    ctx.run_later(at.since(now), revive);
                }
            }
        }
    }

    /// Starts the life after `epoch`, unless that has happened.
    fn revive(&mut self, i: usize, epoch: Epoch, ctx: &mut Context<Self>) {
        let lives = &mut self.devices[i].lives;
        if lives.epoch() == epoch && lives.restart(false, self.clock.now()).is_some() {
            self.start_life(i, ctx);
        }
    }

    /// Ends the lives that show no progress.
    fn watch(&mut self, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        for i in 0..self.devices.len() {
            let supervised = &self.devices[i];
            if let Some(fault) = supervised.lives.overdue(supervised.pulse.read(), now) {
                self.end_life(i, supervised.lives.epoch(), fault, ctx);
            }
        }
    }

    fn watch_every(&self) -> Duration {
        let limit = self
            .config
            .restart
            .stuck_after
            .min(self.config.restart.start_within);
        (limit / 8).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }
}

impl Actor for Supervisor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        for i in 0..self.devices.len() {
            self.start_life(i, ctx);
        }
        ctx.run_interval(self.watch_every(), Supervisor::watch);
    }
}

impl Handler<DeviceUp> for Supervisor {
    type Result = ();

    fn handle(&mut self, up: DeviceUp, _: &mut Context<Self>) {
        let Some(i) = self.index(up.device) else {
            return;
        };
        if self.devices[i].lives.up(up.epoch, self.clock.now()) {
            tracing::info!(device = %up.device, epoch = %up.epoch, capacity = ?up.capacity, "device up");
            // Bound: once per life.
            self.scheduler.do_send(up);
        }
    }
}

impl Handler<DeviceDown> for Supervisor {
    type Result = ();

    fn handle(&mut self, down: DeviceDown, ctx: &mut Context<Self>) {
        if let Some(i) = self.index(down.device) {
            self.end_life(i, down.epoch, down.fault, ctx);
        }
    }
}

impl Handler<Restart> for Supervisor {
    type Result = bool;

    fn handle(&mut self, Restart { device }: Restart, ctx: &mut Context<Self>) -> bool {
        let Some(i) = self.index(device) else {
            return false;
        };
        let lives = &mut self.devices[i].lives;
        match lives.state() {
            LifeState::Down(_) | LifeState::GivenUp(_) => {
                if lives.restart(true, self.clock.now()).is_some() {
                    self.start_life(i, ctx);
                }
            }
            LifeState::Starting(_) | LifeState::Up(_) => {
                let epoch = lives.epoch();
                if let Some(life) = &self.devices[i].life {
                    life.actor.do_send(Retire);
                }
                // A life that does not retire in time, since a step hangs, is abandoned.
                ctx.run_later(self.config.restart.retire_within, move |act, ctx| {
                    let detail = "restart requested, no answer".to_owned();
                    act.end_life(
                        i,
                        epoch,
                        DeviceFault {
                            kind: FaultKind::Requested,
                            detail,
                        },
                        ctx,
                    );
                });
            }
        }
        true
    }
}

impl Handler<Reconfigure> for Supervisor {
    type Result = ();

    fn handle(&mut self, change: Reconfigure, _: &mut Context<Self>) {
        self.config.batching = change.0.batching.clone();
        for life in self.devices.iter().filter_map(|d| d.life.as_ref()) {
            // Bound: an operator's patience.
            life.actor.do_send(change.clone());
        }
    }
}

impl Handler<Snapshot<SupervisorView>> for Supervisor {
    type Result = MessageResult<Snapshot<SupervisorView>>;

    fn handle(&mut self, _: Snapshot<SupervisorView>, _: &mut Context<Self>) -> Self::Result {
        let view = |d: &Supervised| LivesView {
            device: d.spec.id,
            epoch: d.lives.epoch(),
            state: d.lives.state().as_str(),
            restarts: d.lives.restarts(),
            last_fault: d.lives.last_fault().cloned(),
            endings: d.lives.endings().cloned().collect(),
        };
        MessageResult(SupervisorView {
            devices: self.devices.iter().map(view).collect(),
        })
    }
}

/// The addresses of the present lives, for views.
#[derive(actix::Message)]
#[rtype(result = "Vec<(DeviceId, Addr<Device>)>")]
pub(crate) struct LivingDevices;

impl Handler<LivingDevices> for Supervisor {
    type Result = MessageResult<LivingDevices>;

    fn handle(&mut self, _: LivingDevices, _: &mut Context<Self>) -> Self::Result {
        let living = |d: &Supervised| Some((d.spec.id, d.life.as_ref()?.actor.clone()));
        MessageResult(self.devices.iter().filter_map(living).collect())
    }
}
