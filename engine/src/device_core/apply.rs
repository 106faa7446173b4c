//! Taking a step's result in: the next tokens of each sequence that computed its last one, and what was asked about them.

use super::sequence::Sequence;
use super::{DeviceCore, SeqUpdate};
use crate::executor::{DeviceFault, FaultKind, ForkJoin};
use crate::ids::TokenId;
use crate::plan::{Chunk, ChunkResult, StepOutput, Want};
use crate::sampling::{BadLogits, Sampler, logprobs, logprobs_of};
use crate::work::{DeviceFinish, PromptTokenLogprob, SampledToken};
use std::sync::Mutex;

/// Below so many logits rows the choices are made on one thread: to wake another takes as long.
const SHARED_FROM_ROWS: usize = 4;
/// Parts per thread, so that a late thread's share can be taken over by another.
const PARTS_PER_THREAD: usize = 2;

impl DeviceCore {
    /// Applies `output` to the running sequences; those that end leave.
    pub(super) fn take_in(
        &mut self,
        output: &StepOutput,
        threads: Option<&mut dyn ForkJoin>,
    ) -> Result<Vec<SeqUpdate>, DeviceFault> {
        check_shape(&self.plan.chunks, output, self.capacity.vocab)?;
        self.choose_tokens(output, threads);
        let mut updates = Vec::with_capacity(self.plan.chunks.len());
        for seq in &mut self.running {
            if seq.chunk.take().is_none() {
                continue;
            }
            seq.share_full_blocks(&mut self.kv, &mut self.tokens);
            self.stats.counts.accepted_tokens += seq.accepted;
            updates.extend(update(seq));
        }
        self.running.retain_mut(|seq| {
            let stays = seq.finish.is_none();
            if !stays {
                self.kv.release(&mut seq.table);
            }
            stays
        });
        Ok(updates)
    }

    /// Chooses the tokens of all sequences. Each choice depends on its own sequence alone, so they are made side by side.
    fn choose_tokens(&mut self, output: &StepOutput, threads: Option<&mut dyn ForkJoin>) {
        let step = StepResult {
            chunks: &self.plan.chunks,
            output,
            length_limit: self.capacity.length_limit().tokens,
            may_wait: !self
                .running
                .iter()
                .any(|seq| seq.chunk.is_some() && !seq.is_constrained()),
        };
        let rows = output.logits.len() / output.vocab.max(1);
        let threads = threads.filter(|threads| threads.threads() > 1 && rows >= SHARED_FROM_ROWS);
        let parts = threads
            .as_ref()
            .map_or(1, |t| t.threads() * PARTS_PER_THREAD);
        if self.samplers.len() < parts {
            self.samplers.resize_with(parts, Sampler::default);
        }
        let part_len = self.running.len().div_ceil(parts).max(1);
        match threads {
            None => step.take_in_all(&mut self.running, &mut self.samplers[0]),
            Some(threads) => {
                let parts = self.running.chunks_mut(part_len).zip(&mut self.samplers);
                let parts: Vec<_> = parts.map(Mutex::new).collect();
                threads.run(parts.len(), &|index| {
                    // Each part is taken by one task; a panic in another one ends the step anyway.
                    let mut part = parts[index].lock().expect("its task locks it once");
                    let (seqs, sampler) = &mut *part;
                    step.take_in_all(seqs, sampler);
                });
            }
        }
    }
}

/// What there is to tell about a sequence after a step.
fn update(seq: &mut Sequence) -> Option<SeqUpdate> {
    let tokens = std::mem::take(&mut seq.fresh);
    let started = if seq.announced { None } else { seq.started };
    seq.announced = true;
    if started.is_none() && tokens.is_empty() && seq.finish.is_none() {
        return None;
    }
    let prompt_logprobs = match tokens.is_empty() {
        true => None,
        false => seq.prompt_logprobs.take(),
    };
    Some(SeqUpdate {
        seq: seq.work.seq,
        started,
        prompt_logprobs,
        pooled: seq.vector.take(),
        tokens,
        finish: seq.finish,
    })
}

