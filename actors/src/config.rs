//! What an engine is made of and how it behaves: everything [`Engine::start`](crate::Engine::start) takes. Where the values come
//! from (files, flags) is the host application's business.

use ropeteam_engine::batching::BatchLimits;
use ropeteam_engine::executor::{DeviceFault, StepExecutor};
use ropeteam_engine::fairness::Fairness;
use ropeteam_engine::ids::{DeviceId, Epoch, TokenId};
use ropeteam_engine::plan::StepPlan;
use ropeteam_engine::supervision::RestartPolicy;
use ropeteam_engine::text::TextCodec;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// How the engine behaves. `Default` suits a small server.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Limits of a device's steps.
    pub batching: BatchLimits,
    /// Keep the blocks of ended sequences for prompts that begin the same.
    pub prefix_cache: bool,
    /// How tenants share the devices.
    pub fairness: Fairness,
    /// Most sequences (choices) that wait for a device; more are refused at once.
    pub max_queue: usize,
    /// Most requests in the engine at once, those included whose prompt is being tokenised.
    pub max_requests: usize,
    /// A sequence that no device began with after this long fails with `QueueTimeout`; `None`: only `request_timeout` counts.
    pub queue_timeout: Option<Duration>,
    /// A request without a timeout of its own ends this long after it came in.
    pub request_timeout: Duration,
    /// A sequence that so many devices died under, one after the other without a token for it in between, ends with `DeviceError`: it
    /// may be what kills them.
    pub max_interruptions: u32,
    /// Longest prompt in tokens; `None`: what the length limit leaves.
    pub max_prompt_tokens: Option<u32>,
    /// No choice gets more tokens than this, whatever its request asks for.
    pub max_output_tokens: Option<u32>,
    /// Events a client may leave unread per choice; one that falls further behind is cancelled.
    pub client_buffer: usize,
    /// Events the slowest subscriber of the bus may leave unread before it loses the oldest.
    pub bus_buffer: usize,
    /// Threads on which the sessions run; 0: each on the arbiter that asks for its generation, which suits a caller whose arbiters
    /// do nothing but pass tokens on, since a token then wakes one thread less.
    pub session_threads: usize,
    /// When a device is restarted, given up or considered stuck.
    pub restart: RestartPolicy,
    /// Where actors live.
    pub hosting: Hosting,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            batching: BatchLimits::default(),
            prefix_cache: true,
            fairness: Fairness::default(),
            max_queue: 1024,
            max_requests: 4096,
            queue_timeout: Some(Duration::from_secs(60)),
            request_timeout: Duration::from_secs(600),
            max_interruptions: 3,
            max_prompt_tokens: None,
            max_output_tokens: None,
            client_buffer: 4096,
            bus_buffer: 8192,
            session_threads: 1,
            restart: RestartPolicy::default(),
            hosting: Hosting::Threads,
        }
    }
}

/// The part of an [`EngineConfig`] that can change while the engine runs ([`Engine::reconfigure`](crate::Engine::reconfigure)).
#[derive(Clone, Debug, PartialEq)]
pub struct LiveConfig {
    /// Limits of a device's steps; devices take them from their next step on.
    pub batching: BatchLimits,
    /// How tenants share the devices.
    pub fairness: Fairness,
    /// Most sequences that wait for a device; what waits already stays.
    pub max_queue: usize,
    /// Most requests in the engine at once.
    pub max_requests: usize,
    /// Longest wait in the queue of requests that come from now on.
    pub queue_timeout: Option<Duration>,
    /// Time limit of requests that come from now on and have none of their own.
    pub request_timeout: Duration,
}

impl EngineConfig {
    /// The part that can change, as the engine starts.
    pub fn live(&self) -> LiveConfig {
        LiveConfig {
            batching: self.batching.clone(),
            fairness: self.fairness.clone(),
            max_queue: self.max_queue,
            max_requests: self.max_requests,
            queue_timeout: self.queue_timeout,
            request_timeout: self.request_timeout,
        }
    }
}

/// How long a step of a device takes under a simulated clock.
pub type SimulatedStepTime = Arc<dyn Fn(DeviceId, &StepPlan) -> Duration + Send + Sync>;

/// Where the actors live.
#[derive(Clone, Default)]
pub enum Hosting {
    /// Each device on a thread of its own, sessions and the rest on the engine's own arbiters: a host's arbiter is never blocked.
    #[default]
    Threads,
    /// Everything on the arbiter that starts the engine, for simulations: with a paused tokio clock the run takes no time and
    /// is the same each time. While a step "runs" its device handles no message, as on a thread.
    Simulated {
        /// How long each step takes on tokio's clock.
        step_time: SimulatedStepTime,
    },
}

impl std::fmt::Debug for Hosting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Hosting::Threads => "Threads",
            Hosting::Simulated { .. } => "Simulated",
        })
    }
}

/// Builds a device's executor, on the device's own thread, once per life.
pub type BuildExecutor =
    Arc<dyn Fn(Epoch) -> Result<Box<dyn StepExecutor>, DeviceFault> + Send + Sync>;

/// One device to run.
#[derive(Clone)]
pub struct DeviceSpec {
    /// Its number; unique.
    pub id: DeviceId,
    /// Where its inside runs.
    pub isolation: Isolation,
}

/// What a device shares with the rest of the engine.
#[derive(Clone)]
pub enum Isolation {
    /// The process: its inside runs on a thread of its own. A panic costs the device only, a crash all.
    Thread(BuildExecutor),
    /// Nothing: its inside runs in a child process. A crash costs the device only.
    Process(ProcessSpec),
}

/// How a device's process is started.
#[derive(Clone)]
pub struct ProcessSpec {
    /// The program and its arguments; it must call [`serve_device`](crate::serve_device). Its standard input and output are taken.
    pub command: Arc<dyn Fn() -> Command + Send + Sync>,
    /// What that gets to build the executor from.
    pub recipe: Arc<[u8]>,
}

/// What the engine serves with.
#[derive(Clone)]
pub struct EngineParts {
    /// The model's tokenizer.
    pub codec: Arc<dyn TextCodec>,
    /// The model's own end ids.
    pub eos_ids: Vec<TokenId>,
    /// At least one; all serve the same model.
    pub devices: Vec<DeviceSpec>,
}
