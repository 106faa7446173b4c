//! One sequence on a device: its work, its block table, and how far it has been computed.

use super::pooling::PooledStates;
use super::update::SeqStarted;
use crate::constraint::{ConstraintFailed, ConstraintState, TokenMask};
use crate::ids::{BlockId, SeqId, TokenId};
use crate::kv::KvSpace;
use crate::plan::Want;
use crate::sampling::{Context, TokenCounts};
use crate::speculate::Eagerness;
use crate::time::Time;
use crate::work::{DeviceFinish, PromptTokenLogprob, SampledToken, Work};

/// Who goes first, lowest first. The same on every device, so that a sequence keeps its place after a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    priority: i32,
    arrived: Time,
    seq: SeqId,
}

#[derive(Debug)]
pub(super) struct Sequence {
    pub work: Work,
    pub rank: Rank,
    /// Lost its blocks and has not got new ones.
    pub preempted: bool,
    /// Its prompt (and replayed output) is not computed to the end yet.
    pub prefilling: bool,
    /// Blocks it holds, in order of position.
    pub table: Vec<BlockId>,
    /// Positions `0 .. computed` are in the pool.
    pub computed: u32,
    /// Full blocks at the front of the table that others can find.
    shared: u32,
    /// Its further blocks cannot be found by others because one before them cannot.
    unsharable: bool,
    /// Its chunk in the planned step.
    pub chunk: Option<usize>,
    /// Guesses at the end of that chunk.
    pub drafts: u32,
    /// How many of them were right.
    pub accepted: u32,
    /// What the step brought, until it is told.
    pub fresh: Vec<SampledToken>,
    /// How many guesses are worth trying.
    pub eagerness: Eagerness,
    /// Set when its first step was planned.
    pub started: Option<SeqStarted>,
    /// `started` was told.
    pub announced: bool,
    /// Why it is over; it leaves at the end of the step.
    pub finish: Option<DeviceFinish>,
    /// Collected so far; `None` if not wanted, or told already.
    pub prompt_logprobs: Option<Vec<PromptTokenLogprob>>,
    /// The vector of the prompt, until it is told.
    pub vector: Option<Vec<f32>>,
    /// Gathered so far, where a vector of the prompt is wanted.
    pub pooled: Option<PooledStates>,
    /// For the penalties; `None` if there are none.
    counts: Option<TokenCounts>,
    /// How far it has come in its constraint; `None` if it has none.
    constraint: Option<Box<dyn ConstraintState>>,
    /// What that allows next, once it is asked for.
    allowed: Option<TokenMask>,
}

impl Sequence {
    pub fn new(work: Work) -> Self {
        let counts = work
            .sampling
            .counts_tokens()
            .then(|| TokenCounts::new(&work.prompt, &work.output));
        // Output tells that the prompt's values were delivered by an earlier device.
        let wants_prompt = work.prompt_logprobs.is_some() && work.output.is_empty();
        Sequence {
            rank: Rank {
                priority: work.priority,
                arrived: work.arrived,
                seq: work.seq,
            },
            preempted: false,
            prefilling: true,
            table: Vec::new(),
            computed: 0,
            shared: 0,
            unsharable: false,
            chunk: None,
            drafts: 0,
            accepted: 0,
            fresh: Vec::new(),
            eagerness: Eagerness::default(),
            started: None,
            announced: false,
            finish: None,
            prompt_logprobs: wants_prompt.then(Vec::new),
            vector: None,
            pooled: work.pooling.map(PooledStates::new),
            counts,
            constraint: work.constraint.as_ref().map(|c| c.begin(&work.output)),
            allowed: None,
            work,
        }
    }

    /// Prompt and output tokens.
    pub fn len(&self) -> u32 {
        self.work.len_tokens() as u32
    }

    /// Tokens that are not computed yet.
    pub fn open(&self) -> u32 {
        self.len() - self.computed
    }

    /// Appends the tokens at `start .. end` to `tokens`.
    pub fn copy_tokens(&self, start: u32, end: u32, tokens: &mut Vec<TokenId>) {
        let (prompt, output) = (&self.work.prompt, &self.work.output);
        let (start, end) = (start as usize, end as usize);
        if start < prompt.len() {
            tokens.extend_from_slice(&prompt[start..end.min(prompt.len())]);
        }
        if end > prompt.len() {
            let first = start.saturating_sub(prompt.len());
            tokens.extend_from_slice(&output[first..end - prompt.len()]);
        }
    }

    /// Prompt tokens at the front that `other` has as well and could use once they are computed here.
    pub fn common_prompt(&self, other: &Sequence) -> u32 {
        if self.unsharable || self.work.cache_salt != other.work.cache_salt {
            return 0;
        }
        let pairs = self.work.prompt.iter().zip(other.work.prompt.iter());
        pairs.take_while(|(a, b)| a == b).count() as u32
    }

