//! A toy executor for the engine's tests. Its "KV" of a position is a hash over all tokens up to there, read back through the block
//! table; the logits are a function of it. So a block that is shared wrongly, written twice or read too early changes the tokens.

use ropeteam_engine::batching::BatchLimits;
use ropeteam_engine::device_core::{DeviceCore, SeqUpdate, StepCounts};
use ropeteam_engine::executor::Capacity;
use ropeteam_engine::ids::{BlockId, SeqId, TokenId};
use ropeteam_engine::ledger::{BlockLedger, KnownBlock};
use ropeteam_engine::plan::{Chunk, ChunkResult, StepOutput, StepPlan, Want};
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_engine::time::Time;
use ropeteam_engine::work::{DeviceFinish, PromptTokenLogprob, SampledToken, Work};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const VOCAB: u32 = 24;

pub fn capacity(blocks: u32, block_size: u32) -> Capacity {
    Capacity {
        blocks,
        block_size,
        max_model_len: 4096,
        max_step_tokens: 512,
        max_logits_rows: 64,
        vocab: VOCAB,
    }
}

/// A plain greedy work that arrived at second `seq`.
pub fn work(seq: u64, prompt: &[u32], max_tokens: u32) -> Work {
    Work {
        seq: SeqId(seq),
        prompt: prompt.iter().copied().map(TokenId).collect(),
        output: Vec::new(),
        sampling: SamplingParams::greedy().into(),
        constraint: None,
        end_ids: [].into(),
        min_tokens: 0,
        max_tokens,
        logprobs: None,
        prompt_logprobs: None,
        pooling: None,
        cache_salt: 0,
        tenant: "".into(),
        priority: 0,
        arrived: Time(Duration::from_secs(seq)),
        queue_deadline: None,
    }
}

pub struct ToyExecutor {
    block_size: u32,
    vocab: usize,
    kv: Vec<u64>,
    /// Added to the logit of one token that depends on the last one alone: so much the toy repeats itself.
    pub habit: f32,
}

impl ToyExecutor {
    pub fn new(capacity: &Capacity) -> Self {
        ToyExecutor {
            block_size: capacity.block_size,
            vocab: capacity.vocab as usize,
            kv: vec![0; (capacity.blocks * capacity.block_size) as usize],
            habit: 0.0,
        }
    }

    pub fn step(&mut self, plan: &StepPlan, output: &mut StepOutput) {
        output.begin(self.vocab);
        for chunk in &plan.chunks {
            let states: Vec<State> = (0..chunk.tokens.len())
                .map(|at| State {
                    hash: self.compute(chunk, at),
                    last: chunk.tokens[at],
                })
                .collect();
            let last = *states.last().expect("a chunk has tokens");
            let (first_row, first_best) = (output.logits.len() / self.vocab, output.best.len());
            let count = states.len();
            let result = match chunk.want {
                Want::Nothing => ChunkResult::Nothing,
                Want::Argmax => ChunkResult::Best(self.best(last)),
                Want::AllArgmax => {
                    let best = states.iter().map(|&state| Some(self.best(state)));
                    output.best.extend(best);
                    ChunkResult::BestOfEach {
                        first: first_best,
                        count,
                    }
                }
                Want::LastLogits | Want::BestLogits(_) => {
                    self.push_row(last, output);
                    ChunkResult::Logits {
                        first: first_row,
                        count: 1,
                    }
                }
                Want::Hidden => {
                    let first = output.hidden.len();
                    let row = |state: &State| [0, 1, 2, 3].map(|i| logit(state.hash, i));
                    output.hidden.extend(states.iter().flat_map(row));
                    let len = output.hidden.len() - first;
                    ChunkResult::Hidden { first, len }
                }
                Want::AllLogits => {
                    states
                        .iter()
                        .for_each(|&state| self.push_row(state, output));
                    ChunkResult::Logits {
                        first: first_row,
                        count,
                    }
                }
            };
            output.results.push(result);
        }
    }

    fn push_row(&self, state: State, output: &mut StepOutput) {
        let row = (0..self.vocab).map(|token| self.logit(state, token));
        output.logits.extend(row);
    }

    fn logit(&self, state: State, token: usize) -> f32 {
        let usual = (state.last.0 as usize * 5 + 3) % self.vocab;
        logit(state.hash, token) + if token == usual { self.habit } else { 0.0 }
    }

    fn compute(&mut self, chunk: &Chunk, at: usize) -> u64 {
        let position = chunk.start + at as u32;
        let before = match position {
            0 => 1,
            position => self.kv[self.slot(chunk, position - 1)],
        };
        let hash = mix(before, u64::from(chunk.tokens[at].0));
        let slot = self.slot(chunk, position);
        self.kv[slot] = hash;
        hash
    }

    fn slot(&self, chunk: &Chunk, position: u32) -> usize {
        let block = chunk.blocks[(position / self.block_size) as usize];
        (block.0 * self.block_size + position % self.block_size) as usize
    }

    fn best(&self, state: State) -> TokenId {
        let logit = |token| self.logit(state, token);
        let better = |best: usize, token: usize| match logit(token) > logit(best) {
            true => token,
            false => best,
        };
        TokenId((0..self.vocab).fold(0, better) as u32)
    }
}

/// What the logits behind a token depend on.
#[derive(Clone, Copy)]
struct State {
    hash: u64,
    last: TokenId,
}