/// A step's plan and what it brought.
#[derive(Clone, Copy)]
struct StepResult<'a> {
    chunks: &'a [Chunk],
    output: &'a StepOutput,
    /// Bounds prompt and output together.
    length_limit: u32,
    /// All sequences of the step have constraints: none is delayed by waiting for what another one's allows.
    may_wait: bool,
}

impl<'a> StepResult<'a> {
    fn take_in_all(self, seqs: &mut [Sequence], sampler: &mut Sampler) {
        for seq in seqs {
            let Some(index) = seq.chunk else { continue };
            let chunk = ChunkOutput {
                chunk: &self.chunks[index],
                result: self.output.results[index],
                output: self.output,
            };
            if let Err(finish) = chunk.take_in(seq, sampler, self) {
                seq.finish = Some(finish);
            }
        }
    }
}

/// A chunk and what it got.
#[derive(Clone, Copy)]
struct ChunkOutput<'a> {
    chunk: &'a Chunk,
    result: ChunkResult,
    output: &'a StepOutput,
}

impl ChunkOutput<'_> {
    /// Notes the prompt's log-probabilities and, if the chunk reached the sequence's end, its next token, and the tokens behind that
    /// for as long as they are the guessed ones: the row behind a right guess is the very row that a step of its own would bring.
    fn take_in(
        self,
        seq: &mut Sequence,
        sampler: &mut Sampler,
        step: StepResult<'_>,
    ) -> Result<(), DeviceFinish> {
        let drafts = seq.drafts as usize;
        let known = self.chunk.tokens.len() - drafts;
        seq.computed += known as u32;
        seq.accepted = 0;
        self.note_prompt(seq)?;
        self.note_hidden(seq);
        if seq.open() > 0 {
            return Ok(());
        }
        seq.prefilling = false;
        if let Some(pooled) = &seq.pooled {
            seq.vector = Some(pooled.vector().ok_or(DeviceFinish::BadLogits)?);
            return Err(DeviceFinish::Pooled);
        }
        if !step.may_wait && seq.prompt_logprobs.is_none() && !seq.can_choose_at_once() {
            // Its last token is computed again in the next step, which costs others less than waiting for its mask.
            seq.computed -= 1;
            return Ok(());
        }
        seq.settle_allowed()?;
        for row in 0..=drafts {
            let token = self.next_token(row, seq, sampler)?;
            let guessed = self.chunk.tokens.get(known + row) == Some(&token.id);
            seq.push(token.id, step.length_limit);
            seq.fresh.push(token);
            seq.accepted += u32::from(guessed);
            if !guessed || seq.finish.is_some() {
                break;
            }
            seq.computed += 1;
        }
        seq.eagerness.learn(seq.drafts, seq.accepted);
        Ok(())
    }

    /// The token that follows the chunk's own tokens and its first `right` guesses.
    fn next_token(
        self,
        right: usize,
        seq: &Sequence,
        sampler: &mut Sampler,
    ) -> Result<SampledToken, BadLogits> {
        let plain = |id| SampledToken {
            id,
            logprob: None,
            top: Vec::new(),
        };
        let at = |first: usize, count: usize| first + count - 1 - seq.drafts as usize + right;
        let row = match self.result {
            ChunkResult::Best(id) => return Ok(plain(id)),
            ChunkResult::BestOfEach { first, count } => {
                let best = self.output.best[at(first, count)];
                return best.map(plain).ok_or(BadLogits::NoCandidate);
            }
            ChunkResult::Logits { first, count } => self.output.row(at(first, count)),
            ChunkResult::Candidates { first, len } => {
                let best = &self.output.candidates[first..first + len];
                return sampler.choose_among(best, seq.context()).map(plain);
            }
            ChunkResult::Nothing | ChunkResult::Hidden { .. } => {
                return Err(BadLogits::NoCandidate);
            }
        };
        let id = sampler.choose(row, seq.context())?;
        let Some(wanted) = seq.work.logprobs else {
            return Ok(plain(id));
        };
        let found = match seq.work.sampling.logprob_tokens.as_slice() {
            [] => logprobs(row, id, wanted)?,
            tokens => logprobs_of(row, id, tokens)?,
        };
        Ok(SampledToken {
            id,
            logprob: Some(found.logprob),
            top: found.top,
        })
    }

    /// Row number i of the chunk tells about the token after its token number i.
    fn note_prompt(self, seq: &mut Sequence) -> Result<(), BadLogits> {
        let Some(collected) = &mut seq.prompt_logprobs else {
            return Ok(());
        };
        let ChunkResult::Logits { first, count } = self.result else {
            return Ok(());
        };
        if self.chunk.start == 0 {
            collected.push(PromptTokenLogprob::default());
        }
        let following = seq.work.prompt.iter().skip(self.chunk.start as usize + 1);
        for (row, &id) in (first..first + count).zip(following) {
            let top = seq.work.prompt_logprobs.unwrap_or(0);
            let found = logprobs(self.output.row(row), id, top)?;
            collected.push(PromptTokenLogprob {
                logprob: Some(found.logprob),
                rank: Some(found.rank),
                top: found.top,
            });
        }
        Ok(())
    }
}

