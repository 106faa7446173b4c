//! How a device's executor is built, on the device's own thread or in its own process: once at start, and again from the files after
//! each loss.

use super::sizing::Sizes;
use super::texts;
use crate::config::{DebugConfig, DebugFault, SimulatedTime};
use crate::devices::{self, DeviceEntry, DeviceOptions};
use crate::start_error::StartError;
use ropeteam_actors::BuildExecutor;
use ropeteam_device::ColumnMask;
use ropeteam_engine::executor::{Capacity, DeviceFault, FaultKind, StepExecutor};
use ropeteam_engine::ids::{DeviceId, Epoch, TokenId};
use ropeteam_models::grammar::Grammars;
use ropeteam_models::{Checkpoint, LoadError, ModelRunner, RunnerOptions};
use ropeteam_sim::codec::{END_OF_TEXT, SimCodec};
use ropeteam_sim::cost::CostModel;
use ropeteam_sim::executor::SimExecutor;
use ropeteam_sim::faults::{DelayedExecutor, Fault, FaultPlan, FaultyExecutor, PoisonedExecutor};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What a device's executor is built from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recipe {
    /// What computes.
    pub base: Base,
    /// What is put round it.
    pub hooks: Hooks,
}

/// What computes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Base {
    /// A real model.
    Model(ModelRecipe),
    /// A device without weights.
    Simulated {
        /// What it shall hold.
        capacity: Capacity,
        /// Every device with the same one simulates the same model.
        seed: u64,
        /// Time that a step takes.
        time: SimulatedTime,
    },
}

/// What an executor of a real model is built from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelRecipe {
    /// The model's folder or file. It is opened anew for each life: a mapping kept all the time would break if the file shrank.
    pub path: PathBuf,
    /// Where it runs: a name in the table of devices.
    pub device: String,
    /// How that is opened.
    pub options: DeviceOptions,
    /// What it shall hold.
    pub sizes: Sizes,
    /// Ids that have a token.
    pub mask: ColumnMask,
    /// Ids that end an answer.
    pub eos_ids: Vec<TokenId>,
}

/// The test hooks.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Hooks {
    delay: Duration,
    fault: Option<(u64, DebugFault)>,
    /// Prompts that begin with it kill every device.
    poison: Option<(TokenId, DebugFault)>,
}

impl From<&DebugConfig> for Hooks {
    fn from(config: &DebugConfig) -> Self {
        Hooks {
            delay: Duration::from_millis(config.debug_step_delay_ms),
            fault: config
                .debug_fault_at_step
                .map(|step| (step - 1, config.debug_fault)),
            poison: config
                .debug_poison
                .map(|id| (TokenId(id), config.debug_fault)),
        }
    }
}

impl Recipe {
    /// The same for a device of that number: made to fail is the first one.
    pub fn of(&self, device: DeviceId) -> Self {
        let mut recipe = self.clone();
        recipe.hooks.fault = recipe.hooks.fault.filter(|_| device == DeviceId(0));
        recipe
    }

    /// Loads the weights and allocates the pool.
    ///
    /// # Errors
    /// Damaged files, too little memory.
    pub fn build(&self, epoch: Epoch) -> Result<Box<dyn StepExecutor>, DeviceFault> {
        Ok(self.build_in(epoch, None)?.0)
    }

    /// The same with the KV cache in the file `cache`, where the device can have it there; whether it is.
    ///
    /// # Errors
    /// As for [`build`](Self::build).
    pub fn build_in(
        &self,
        epoch: Epoch,
        cache: Option<File>,
    ) -> Result<(Box<dyn StepExecutor>, bool), DeviceFault> {
        let (executor, kept) = match &self.base {
            Base::Model(recipe) => {
                let chosen = devices::find(&recipe.device).map_err(|error| DeviceFault {
                    kind: FaultKind::Start,
                    detail: error.to_string(),
                })?;
                recipe
                    .build(chosen.entry, cache)
                    .map_err(|error| start_fault(&error))?
            }
            Base::Simulated {
                capacity,
                seed,
                time,
            } => (simulated(capacity.clone(), *seed, *time), false),
        };
        Ok((self.hooks.put_round(executor, epoch), kept))
    }

    /// As the engine takes it.
    pub fn into_build(self) -> BuildExecutor {
        Arc::new(move |epoch| self.build(epoch))
    }

    /// What compiles the grammars of its requests.
    ///
    /// # Errors
    /// A tokenizer that cannot be read any more.
    pub fn grammars(&self) -> Result<Grammars, StartError> {
        match &self.base {
            Base::Model(recipe) => {
                let checkpoint = Checkpoint::open(&recipe.path).map_err(LoadError::from)?;
                let codec = texts::codec(&checkpoint)
                    .map_err(|error| StartError::Model(error.to_string()))?;
                Ok(Grammars::new(Arc::new(codec), recipe.eos_ids.clone()))
            }
            Base::Simulated { .. } => {
                let codec = Arc::new(SimCodec::default());
                Ok(Grammars::new(codec, vec![END_OF_TEXT]))
            }
        }
    }
}

impl ModelRecipe {
    fn build(
        &self,
        entry: &DeviceEntry,
        cache: Option<File>,
    ) -> Result<(Box<dyn StepExecutor>, bool), LoadError> {
        let checkpoint = Checkpoint::open(&self.path)?;
        let mut device = (entry.open)(&self.options)?;
        let kept = cache.is_some_and(|cache| device.keep_kv_in(cache));
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
        Ok((Box::new(runner), kept))
    }
}

fn simulated(capacity: Capacity, seed: u64, time: SimulatedTime) -> Box<dyn StepExecutor> {
    let device = Box::new(SimExecutor::new(capacity, seed));
    match time {
        SimulatedTime::None => device,
        SimulatedTime::Model => Box::new(DelayedExecutor::new(
            device,
            CostModel::default().step_time(),
        )),
    }
}

impl Hooks {
    fn put_round(
        &self,
        mut executor: Box<dyn StepExecutor>,
        epoch: Epoch,
    ) -> Box<dyn StepExecutor> {
        if !self.delay.is_zero() {
            let delay = self.delay;
            executor = Box::new(DelayedExecutor::new(executor, Arc::new(move |_| delay)));
        }
        // In the first life only, or the device would never get beyond it.
        if let Some((step, fault)) = self.fault.filter(|_| epoch == Epoch(1)) {
            executor = Box::new(FaultyExecutor::new(
                executor,
                FaultPlan::new([(step, kind(fault))]),
            ));
        }
        if let Some((id, fault)) = self.poison {
            executor = Box::new(PoisonedExecutor::new(executor, vec![id], kind(fault)));
        }
        executor
    }
}

fn kind(fault: DebugFault) -> Fault {
    match fault {
        DebugFault::Error => Fault::Error,
        DebugFault::Panic => Fault::Panic,
        DebugFault::Hang => Fault::Hang,
        DebugFault::Crash => Fault::Crash,
    }
}

fn start_fault(error: &LoadError) -> DeviceFault {
    let kind = match error {
        LoadError::Checkpoint(_) => FaultKind::Model,
        LoadError::Device(_) | LoadError::Option { .. } => FaultKind::Start,
    };
    DeviceFault {
        kind,
        detail: error.to_string(),
    }
}
