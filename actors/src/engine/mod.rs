//! The engine as a host application holds it: start it inside a running actix `System`, clone the handle freely, generate.
//! All actors run on arbiters of the engine's own, so the host's arbiters are never blocked; only sessions may be hosted by their callers
//! (`EngineConfig::session_threads`).

mod manage;
mod views;

pub use views::{DeviceStatus, EngineView};

use crate::bus::{Bus, Subscription};
use crate::clock::Clock;
use crate::config::{EngineConfig, EngineParts, Hosting};
use crate::generation::{GenerateEvent, Generation, RequestError};
use crate::metrics::Metrics;
use crate::requests::Requests;
use crate::scheduler::{Scheduler, SchedulerParts};
use crate::session::context::SessionContext;
use crate::session::outlet::Outlet;
use crate::session::{Session, SessionParts};
use crate::state::{EngineState, Limits};
use crate::supervisor::{Supervisor, SupervisorParts};
use actix::{Actor, Addr, Arbiter, ArbiterHandle, System};
use ropeteam_engine::executor::DeviceFault;
use ropeteam_engine::ids::DeviceId;
use ropeteam_engine::observe::Event;
use ropeteam_engine::request::GenerateRequest;
use ropeteam_engine::scheduler::SchedulerLimits;
use ropeteam_engine::text::TextCodec;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// When it is worth trying again after there were too many requests for even a place in the engine.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A running engine. Cheap to clone; usable from any thread.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<SessionContext>,
    homes: Arc<Homes>,
    supervisor: Addr<Supervisor>,
    metrics: Addr<Metrics>,
}

/// The arbiters on which sessions live.
struct Homes {
    /// Taken in turn; empty if sessions live with their callers.
    own: Vec<ArbiterHandle>,
    next: AtomicUsize,
    /// Where a session lives whose caller has no arbiter.
    fallback: ArbiterHandle,
}

/// Why an engine cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// There is no device.
    #[error("an engine needs at least one device")]
    NoDevice,
    /// Two devices have the same number.
    #[error("device {0} is listed twice")]
    DuplicateDevice(DeviceId),
    /// There is no actix `System` on this thread.
    #[error("an engine starts inside a running actix System")]
    NoSystem,
}

impl Engine {
    /// Starts all actors. Returns at once: the devices build their executors on their own threads; see [`ready`](Self::ready).
    ///
    /// # Errors
    /// Without a `System` on this thread, and if the devices are not at least one, each with its own number.
    pub fn start(config: EngineConfig, parts: EngineParts) -> Result<Engine, StartError> {
        check(&parts)?;
        let clock = Clock::start();
        let bus = Bus::new(config.bus_buffer);
        let (control, own) = arbiters(&config);
        let devices: Vec<DeviceId> = parts.devices.iter().map(|d| d.id).collect();
        let (state, state_reader) = watch::channel(EngineState {
            devices: devices.len(),
            ..EngineState::default()
        });
        let scheduler = Scheduler::start_in_arbiter(&control, {
            let parts = SchedulerParts {
                limits: SchedulerLimits {
                    max_queue: config.max_queue,
                },
                fairness: config.fairness.clone(),
                devices,
                max_sessions: config.max_requests,
                max_running: config.batching.max_decode_batch_size,
                codec_vocab: parts.codec.vocab_size(),
                clock,
                bus: bus.clone(),
                state,
            };
            |_| Scheduler::new(parts)
        });
        let events = bus.subscribe();
        let metrics = Metrics::start_in_arbiter(&control, move |_| Metrics::new(clock, events));
        let supervisor = Supervisor::start_in_arbiter(&control, {
            let parts = SupervisorParts {
                config: config.clone(),
                devices: parts.devices,
                clock,
                bus: bus.clone(),
                scheduler: scheduler.clone(),
            };
            |_| Supervisor::new(parts)
        });
        let shared = Arc::new(SessionContext {
            live: RwLock::new(config.live()),
            config,
            codec: parts.codec,
            eos_ids: parts.eos_ids,
            clock,
            bus,
            scheduler,
            state: state_reader,
            tokenising: Arc::new(Semaphore::new(tokenising_at_once())),
            suspects: Arc::new(Semaphore::new(1)),
            sessions: Arc::default(),
            requests: Requests::default(),
            next_seq: Default::default(),
        });
        let homes = Arc::new(Homes {
            own,
            next: AtomicUsize::new(0),
            fallback: control,
        });
        Ok(Engine {
            shared,
            homes,
            supervisor,
            metrics,
        })
    }

