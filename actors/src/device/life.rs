//! What a device holds during one life, and one turn of its circle: plan a step, run it, apply its result.

use crate::clock::Clock;
use crate::messages::Progress;
use actix::Recipient;
use ropeteam_engine::device_core::{DeviceCore, Load, SeqUpdate};
use ropeteam_engine::executor::{DeviceFault, StepExecutor};
use ropeteam_engine::ids::SeqId;
use ropeteam_engine::plan::{StepOutput, StepPlan};
use ropeteam_engine::time::Time;
use std::collections::HashMap;
use std::time::Duration;

/// The core, the executor and where the news goes.
pub(super) struct Life {
    pub core: DeviceCore,
    pub executor: Box<dyn StepExecutor>,
    pub output: StepOutput,
    pub routes: HashMap<SeqId, Route>,
    pub reported: Load,
}

/// Where the news of a sequence goes.
pub(super) struct Route {
    pub session: Recipient<Progress>,
    pub generated: u32,
}

/// A step that went well.
pub(super) struct Turn {
    pub updates: Vec<SeqUpdate>,
    pub began: Time,
    pub executor_time: Duration,
}

impl Life {
    pub fn new(core: DeviceCore, executor: Box<dyn StepExecutor>) -> Self {
        Life {
            reported: core.load(),
            core,
            executor,
            output: StepOutput::default(),
            routes: HashMap::new(),
        }
    }

    /// One turn of the circle; `None` when there is nothing to do.
    pub fn plan_and_run(&mut self, clock: Clock) -> Result<Option<Turn>, DeviceFault> {
        let began = clock.now();
        let Some(plan) = self.core.plan(began) else {
            return Ok(None);
        };
        let start = clock.now();
        self.executor.step(plan, &mut self.output)?;
        let end = clock.now();
        let updates = self.core.apply(&self.output, end)?;
        Ok(Some(Turn {
            updates,
            began,
            executor_time: end.since(start),
        }))
    }

    /// The second half of a turn whose plan was made at `began`.
    pub fn run(&mut self, plan: &StepPlan, began: Time, clock: Clock) -> Result<Turn, DeviceFault> {
        self.executor.step(plan, &mut self.output)?;
        let end = clock.now();
        let updates = self.core.apply(&self.output, end)?;
        Ok(Turn {
            updates,
            began,
            executor_time: end.since(began),
        })
    }
}
