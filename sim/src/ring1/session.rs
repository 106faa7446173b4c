//! The truth of a sequence, as a session holds it, and what it must become.

use super::winding::Winding;
use crate::dice::Dice;
use crate::executor::SimExecutor;
use ropeteam_engine::batching::BatchLimits;
use ropeteam_engine::constraint::Constraint;
use ropeteam_engine::device_core::{DeviceCore, SeqUpdate};
use ropeteam_engine::executor::{Capacity, StepExecutor};
use ropeteam_engine::ids::{Epoch, SeqId, TokenId};
use ropeteam_engine::plan::StepOutput;
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_engine::time::Time;
use ropeteam_engine::work::Work;
use std::sync::Arc;
use std::time::Duration;

/// Every device of a world is the same model.
pub(super) const MODEL_SEED: u64 = 7;

/// One sequence.
pub(super) struct Session {
    pub work: Work,
    /// It has ended for its client: complete, refused or aborted.
    pub ended: bool,
    /// What it generates alone.
    expected: Vec<TokenId>,
}

impl Session {
    pub fn new(seq: SeqId, dice: &mut Dice, now: Time) -> Self {
        // A few common beginnings, so that the prefix cache has work.
        let beginning = dice.below(3) as u32;
        let mut prompt = vec![TokenId(1 + beginning); dice.below(12) as usize];
        prompt.extend((0..=dice.below(16)).map(|_| TokenId(1 + dice.below(26) as u32)));
        let sampling = match dice.one_in(2) {
            true => SamplingParams::greedy(),
            false => SamplingParams {
                seed: dice.throw(),
                ..SamplingParams::default()
            },
        };
        let constraint = dice
            .one_in(5)
            .then(|| Arc::new(Winding) as Arc<dyn Constraint>);
        let patience = Duration::from_millis(50 + dice.below(600));
        let tenant = ["", "alice", "bob"][dice.below(3) as usize];
        let work = Work {
            seq,
            prompt: prompt.into(),
            output: Vec::new(),
            sampling: Arc::new(sampling),
            constraint,
            end_ids: Arc::from([TokenId(0)]),
            min_tokens: dice.below(4) as u32,
            max_tokens: 1 + dice.below(24) as u32,
            logprobs: None,
            prompt_logprobs: dice.one_in(8).then_some(1),
            pooling: None,
            cache_salt: dice.below(2),
            tenant: tenant.into(),
            priority: dice.below(2) as i32,
            arrived: now,
            queue_deadline: dice.one_in(4).then_some(now + patience),
        };
        Session {
            expected: alone(&work),
            work,
            ended: false,
        }
    }

    /// Takes a device's news in; `finish` ends it.
    pub fn take(&mut self, epoch: Epoch, update: &SeqUpdate) -> Result<(), String> {
        let seq = self.work.seq;
        let tokens = update.tokens.iter().map(|token| token.id);
        self.work.output.extend(tokens);
        if !self.expected.starts_with(&self.work.output) {
            return Err(format!(
                "sequence {seq} in life {epoch} became {:?}, alone it is {:?}",
                self.work.output, self.expected
            ));
        }
        match update.finish {
            None => Ok(()),
            Some(_) if self.work.output == self.expected => self.end(),
            Some(finish) => Err(format!("sequence {seq} ended early: {finish:?}")),
        }
    }

    pub fn end(&mut self) -> Result<(), String> {
        match std::mem::replace(&mut self.ended, true) {
            false => Ok(()),
            true => Err(format!("sequence {} ended twice", self.work.seq)),
        }
    }
}

/// What the sequence generates on a device of its own that has room for everything.
fn alone(work: &Work) -> Vec<TokenId> {
    let capacity = Capacity {
        blocks: 64,
        block_size: 4,
        max_model_len: 256,
        max_step_tokens: 256,
        max_logits_rows: 16,
        vocab: 28,
    };
    let mut core = DeviceCore::new(BatchLimits::default(), capacity.clone(), false);
    let mut executor = SimExecutor::new(capacity, MODEL_SEED);
    let mut output = StepOutput::default();
    let mut tokens = Vec::new();
    core.assign(work.clone()).expect("a large device takes it");
    while let Some(plan) = core.plan(Time::default()) {
        executor
            .step(plan, &mut output)
            .expect("nothing fails here");
        let updates = core.apply(&output, Time::default(), None);
        for update in updates.expect("the output fits the plan") {
            tokens.extend(update.tokens.iter().map(|token| token.id));
            if update.finish.is_some() {
                core.cancel(update.seq);
            }
        }
    }
    tokens
}
