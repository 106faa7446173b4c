//! Making a step: who decodes, who is preempted, who begins, and how much of each prompt is computed.
//!
//! Running sequences are served in the order of their rank. One that needs a block and finds none takes it from the last in rank,
//! which is computed again later; so the first in rank always gets on, and since every sequence fits the pool alone,
//! each is first some day. New sequences begin only while blocks are left for those that run.

use super::DeviceCore;
use super::sequence::Sequence;
use super::update::SeqStarted;
use crate::batching::PrefillBudget;
use crate::plan::{Chunk, Want};
use crate::time::Time;

impl DeviceCore {
    /// Fills `self.plan`.
    pub(super) fn make_plan(&mut self, now: Time) {
        self.stats.clear();
        self.spare_chunks.append(&mut self.plan.chunks);
        self.thin_out();
        let decode = self.decodes_in_next_step();
        if decode {
            self.grow_decoding();
        }
        let decoding = self.running.iter().filter(|seq| !seq.prefilling).count() as u32;
        let decoding = if decode { decoding } else { 0 };
        let mut budget = self.prefill_budget(decoding);
        self.admit(&budget);
        if decode {
            self.plan_decodes(decoding);
        }
        self.plan_prefills(&mut budget, now);
    }

    /// After the limits were lowered: those last in rank make room.
    fn thin_out(&mut self) {
        if !std::mem::take(&mut self.crowded) {
            return;
        }
        let max_running = self.limits.max_running(&self.capacity) as usize;
        while self.running.len() > max_running
            && let Some(last) = self.running.pop()
        {
            self.preempt(last);
        }
    }

    /// What a step in which `decoding` sequences decode has left for prompts: the limits, and what keeps the step from becoming too long
    /// for those that decode.
    fn prefill_budget(&self, decoding: u32) -> PrefillBudget {
        let mut budget = self.limits.prefill_budget(&self.capacity, decoding);
        if decoding > 0 {
            let prefilling = self.running.iter().filter(|seq| seq.prefilling).count();
            let behind = (prefilling + self.waiting.len()) as u32;
            let stretch = self.limits.select.stretch(decoding, behind);
            let tokens = self.pace.prefill_tokens(stretch);
            budget.tokens = budget.tokens.min(tokens.unwrap_or(u32::MAX));
        }
        budget
    }

    /// A static batch decodes only after all its prompts are computed.
    fn decodes_in_next_step(&self) -> bool {
        self.limits.continuous_batching || self.running.iter().all(|seq| !seq.prefilling)
    }

    /// Gets every decoding sequence the block its next position needs, preempting from the last in rank where none is left.
    fn grow_decoding(&mut self) {
        let mut at = 0;
        while at < self.running.len() {
            let seq = &mut self.running[at];
            let needed = self.kv.pool().blocks_for(seq.len() as usize) as usize;
            if seq.prefilling || seq.table.len() >= needed || self.kv.grow(&mut seq.table) {
                at += 1;
                continue;
            }
            let last = self
                .running
                .pop()
                .expect("the sequence that needs a block is running");
            self.preempt(last);
        }
        self.grow_ahead();
    }

    /// Gets decoding sequences the blocks of the tokens that an executor may compute before it is asked to, if there are such that
    /// hold nothing.
    fn grow_ahead(&mut self) {
        if self.lookahead == 0 {
            return;
        }
        for seq in self.running.iter_mut().filter(|seq| !seq.prefilling) {
            let wanted =
                self.kv
                    .pool()
                    .blocks_for((seq.len() + self.lookahead) as usize) as usize;
            while seq.table.len() < wanted
                && self.kv.pool().free() > 0
                && self.kv.grow(&mut seq.table)
            {}
        }
    }

    fn preempt(&mut self, mut seq: Sequence) {
        seq.preempt(&mut self.kv);
        self.stats.preempted.push(seq.work.seq);
        self.preemptions += 1;
        self.enqueue(seq);
    }

    /// Lets waiting sequences begin, in their order, as long as the limits and the pool have room.
    fn admit(&mut self, budget: &PrefillBudget) {
        let continuous = self.limits.continuous_batching;
        if !continuous && !self.running.is_empty() {
            return;
        }
        let max_running = self.limits.max_running(&self.capacity) as usize;
        let chunk = |seq: &Sequence| seq.open().min(budget.chunk_tokens);
        let prefilling = self.running.iter().filter(|seq| seq.prefilling);
        let mut sequences = prefilling.clone().count() as u32;
        let mut tokens: u32 = prefilling.map(chunk).sum();
        while self.running.len() < max_running && sequences < budget.sequences {
            // A static batch is formed at once, though its prompts may take several steps.
            if continuous && tokens >= budget.tokens {
                return;
            }
            let Some(at) = self.begin_first_waiting() else {
                return;
            };
            sequences += 1;
            tokens += chunk(&self.running[at]);
        }
    }

