//! The inside of a device: its sequences, its blocks and its executor. Orders go in and news come out; whether they pass on one
//! thread (`device/mod.rs`) or through a socket (`device/process`) makes no difference here.

use crate::clock::Clock;
use ropeteam_engine::batching::BatchLimits;
use ropeteam_engine::device_core::{
    AssignError, DeviceCore, DeviceSnapshot, Load, SeqUpdate, StepStats,
};
use ropeteam_engine::executor::{Capacity, DeviceFault, FaultKind, StepExecutor};
use ropeteam_engine::ids::SeqId;
use ropeteam_engine::ledger::{BlockLedger, KnownBlock};
use ropeteam_engine::plan::{StepOutput, StepPlan};
use ropeteam_engine::time::Time;
use ropeteam_engine::work::Work;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::time::Duration;

/// What the inside is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Begin, or go on, with a sequence.
    Assign(Work),
    /// Nobody wants the sequence any more.
    Cancel(SeqId),
    /// Keep to these limits from the next step on.
    Limits(BatchLimits),
    /// Tell what is here.
    Snapshot,
    /// Show that there is somebody, if no step is about to.
    Ping,
    /// End this life.
    Retire,
}

/// What the inside tells.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum News {
    /// The executor is built.
    Up(Capacity),
    /// A sequence cannot be taken.
    Rejected { seq: SeqId, why: AssignError },
    /// A step was done.
    Step(StepNews),
    /// The load changed without a step.
    Load(Load),
    /// There is nothing to do.
    Idle(Load),
    /// What is here.
    Snapshot(DeviceSnapshot),
    /// This life is over.
    Down(DeviceFault),
}

/// A step that went well.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StepNews {
    pub updates: Vec<SeqUpdate>,
    pub stats: StepStats,
    pub load: Load,
    /// When the step was planned.
    pub began: Time,
    pub executor_time: Duration,
}

/// The core and the executor of one life.
pub(super) struct Inside {
    core: DeviceCore,
    executor: Box<dyn StepExecutor>,
    output: StepOutput,
    clock: Clock,
    /// A sequence came since there was last nothing to do.
    due: bool,
}

impl Inside {
    pub fn new(
        executor: Box<dyn StepExecutor>,
        batching: BatchLimits,
        prefix_cache: bool,
        clock: Clock,
    ) -> Self {
        let mut core = DeviceCore::new(batching, executor.capacity(), prefix_cache);
        core.look_ahead(executor.lookahead());
        Inside {
            core,
            executor,
            output: StepOutput::default(),
            clock,
            due: false,
        }
    }

    /// See `DeviceCore::adopt`.
    pub fn adopt(&mut self, known: Vec<KnownBlock>, ledger: Box<dyn BlockLedger>) -> usize {
        self.core.adopt(known, ledger)
    }

    pub fn capacity(&self) -> Capacity {
        self.executor.capacity()
    }

    /// Whether there may be a step to do.
    pub fn is_due(&self) -> bool {
        self.due
    }

    /// Carries an order out. The fault is the answer to `Retire`.
    pub fn take(&mut self, order: Order) -> Result<Option<News>, DeviceFault> {
        match order {
            Order::Assign(work) => {
                let seq = work.seq;
                match self.core.assign(work) {
                    Ok(()) => self.due = true,
                    Err(why) => return Ok(Some(News::Rejected { seq, why })),
                }
                Ok(None)
            }
            Order::Cancel(seq) => {
                self.core.cancel(seq);
                // The next step tells it otherwise.
                Ok((!self.due).then(|| News::Load(self.core.load())))
            }
            Order::Ping => Ok((!self.due).then(|| self.rest())),
            Order::Limits(limits) => {
                self.core.set_limits(limits);
                Ok(None)
            }
            Order::Snapshot => Ok(Some(News::Snapshot(self.core.snapshot()))),
            Order::Retire => Err(DeviceFault {
                kind: FaultKind::Requested,
                detail: "restart requested".to_owned(),
            }),
        }
    }

    /// One turn of the circle: plans a step and runs it.
    pub fn turn(&mut self) -> Result<News, DeviceFault> {
        let began = self.clock.now();
        let Some(plan) = self.core.plan(began) else {
            return Ok(self.rest());
        };
        let start = self.clock.now();
        self.executor.step(plan, &mut self.output)?;
        self.take_in(began, start)
    }

    /// The first half of a turn whose step takes simulated time: when it began, and its plan; `None` when there is none.
    pub fn plan(&mut self) -> Option<(Time, StepPlan)> {
        let began = self.clock.now();
        self.core.plan(began).cloned().map(|plan| (began, plan))
    }

    /// The second half of such a turn.
    pub fn run(&mut self, plan: &StepPlan, began: Time) -> Result<News, DeviceFault> {
        self.executor.step(plan, &mut self.output)?;
        self.take_in(began, began)
    }

    /// After a turn without a plan.
    pub fn rest(&mut self) -> News {
        self.due = false;
        let load = self.core.load();
        // A core that has sequences and plans nothing for them would be stuck; the pulse shows it.
        match self.core.is_idle() {
            true => News::Idle(load),
            false => News::Load(load),
        }
    }

    /// Applies what the executor, at work since `start`, brought in a turn that began at `began`.
    fn take_in(&mut self, began: Time, start: Time) -> Result<News, DeviceFault> {
        let end = self.clock.now();
        let threads = self.executor.threads();
        let updates = self.core.apply(&self.output, end, threads)?;
        Ok(News::Step(StepNews {
            updates,
            stats: self.core.step_stats().clone(),
            load: self.core.load(),
            began,
            executor_time: end.since(start),
        }))
    }
}

/// The fault that a panic amounts to.
pub(super) fn panic_fault(kind: FaultKind, payload: &(dyn Any + Send)) -> DeviceFault {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    DeviceFault {
        kind,
        detail: format!("panicked: {}", text.unwrap_or("no message")),
    }
}