    /// Begins to run with the cached blocks `found` at the front of its table.
    pub fn begin(&mut self, found: &[BlockId], block_size: u32) {
        self.table.extend_from_slice(found);
        self.shared = found.len() as u32;
        self.computed = self.shared * block_size;
        self.unsharable = false;
        self.prefilling = true;
        self.preempted = false;
    }

    /// Gives all blocks back. What it has produced stays; what was computed for its prompt is asked for anew.
    pub fn preempt(&mut self, kv: &mut KvSpace) {
        kv.release(&mut self.table);
        self.preempted = true;
        self.computed = 0;
        self.shared = 0;
        if let Some(collected) = &mut self.prompt_logprobs {
            collected.clear();
        }
        if let Some(pooled) = &mut self.pooled {
            pooled.clear();
        }
    }

    /// What a chunk that ends at position `end` wants from the logits.
    pub fn want(&self, end: u32) -> Want {
        if let Some(pooled) = &self.pooled {
            return match pooled.needs_all() || end == self.len() {
                true => Want::Hidden,
                false => Want::Nothing,
            };
        }
        if self.prompt_logprobs.is_some() {
            return Want::AllLogits;
        }
        if end < self.len() {
            return Want::Nothing;
        }
        let sampling = &self.work.sampling;
        if self.work.logprobs.is_some() || !self.banned().is_empty() || self.constraint.is_some() {
            return Want::LastLogits;
        }
        match (sampling.is_plain_greedy(), sampling.best_that_decide()) {
            (true, _) => Want::Argmax,
            (false, Some(count)) => Want::BestLogits(count),
            (false, None) => Want::LastLogits,
        }
    }

    /// Whether something is wanted of every prompt token, so that none may come from the prefix cache.
    pub fn computes_all(&self) -> bool {
        let pools_all = self.pooled.as_ref().is_some_and(PooledStates::needs_all);
        self.prompt_logprobs.is_some() || pools_all
    }

    /// Whether its output has to obey a constraint.
    pub fn is_constrained(&self) -> bool {
        self.constraint.is_some()
    }

    /// Whether its next token can be chosen without waiting for what its constraint allows.
    pub fn can_choose_at_once(&mut self) -> bool {
        self.constraint.as_mut().is_none_or(|c| c.is_ready())
    }

    /// Gets what its constraint allows next.
    pub fn settle_allowed(&mut self) -> Result<(), ConstraintFailed> {
        if let Some(constraint) = &mut self.constraint {
            self.allowed = Some(constraint.mask()?);
        }
        Ok(())
    }

    /// How many tokens it would have guessed in the next step. The token behind the last right guess must still be one that it may have.
    /// Under a constraint there are none: the mask behind a guess would have to be waited for.
    pub fn drafts_wanted(&self, length_limit: u32) -> u32 {
        if self.is_constrained() {
            return 0;
        }
        let open_output = self.work.max_tokens - self.work.output.len() as u32;
        let open_length = length_limit - self.len();
        let most = open_output.min(open_length).saturating_sub(1);
        self.eagerness.drafts().min(most)
    }

    /// Tokens that must not come next.
    fn banned(&self) -> &[TokenId] {
        match self.work.output.len() < self.work.min_tokens as usize {
            true => &self.work.end_ids,
            false => &[],
        }
    }

    /// What the choice of its next token depends on.
    pub fn context(&self) -> Context<'_> {
        Context {
            params: &self.work.sampling,
            prompt: &self.work.prompt,
            output: &self.work.output,
            counts: self.counts.as_ref(),
            banned: self.banned(),
            allowed: self.allowed.as_ref(),
        }
    }

    /// Takes its next token; `length_limit` bounds prompt and output together.
    pub fn push(&mut self, id: TokenId, length_limit: u32) {
        self.work.output.push(id);
        if let Some(counts) = &mut self.counts {
            counts.push(id);
        }
        self.allowed = None;
        let complete = self.work.output.len() >= self.work.max_tokens as usize;
        if self.work.end_ids.contains(&id) {
            self.finish = Some(DeviceFinish::EndId);
        } else if complete || self.len() >= length_limit {
            self.finish = Some(DeviceFinish::Length);
        } else if let Some(constraint) = &mut self.constraint {
            constraint.push(id);
        }
    }

    /// Makes the blocks that are full now known to others. `tokens` is room for one block.
    pub fn share_full_blocks(&mut self, kv: &mut KvSpace, tokens: &mut Vec<TokenId>) {
        let block_size = kv.pool().block_size();
        while kv.caches_prefixes()
            && !self.unsharable
            && (self.shared + 1) * block_size <= self.computed
        {
            let start = self.shared * block_size;
            tokens.clear();
            self.copy_tokens(start, start + block_size, tokens);
            let salt = self.work.cache_salt;
            match kv.share(&mut self.table, self.shared as usize, tokens, salt) {
                true => self.shared += 1,
                false => self.unsharable = true,
            }
        }
    }
}
