//! Everything a device actor decides: which of its sequences run, what the next step holds, and which token follows.
//! The actor only carries plans to its executor and updates to the sessions.
//! Placement among several devices is the scheduler's business (`scheduler`).

mod apply;
mod drafts;
mod planner;
mod pooling;
mod report;
mod sequence;
mod update;

pub use report::{DeviceSnapshot, Load, SeqState, SeqView, StepCounts, StepStats};
pub use update::{SeqStarted, SeqUpdate};

use crate::batching::BatchLimits;
use crate::executor::{Capacity, DeviceFault, ForkJoin, LimitKind};
use crate::ids::{BlockId, SeqId, TokenId};
use crate::kv::KvSpace;
use crate::ledger::{BlockLedger, KnownBlock};
use crate::pace::{StepLoad, StepPace};
use crate::plan::{Chunk, StepOutput, StepPlan};
use crate::sampling::Sampler;
use crate::time::Time;
use crate::work::Work;
use sequence::Sequence;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The state of one device in one of its lives. A restart makes a new core.
///
/// The circle: [`plan`](Self::plan), run the plan, [`apply`](Self::apply). Works and cancellations may come in at any moment.
#[derive(Debug)]
pub struct DeviceCore {
    limits: BatchLimits,
    capacity: Capacity,
    kv: KvSpace,
    /// Sequences that hold blocks, by rank.
    running: Vec<Sequence>,
    /// Sequences that hold none: preempted ones first, each part by rank.
    waiting: VecDeque<Sequence>,
    /// One for each part of a step's choices that are made side by side.
    samplers: Vec<Sampler>,
    plan: StepPlan,
    stats: StepStats,
    pace: StepPace,
    planned_at: Time,
    in_flight: bool,
    /// Tokens beyond the next for which sequences get blocks early.
    lookahead: u32,
    /// More sequences may be running than the limits, which changed, allow.
    crowded: bool,
    last_step_at: Option<Time>,
    assigned: u64,
    preemptions: u64,
    prefix_hit_tokens: u64,
    prefix_queried_tokens: u64,
    /// Room that is used again: chunks of former plans, a sequence's tokens, guesses, blocks found by a lookup.
    spare_chunks: Vec<Chunk>,
    tokens: Vec<TokenId>,
    drafts: Vec<TokenId>,
    found_blocks: Vec<BlockId>,
}

/// Why a work was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum AssignError {
    /// It can never fit: prompt, output so far and one more token are over a limit.
    #[error("a sequence of {given} tokens is over the limit of {limit} tokens ({which})")]
    TooLong {
        /// Tokens it has, and one more.
        given: usize,
        /// Tokens possible.
        limit: usize,
        /// Which limit.
        which: LimitKind,
    },
    /// Its prompt is empty.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// Its output has `max_tokens` tokens already.
    #[error("the sequence is complete already")]
    Complete,
    /// The device has it already.
    #[error("sequence {0} is here already")]
    Duplicate(SeqId),
    /// It has to obey a constraint that cannot be told to another process, and the device runs in one.
    #[error("its constraint cannot be told to the device's process")]
    Constraint,
}

/// An invariant does not hold; for tests and for operators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("broken invariant: {0}")]
pub struct BrokenInvariant(pub String);

impl DeviceCore {
    /// A core with an empty pool. Where `capacity` is smaller than `limits`, it counts.
    pub fn new(limits: BatchLimits, capacity: Capacity, prefix_cache: bool) -> Self {
        DeviceCore {
            kv: KvSpace::new(capacity.blocks, capacity.block_size, prefix_cache),
            limits,
            capacity,
            running: Vec::new(),
            waiting: VecDeque::new(),
            samplers: Vec::new(),
            plan: StepPlan::default(),
            stats: StepStats::default(),
            pace: StepPace::default(),
            planned_at: Time::default(),
            in_flight: false,
            lookahead: 0,
            crowded: false,
            last_step_at: None,
            assigned: 0,
            preemptions: 0,
            prefix_hit_tokens: 0,
            prefix_queried_tokens: 0,
            spare_chunks: Vec::new(),
            tokens: Vec::new(),
            drafts: Vec::new(),
            found_blocks: Vec::new(),
        }
    }

    /// Lets sequences that decode have the blocks of so many further tokens, as long as nobody else needs them.
    pub fn look_ahead(&mut self, tokens: u32) {
        self.lookahead = tokens;
    }

    /// Takes over the blocks that an earlier life wrote down, whose memory is there as that life left it, and writes in `ledger` from
    /// now on. Returns how many they are.
    pub fn adopt(&mut self, known: Vec<KnownBlock>, ledger: Box<dyn BlockLedger>) -> usize {
        self.kv.adopt(known, ledger)
    }

    /// Changes the limits from the next step on. Sequences beyond a lower bound are preempted then, those last in rank.
    pub fn set_limits(&mut self, limits: BatchLimits) {
        self.limits = limits;
        self.crowded = true;
    }

    /// Takes a sequence, to begin it or to go on with it.
    ///
    /// # Errors
    /// See [`AssignError`]; nothing but the count of assignments was changed then.
    pub fn assign(&mut self, work: Work) -> Result<(), AssignError> {
        self.assigned += 1;
        let limit = self.capacity.length_limit();
        let given = work.len_tokens() + 1;
        if given > limit.tokens as usize {
            return Err(AssignError::TooLong {
                given,
                limit: limit.tokens as usize,
                which: limit.which,
            });
        }
        if work.prompt.is_empty() {
            return Err(AssignError::EmptyPrompt);
        }
        if work.output.len() >= work.max_tokens as usize {
            return Err(AssignError::Complete);
        }
        if self.sequences().any(|seq| seq.work.seq == work.seq) {
            return Err(AssignError::Duplicate(work.seq));
        }
        self.enqueue(Sequence::new(work));
        Ok(())
    }