impl ChunkOutput<'_> {
    /// Notes the hidden states of the chunk's tokens.
    fn note_hidden(self, seq: &mut Sequence) {
        if let (Some(pooled), ChunkResult::Hidden { first, len }) = (&mut seq.pooled, self.result) {
            pooled.add(
                &self.output.hidden[first..first + len],
                self.chunk.tokens.len(),
            );
        }
    }
}

/// Checks that every chunk got what it wanted and that the rows exist.
fn check_shape(chunks: &[Chunk], output: &StepOutput, vocab: u32) -> Result<(), DeviceFault> {
    let broken = |detail: String| DeviceFault {
        kind: FaultKind::Operator,
        detail: format!("the executor's output does not fit its plan: {detail}"),
    };
    if output.results.len() != chunks.len() {
        let (results, chunks) = (output.results.len(), chunks.len());
        return Err(broken(format!("{results} results for {chunks} chunks")));
    }
    let wants_rows = chunks.iter().any(|c| {
        matches!(
            c.want,
            Want::LastLogits | Want::BestLogits(_) | Want::AllLogits
        )
    });
    if wants_rows && output.vocab != vocab as usize {
        return Err(broken(format!(
            "rows of {} logits, not {vocab}",
            output.vocab
        )));
    }
    let rows = output.logits.len() / output.vocab.max(1);
    let has_rows =
        |first: usize, count: usize| first.checked_add(count).is_some_and(|end| end <= rows);
    for (chunk, result) in chunks.iter().zip(&output.results) {
        let fits = match (chunk.want, *result) {
            (Want::Nothing | Want::Argmax, ChunkResult::Nothing) => true,
            (Want::Argmax, ChunkResult::Best(TokenId(id))) => id < vocab,
            (Want::AllArgmax, ChunkResult::BestOfEach { first, count }) => {
                let best = output.best.get(first..).and_then(|best| best.get(..count));
                let known = |best: &[Option<TokenId>]| best.iter().flatten().all(|id| id.0 < vocab);
                count == chunk.tokens.len() && best.is_some_and(known)
            }
            (Want::LastLogits | Want::BestLogits(_), ChunkResult::Logits { first, count: 1 }) => {
                has_rows(first, 1)
            }
            (Want::BestLogits(_), ChunkResult::Candidates { first, len }) => {
                let found = output
                    .candidates
                    .get(first..)
                    .and_then(|all| all.get(..len));
                found.is_some_and(|best| best.iter().all(|(id, _)| id.0 < vocab))
            }
            (Want::Hidden, ChunkResult::Hidden { first, len }) => {
                let end = first.checked_add(len);
                let rows = chunk.tokens.len();
                len >= rows && len % rows == 0 && end.is_some_and(|end| end <= output.hidden.len())
            }
            (Want::AllLogits, ChunkResult::Logits { first, count }) => {
                count == chunk.tokens.len() && has_rows(first, count)
            }
            _ => false,
        };
        if !fits {
            let (seq, want) = (chunk.seq, chunk.want);
            return Err(broken(format!(
                "sequence {seq} wanted {want:?} and got {result:?}"
            )));
        }
    }
    Ok(())
}