    /// Begins a request and returns its events. Never waits: what is refused is told as [`GenerateEvent::Failed`].
    pub fn generate(&self, request: GenerateRequest) -> Generation {
        self.generate_soon(request, None)
    }

    /// The same for a request that is worth nothing if no device begins with it within `start_within`: it is refused at once if the
    /// queue is too slow for that, or when the time has passed.
    pub fn generate_soon(
        &self,
        request: GenerateRequest,
        start_within: Option<Duration>,
    ) -> Generation {
        let shared = self.shared.clone();
        shared.bus.publish(Event::Received {
            request: request.id.as_str().into(),
        });
        let (mut outlet, events) = Outlet::new(shared.config.client_buffer, request.choices);
        let Some(place) = shared.take_place() else {
            let limit = shared.live().max_queue;
            let error = RequestError::QueueFull {
                limit,
                retry_after: RETRY_AFTER,
            };
            let reason = ropeteam_engine::observe::RefusedReason::QueueFull;
            shared.bus.publish(Event::Refused {
                request: request.id.as_str().into(),
                reason,
            });
            outlet.conclude(GenerateEvent::Failed(error));
            return Generation::new(events, None);
        };
        let arrived = shared.clock.now();
        let parts = SessionParts {
            shared,
            request,
            outlet,
            arrived,
            start_within,
            place,
        };
        let session = Session::start_in_arbiter(&self.homes.take(), move |_| Session::new(parts));
        Generation::new(events, Some(session.recipient()))
    }

    /// The model's tokenizer.
    pub fn codec(&self) -> &Arc<dyn TextCodec> {
        &self.shared.codec
    }

    /// What requests must keep to; `None` before the first device was up.
    pub fn limits(&self) -> Option<Limits> {
        self.state().limits
    }

    /// How the engine behaves, as it was started; what can change since: [`live`](Self::live).
    pub fn config(&self) -> &EngineConfig {
        &self.shared.config
    }

    /// The engine's state, as of now.
    pub fn state(&self) -> EngineState {
        self.shared.state.borrow().clone()
    }

    /// Whether a request would be served now: the engine's actors live, some device is up and nobody shuts down.
    pub fn is_ready(&self) -> bool {
        let living = self.shared.scheduler.connected() && self.supervisor.connected();
        living && self.shared.state.borrow().is_ready()
    }

    /// Waits until a device is up. Returns false if none will be: all were given up, or the engine is shutting down.
    pub async fn ready(&self) -> bool {
        let mut state = self.shared.state.clone();
        let settled = |s: &EngineState| s.is_ready() || s.is_hopeless() || s.draining;
        state.wait_for(settled).await.is_ok_and(|s| s.is_ready())
    }

    /// Waits until a device is up, or all have failed: what a program that has just started an engine wants to know.
    ///
    /// # Errors
    /// The last failure; devices are started again all the same, for as long as their budget lasts.
    pub async fn first_life(&self) -> Result<(), DeviceFault> {
        let mut state = self.shared.state.clone();
        let all_failed = |s: &EngineState| s.devices_failed == s.devices;
        let settled = |s: &EngineState| s.is_ready() || all_failed(s) || s.draining;
        let state = state.wait_for(settled).await;
        let fault = state.ok().filter(|s| !s.is_ready());
        match fault.and_then(|s| s.last_fault.clone()) {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    /// Listens to all events from now on.
    pub fn subscribe(&self) -> Subscription {
        self.shared.bus.subscribe()
    }
}

impl Homes {
    fn take(&self) -> ArbiterHandle {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        match self.own.len() {
            0 => Arbiter::try_current().unwrap_or_else(|| self.fallback.clone()),
            count => self.own[turn % count].clone(),
        }
    }
}

fn check(parts: &EngineParts) -> Result<(), StartError> {
    let mut seen = BTreeSet::new();
    if let Some(twice) = parts.devices.iter().find(|d| !seen.insert(d.id)) {
        return Err(StartError::DuplicateDevice(twice.id));
    }
    if seen.is_empty() {
        return Err(StartError::NoDevice);
    }
    System::try_current()
        .map(|_| ())
        .ok_or(StartError::NoSystem)
}

/// The arbiter of the scheduler, the supervisor and the metrics, and those for sessions alone.
fn arbiters(config: &EngineConfig) -> (ArbiterHandle, Vec<ArbiterHandle>) {
    match config.hosting {
        Hosting::Threads => {
            let sessions = (0..config.session_threads).map(|_| Arbiter::new().handle());
            (Arbiter::new().handle(), sessions.collect())
        }
        Hosting::Simulated { .. } => (Arbiter::current(), vec![Arbiter::current()]),
    }
}

fn tokenising_at_once() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}