    fn sequences(&self) -> impl Iterator<Item = &Sequence> {
        self.running.iter().chain(&self.waiting)
    }

    fn enqueue(&mut self, seq: Sequence) {
        let place = |seq: &Sequence| (!seq.preempted, seq.rank);
        let at = self
            .waiting
            .partition_point(|other| place(other) < place(&seq));
        self.waiting.insert(at, seq);
    }

    /// Drops a sequence; its blocks are free at once. Does nothing and returns false if it is not here.
    /// What a step in flight brings for it is dropped by [`apply`](Self::apply).
    pub fn cancel(&mut self, seq: SeqId) -> bool {
        if let Some(at) = self.running.iter().position(|other| other.work.seq == seq) {
            let mut cancelled = self.running.remove(at);
            self.kv.release(&mut cancelled.table);
            return true;
        }
        let waiting = self.waiting.iter().position(|other| other.work.seq == seq);
        waiting.is_some_and(|at| self.waiting.remove(at).is_some())
    }

    /// Makes the next step, `None` when there is nothing to do. It must be applied (or the core given up)
    /// before the next call.
    pub fn plan(&mut self, now: Time) -> Option<&StepPlan> {
        assert!(!self.in_flight, "the planned step was applied");
        self.make_plan(now);
        self.planned_at = now;
        self.prefix_hit_tokens += u64::from(self.stats.counts.prefix_hit_tokens);
        self.prefix_queried_tokens += u64::from(self.stats.counts.prefix_queried_tokens);
        self.in_flight = !self.plan.chunks.is_empty();
        self.in_flight.then_some(&self.plan)
    }

    /// What the last planned step holds.
    pub fn step_stats(&self) -> &StepStats {
        &self.stats
    }

    /// Takes the result of the planned step in: chooses tokens, on `threads` if there are any, and ends sequences.
    ///
    /// # Errors
    /// A `DeviceFault` when `output` does not fit the plan: the executor is broken, the core must be given up.
    pub fn apply(
        &mut self,
        output: &StepOutput,
        now: Time,
        threads: Option<&mut dyn ForkJoin>,
    ) -> Result<Vec<SeqUpdate>, DeviceFault> {
        assert!(self.in_flight, "a step was planned");
        let load = StepLoad {
            decode_seqs: self.stats.counts.decode_seqs,
            prefill_tokens: self.stats.counts.prefill_tokens,
        };
        self.pace.learn(load, now.since(self.planned_at));
        self.stats.counts.launches = output.host.launches;
        self.stats.counts.host_us = output.host.busy_us;
        let updates = self.take_in(output, threads)?;
        self.in_flight = false;
        self.last_step_at = Some(now);
        Ok(updates)
    }

    /// Whether no sequence is here, running or waiting.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// How full it is.
    pub fn load(&self) -> Load {
        let pool = self.kv.pool();
        let wanted = |seq: &Sequence| pool.blocks_for(seq.len() as usize + 1);
        Load {
            blocks_free: pool.free(),
            blocks_cached: pool.kept(),
            blocks_total: pool.total(),
            blocks_wanted: self.waiting.iter().map(wanted).sum(),
            running: self.running.len() as u32,
            waiting: self.waiting.len() as u32,
            assigned_total: self.assigned,
        }
    }

    /// A view for people.
    pub fn snapshot(&self) -> DeviceSnapshot {
        DeviceSnapshot {
            load: self.load(),
            last_step_at: self.last_step_at,
            preemptions_total: self.preemptions,
            prefix_hit_tokens_total: self.prefix_hit_tokens,
            prefix_queried_tokens_total: self.prefix_queried_tokens,
            sequences: self.sequences().map(SeqView::from).collect(),
        }
    }

    /// Checks every invariant, O(blocks + sequences).
    ///
    /// # Errors
    /// The first one that does not hold.
    pub fn check(&self) -> Result<(), BrokenInvariant> {
        let tables = self.sequences().map(|seq| seq.table.as_slice());
        self.kv.check(tables).map_err(BrokenInvariant)?;
        let holds = |holds: bool, what: &str| match holds {
            true => Ok(()),
            false => Err(BrokenInvariant(what.to_owned())),
        };
        let max_running = self.limits.max_running(&self.capacity) as usize;
        let few = self.running.len() <= max_running || self.crowded;
        holds(few, "too many sequences run")?;
        let by_rank = self.running.is_sorted_by_key(|seq| seq.rank);
        holds(
            by_rank,
            "running sequences are not in the order of their rank",
        )?;
        let is_covered = |seq: &Sequence| {
            self.kv.pool().blocks_for(seq.computed as usize) as usize <= seq.table.len()
        };
        holds(
            self.running.iter().all(is_covered),
            "a computed position has no block",
        )?;
        let none_held = self.waiting.iter().all(|seq| seq.table.is_empty());
        holds(none_held, "a waiting sequence holds blocks")
    }
}

impl From<&Sequence> for SeqView {
    fn from(seq: &Sequence) -> Self {
        let state = match (seq.table.is_empty(), seq.preempted, seq.prefilling) {
            (true, true, _) => SeqState::Preempted,
            (true, false, _) => SeqState::Waiting,
            (false, _, true) => SeqState::Prefill,
            (false, _, false) => SeqState::Decode,
        };
        SeqView {
            seq: seq.work.seq,
            state,
            prompt_len_tokens: seq.work.prompt.len() as u32,
            output_len_tokens: seq.work.output.len() as u32,
            computed_tokens: seq.computed,
            blocks: seq.table.len() as u32,
        }
    }
}
