//! How a device's executor is built, on the device's own thread: once at start, and again from the files after each loss.

use super::sizing::Sizes;
use crate::config::DebugConfig;
use crate::devices::{DeviceEntry, DeviceOptions};
use crate::start_error::StartError;
use ropeteam_actors::{BuildExecutor, DeviceSpec};
use ropeteam_device::ColumnMask;
use ropeteam_engine::executor::{DeviceFault, FaultKind, StepExecutor};
use ropeteam_engine::ids::DeviceId;
use ropeteam_models::{Checkpoint, LoadError, ModelRunner, RunnerOptions};
use ropeteam_sim::faults::{DelayedExecutor, Fault, FaultPlan, FaultyExecutor};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// What an executor of a real model is built from.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The model's folder or file. It is opened anew for each life: a mapping kept all the time would break if the file shrank.
    pub path: PathBuf,
    /// Where it runs.
    pub device: &'static DeviceEntry,
    /// How that is opened.
    pub options: DeviceOptions,
    /// What it shall hold.
    pub sizes: Sizes,
    /// Ids that have a token.
    pub mask: ColumnMask,
}

impl Recipe {
    /// Loads the weights and allocates the pool.
    ///
    /// # Errors
    /// Damaged files, too little memory.
    fn build(&self) -> Result<Box<dyn StepExecutor>, LoadError> {
        let checkpoint = Checkpoint::open(&self.path)?;
        let device = (self.device.open)(&self.options)?;
        let runner = ModelRunner::load(
            &checkpoint,
            device,
            RunnerOptions {
                kv_blocks: self.sizes.kv_blocks,
                block_size: self.sizes.block_size,
                max_model_len: self.sizes.max_model_len,
                max_step_tokens: self.sizes.max_step_tokens,
                max_logits_rows: self.sizes.max_logits_rows,
                mask: self.mask.clone(),
            },
        )?;
        Ok(Box::new(runner))
    }
}

/// The one device of a server that runs `recipe`, and how its first start goes.
pub fn device(recipe: Recipe, hooks: &DebugConfig) -> (DeviceSpec, FirstLife) {
    let (sender, first_life) = FirstLife::new();
    let build: Build = Arc::new(move || {
        let built = recipe.build();
        let (built, outcome) = match built {
            Ok(executor) => (Ok(executor), Ok(())),
            Err(error) => (Err(start_fault(&error)), Err(StartError::from(error))),
        };
        tell(&sender, outcome);
        built
    });
    (
        DeviceSpec {
            id: DeviceId(0),
            build: with_hooks(build, hooks),
        },
        first_life,
    )
}

/// How the first start of a device went. Later ones are the supervisor's business; a first one that fails ends the process.
pub struct FirstLife(oneshot::Receiver<Result<(), StartError>>);

type Teller = Mutex<Option<oneshot::Sender<Result<(), StartError>>>>;

impl FirstLife {
    fn new() -> (Teller, Self) {
        let (sender, receiver) = oneshot::channel();
        (Mutex::new(Some(sender)), FirstLife(receiver))
    }

    /// Waits until the executor is built.
    ///
    /// # Errors
    /// Why it could not be built.
    pub async fn outcome(self) -> Result<(), StartError> {
        self.0
            .await
            .unwrap_or_else(|_| Err(StartError::Device("it ended while starting".to_owned())))
    }
}

fn tell(sender: &Teller, outcome: Result<(), StartError>) {
    if let Some(sender) = sender.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // Nobody listens any more when a signal came first.
        let _ = sender.send(outcome);
    }
}

/// Builds an executor.
pub type Build = Arc<dyn Fn() -> Result<Box<dyn StepExecutor>, DeviceFault> + Send + Sync>;

/// Puts the test hooks that are switched on round every executor.
pub fn with_hooks(build: Build, hooks: &DebugConfig) -> BuildExecutor {
    let delay = Duration::from_millis(hooks.debug_step_delay_ms);
    // Counted over all lives of the device: the fault comes once, or the device would never get beyond it.
    let faults = hooks
        .debug_fault_at_step
        .map(|step| FaultPlan::new([(step - 1, Fault::Error)]));
    Arc::new(move |_| {
        let mut executor = build()?;
        if !delay.is_zero() {
            executor = Box::new(DelayedExecutor::new(executor, Arc::new(move |_| delay)));
        }
        if let Some(plan) = &faults {
            executor = Box::new(FaultyExecutor::new(executor, plan.clone()));
        }
        Ok(executor)
    })
}

fn start_fault(error: &LoadError) -> DeviceFault {
    DeviceFault {
        kind: FaultKind::Start,
        detail: error.to_string(),
    }
}