    /// Gives the first waiting sequence all blocks that its tokens so far need and puts it among the running ones; returns its
    /// place there. It goes on waiting if the pool has no room for it and for one more block of each running sequence, or if
    /// another one is about to compute the same.
    fn begin_first_waiting(&mut self) -> Option<usize> {
        let mut seq = self.waiting.pop_front()?;
        self.look_up(&seq);
        let found = self.found_blocks.len() as u32;
        if self.waits_for_neighbour(&seq, found * self.capacity.block_size) {
            self.waiting.push_front(seq);
            return None;
        }
        let needed = self.kv.pool().blocks_for(seq.len() as usize) - found;
        let headroom = self.running.len() as u32;
        if needed + headroom > self.kv.available_beside(&self.found_blocks) {
            self.waiting.push_front(seq);
            return None;
        }
        self.kv.acquire(&self.found_blocks);
        seq.begin(&self.found_blocks, self.capacity.block_size);
        for _ in 0..needed {
            let grown = self.kv.grow(&mut seq.table);
            assert!(grown, "as many blocks as were counted are available");
        }
        let at = self.running.partition_point(|other| other.rank < seq.rank);
        self.running.insert(at, seq);
        Some(at)
    }

    /// Finds the cached blocks of a sequence's tokens. One of which all prompt tokens are asked about must compute them all.
    fn look_up(&mut self, seq: &Sequence) {
        self.found_blocks.clear();
        if seq.computes_all() || !self.kv.caches_prefixes() {
            return;
        }
        self.tokens.clear();
        seq.copy_tokens(0, seq.len(), &mut self.tokens);
        self.kv
            .lookup(&self.tokens, seq.work.cache_salt, &mut self.found_blocks);
    }

    /// Whether a running sequence is about to compute most of what this one needs, beyond the `cached` tokens: then it is quicker
    /// to wait for those blocks than to compute them twice (several choices of one request, a common system prompt).
    fn waits_for_neighbour(&self, seq: &Sequence, cached: u32) -> bool {
        let may_hit = self.kv.caches_prefixes() && !seq.computes_all();
        if !may_hit || !self.limits.continuous_batching {
            return false;
        }
        let block_size = self.capacity.block_size;
        let saved = |other: &Sequence| {
            let common = other.common_prompt(seq).min(seq.len() - 1);
            (common / block_size * block_size).saturating_sub(cached)
        };
        let most = (seq.len() - cached).div_ceil(2);
        let prefilling = self.running.iter().filter(|other| other.prefilling);
        prefilling.map(saved).any(|saved| saved >= most)
    }

    fn plan_decodes(&mut self, decoding: u32) {
        let share = self.draft_share(decoding);
        for at in 0..self.running.len() {
            if self.running[at].prefilling {
                continue;
            }
            self.draft(at, share);
            self.push_chunk(at, 1);
            self.stats.counts.decode_tokens += 1;
            self.stats.counts.decode_seqs += 1;
            self.stats.counts.draft_tokens += self.drafts.len() as u32;
            self.stats.counts.draft_seqs += u32::from(!self.drafts.is_empty());
        }
        self.drafts.clear();
    }

    fn plan_prefills(&mut self, budget: &mut PrefillBudget, now: Time) {
        for at in 0..self.running.len() {
            let seq = &self.running[at];
            if !seq.prefilling {
                continue;
            }
            let tokens = budget.take(seq.open(), seq.prompt_logprobs.is_some());
            if tokens == 0 {
                break;
            }
            self.note_start(at, now);
            self.push_chunk(at, tokens);
            self.stats.counts.prefill_tokens += tokens;
            self.stats.counts.prefill_seqs += 1;
        }
    }

    /// Counts what the prefix cache gave a sequence whose first chunk since it began this is.
    fn note_start(&mut self, at: usize, now: Time) {
        let seq = &mut self.running[at];
        if seq.started.is_some() {
            return;
        }
        let cached_tokens = seq.computed.min(seq.work.prompt.len() as u32);
        seq.started = Some(SeqStarted {
            at: now,
            cached_tokens,
        });
        if self.kv.caches_prefixes() {
            self.stats.counts.prefix_queried_tokens += seq.len();
            self.stats.counts.prefix_hit_tokens += seq.computed;
        }
    }

    /// Appends a chunk of the next `tokens` tokens of running sequence number `at` to the plan, and of the guesses behind them. Its
    /// buffers were used before.
    fn push_chunk(&mut self, at: usize, tokens: u32) {
        let seq = &mut self.running[at];
        let (start, end) = (seq.computed, seq.computed + tokens);
        let mut chunk = self.spare_chunks.pop().unwrap_or_else(Chunk::empty);
        chunk.seq = seq.work.seq;
        chunk.start = start;
        seq.drafts = self.drafts.len() as u32;
        chunk.want = match (seq.want(end), seq.drafts) {
            (want, 0) => want,
            (Want::Argmax, _) => Want::AllArgmax,
            (_, _) => Want::AllLogits,
        };
        chunk.tokens.clear();
        seq.copy_tokens(start, end, &mut chunk.tokens);
        chunk.tokens.extend_from_slice(&self.drafts);
        chunk.blocks.clear();
        let last = end + seq.drafts + self.lookahead;
        let blocks = self.kv.pool().blocks_for(last as usize) as usize;
        let blocks = blocks.min(seq.table.len());
        chunk.blocks.extend_from_slice(&seq.table[..blocks]);
        seq.chunk = Some(self.plan.chunks.len());
        self.plan.chunks.push(chunk);
    }
}
