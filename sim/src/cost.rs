//! How long a step of a modelled device takes: a line through the number of its tokens.

use crate::faults::StepTime;
use ropeteam_engine::plan::StepPlan;
use std::sync::Arc;
use std::time::Duration;

/// Time of a step as a linear function of what it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// Whatever it holds.
    pub per_step: Duration,
    /// Per sequence in it (a decode reads the weights once for all of them, its own KV alone).
    pub per_sequence: Duration,
    /// Per token in it.
    pub per_token: Duration,
}

impl CostModel {
    /// Time of that step.
    pub fn of(&self, plan: &StepPlan) -> Duration {
        self.per_step
            + self.per_sequence * plan.chunks.len() as u32
            + self.per_token * plan.tokens() as u32
    }

    /// The same as a function to hand out.
    pub fn step_time(self) -> StepTime {
        Arc::new(move |plan| self.of(plan))
    }
}

impl Default for CostModel {
    /// About a 135 M model on two CPU cores: 8 ms a step, 1,500 prompt tokens a second.
    fn default() -> Self {
        CostModel {
            per_step: Duration::from_millis(8),
            per_sequence: Duration::from_micros(200),
            per_token: Duration::from_micros(660),
        }
    }
}