fn mix(a: u64, b: u64) -> u64 {
    let mixed = (a ^ b.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ (mixed >> 29)
}

fn logit(hash: u64, token: usize) -> f32 {
    (mix(hash, token as u64 + 1) >> 40) as f32 / 3e6
}

/// All that a sequence brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub tokens: Vec<SampledToken>,
    pub prompt_logprobs: Option<Vec<PromptTokenLogprob>>,
    pub pooled: Option<Vec<f32>>,
    pub finish: Option<DeviceFinish>,
}

/// Collects updates by sequence and checks that nothing comes after a sequence's end.
#[derive(Default)]
pub struct Outcomes(pub HashMap<SeqId, Outcome>);

impl Outcomes {
    pub fn add(&mut self, updates: Vec<SeqUpdate>) {
        for update in updates {
            let outcome = self.0.entry(update.seq).or_default();
            assert_eq!(outcome.finish, None, "{} goes on after its end", update.seq);
            outcome.tokens.extend(update.tokens);
            outcome.finish = update.finish;
            outcome.pooled = outcome.pooled.take().or(update.pooled);
            if let Some(values) = update.prompt_logprobs {
                assert_eq!(
                    outcome.tokens.len(),
                    1,
                    "prompt values come with the first token"
                );
                assert!(
                    outcome.prompt_logprobs.replace(values).is_none(),
                    "they come once"
                );
            }
        }
    }
}

/// A core and its executor.
pub struct ToyDevice {
    pub core: DeviceCore,
    pub executor: ToyExecutor,
    output: StepOutput,
}

impl ToyDevice {
    pub fn new(limits: BatchLimits, capacity: Capacity, prefix_cache: bool) -> Self {
        ToyDevice {
            executor: ToyExecutor::new(&capacity),
            core: DeviceCore::new(limits, capacity, prefix_cache),
            output: StepOutput::default(),
        }
    }

    /// One step, `None` if there is nothing to do; `in_flight` is called while the executor "runs".
    pub fn step_with(
        &mut self,
        check: impl FnOnce(&StepPlan),
        in_flight: impl FnOnce(&mut DeviceCore),
    ) -> Option<Vec<SeqUpdate>> {
        let plan = self.core.plan(Time::default())?;
        check(plan);
        self.executor.step(plan, &mut self.output);
        in_flight(&mut self.core);
        let updates = self.core.apply(&self.output, Time::default(), None);
        Some(updates.expect("the toy's output fits the plan"))
    }

    /// One step that is planned at second `now` and done at the one that `done_at` says; false if there is nothing to do.
    pub fn step_at(&mut self, now: f64, done_at: impl FnOnce(&StepCounts) -> f64) -> bool {
        let time = |seconds| Time(Duration::from_secs_f64(seconds));
        let Some(plan) = self.core.plan(time(now)) else {
            return false;
        };
        self.executor.step(plan, &mut self.output);
        let done = time(done_at(&self.core.step_stats().counts));
        let updates = self.core.apply(&self.output, done, None);
        updates.expect("the toy's output fits the plan");
        true
    }

    /// The device is cut off in the middle of a step, and its next life finds the memory as it is then. Returns that, and how many
    /// blocks it took over.
    pub fn cut_off(
        mut self,
        limits: BatchLimits,
        capacity: Capacity,
        ledger: &Ledger,
    ) -> (Self, usize) {
        if let Some(plan) = self.core.plan(Time::default()) {
            let mut half = plan.clone();
            half.chunks.truncate(plan.chunks.len().div_ceil(2));
            self.executor.step(&half, &mut self.output);
        }
        self.core = DeviceCore::new(limits, capacity, true);
        let taken_over = ledger.hand_to(&mut self.core);
        self.core.check().expect("the invariants hold");
        (self, taken_over)
    }

    pub fn step(&mut self) -> Option<Vec<SeqUpdate>> {
        self.step_with(|_| (), |_| ())
    }

    /// Runs until there is nothing to do; returns what came.
    pub fn run(&mut self) -> Outcomes {
        let mut outcomes = Outcomes::default();
        while let Some(updates) = self.step() {
            outcomes.add(updates);
            self.core.check().expect("the invariants hold");
        }
        outcomes
    }
}

/// A ledger that outlives its device.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Mutex<BTreeMap<BlockId, KnownBlock>>>);

impl Ledger {
    /// Gives a new core what is written here. Returns how many blocks it took over.
    pub fn hand_to(&self, core: &mut DeviceCore) -> usize {
        let known = self.0.lock().unwrap().values().cloned().collect();
        core.adopt(known, Box::new(self.clone()))
    }
}

impl Ledger {
    /// What is written here.
    pub fn entries(&self) -> Vec<KnownBlock> {
        self.0.lock().unwrap().values().cloned().collect()
    }

    /// Another one with the same entries.
    pub fn copy(&self) -> Self {
        Ledger(Arc::new(Mutex::new(self.0.lock().unwrap().clone())))
    }
}

impl BlockLedger for Ledger {
    fn enter(&mut self, known: &KnownBlock) {
        let before = self.0.lock().unwrap().insert(known.block, known.clone());
        assert_eq!(before, None, "an entry is struck before there is another");
    }

    fn strike(&mut self, block: BlockId) {
        self.0.lock().unwrap().remove(&block);
    }
}

/// What the work brings on a large device of its own without any cache.
pub fn solo(work: &Work) -> Outcome {
    solo_with(work, 0.0)
}

/// The same on a device with that habit.
pub fn solo_with(work: &Work, habit: f32) -> Outcome {
    let mut device = ToyDevice::new(BatchLimits::default(), capacity(256, 16), false);
    device.executor.habit = habit;
    device.core.assign(work.clone()).expect("it fits");
    device.run().0.remove(&work.seq).expect("it ran")
}
