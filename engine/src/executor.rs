//! The seam between serving and computing: a `StepExecutor` runs step plans on one device.
//! Implemented by `models::runner` for real models and by `sim` for simulated ones.

use crate::plan::{StepOutput, StepPlan};
use serde::{Deserialize, Serialize};

/// What an executor can hold and do; fixed for its life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// Blocks in the KV pool.
    pub blocks: u32,
    /// Tokens per block.
    pub block_size: u32,
    /// Longest sequence, prompt and output together.
    pub max_model_len: u32,
    /// Most tokens in one step.
    pub max_step_tokens: u32,
    /// Most logits rows in one step.
    pub max_logits_rows: u32,
    /// Width of a logits row.
    pub vocab: u32,
}

impl Capacity {
    /// Tokens that the pool can hold.
    pub fn pool_tokens(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.block_size)
    }

    /// The longest sequence that can ever run, prompt and output together.
    pub fn length_limit(&self) -> LengthLimit {
        let pool = u32::try_from(self.pool_tokens()).unwrap_or(u32::MAX);
        match self.max_model_len <= pool {
            true => LengthLimit {
                tokens: self.max_model_len,
                which: LimitKind::Model,
            },
            false => LengthLimit {
                tokens: pool,
                which: LimitKind::Pool,
            },
        }
    }
}

/// A bound on the length of a sequence, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthLimit {
    /// Most tokens, prompt and output together.
    pub tokens: u32,
    /// What sets it.
    pub which: LimitKind,
}

/// What bounds the length of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitKind {
    /// The model's own limit, or the configured one.
    Model,
    /// The whole KV pool.
    Pool,
}

impl LimitKind {
    /// "the model's length limit" or "the KV pool".
    pub fn as_str(self) -> &'static str {
        match self {
            LimitKind::Model => "the model's length limit",
            LimitKind::Pool => "the KV pool",
        }
    }
}

impl std::fmt::Display for LimitKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Runs steps. It lives on the device's own thread and need not be `Send`.
pub trait StepExecutor {
    /// What it can hold and do.
    fn capacity(&self) -> Capacity;

    /// Computes every chunk of `plan`: writes their K and V into the plan's blocks and fills `output`
    /// (its buffers are reused). Blocks until the step is done.
    ///
    /// A row's result depends on its own sequence alone, never on the other chunks or on how the sequence was cut into chunks.
    ///
    /// # Errors
    /// A `DeviceFault`: the step had no usable result and the KV cache must be taken as lost.
    fn step(&mut self, plan: &StepPlan, output: &mut StepOutput) -> Result<(), DeviceFault>;

    /// Tokens of a decoding sequence that it may compute before it is asked to, if it is given their blocks.
    fn lookahead(&self) -> u32 {
        0
    }

    /// The host threads that are idle between two steps, if it has such: the next tokens are chosen on them.
    fn threads(&mut self) -> Option<&mut dyn ForkJoin> {
        None
    }
}

/// Threads that do the tasks of one job together.
pub trait ForkJoin {
    /// How many there are, the caller's included.
    fn threads(&self) -> usize;

    /// Does tasks `0 .. tasks`, each once, in any order; returns when all are done.
    ///
    /// # Panics
    /// When a task did.
    fn run(&mut self, tasks: usize, task: &(dyn Fn(usize) + Sync));
}

/// A device failed. What it held is lost; its sequences go on elsewhere or after a restart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{kind}: {detail}")]
pub struct DeviceFault {
    /// Coarse cause, a word for metrics.
    pub kind: FaultKind,
    /// For people: the operator, code and text.
    pub detail: String,
}

/// Coarse cause of a device fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The executor could not be built (device, memory).
    Start,
    /// The model's files cannot be used.
    Model,
    /// An operator returned an error.
    Operator,
    /// The hardware or its driver failed; what the device held is lost.
    Hardware,
    /// The driver is beyond a reset by this process.
    Driver,
    /// The step panicked.
    Panic,
    /// No step finished within the limit.
    Stuck,
    /// Its process ended by itself.
    Process,
    /// Something from outside killed its process.
    Killed,
    /// An operator asked for the restart.
    Requested,
}

impl FaultKind {
    /// The word used in metrics and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            FaultKind::Start => "start",
            FaultKind::Model => "model",
            FaultKind::Operator => "operator",
            FaultKind::Hardware => "hardware",
            FaultKind::Driver => "driver",
            FaultKind::Panic => "panic",
            FaultKind::Stuck => "stuck",
            FaultKind::Process => "process",
            FaultKind::Killed => "killed",
            FaultKind::Requested => "requested",
        }
    }
}

impl std::fmt::Display for FaultKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
