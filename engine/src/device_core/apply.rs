//! Taking a step's result in: the next token of each sequence that computed its last one, and what was asked about it.

use super::sequence::Sequence;
use super::{DeviceCore, SeqUpdate};
use crate::executor::{DeviceFault, FaultKind};
use crate::ids::TokenId;
use crate::plan::{Chunk, ChunkResult, StepOutput, Want};
use crate::sampling::{BadLogits, Sampler, logprobs};
use crate::work::{DeviceFinish, PromptTokenLogprob, SampledToken};

impl DeviceCore {
    /// Applies `output` to the running sequences; those that end leave.
    pub(super) fn take_in(&mut self, output: &StepOutput) -> Result<Vec<SeqUpdate>, DeviceFault> {
        check_shape(&self.plan.chunks, output, self.capacity.vocab)?;
        let length_limit = self.capacity.length_limit().tokens;
        let mut updates = Vec::with_capacity(self.plan.chunks.len());
        for seq in &mut self.running {
            let Some(chunk) = seq.chunk.take() else {
                continue;
            };
            let planned = &self.plan.chunks[chunk];
            seq.computed += planned.tokens.len() as u32;
            seq.share_full_blocks(&mut self.kv, &mut self.tokens);
            let step = ChunkOutput {
                chunk: planned,
                result: output.results[chunk],
                output,
            };
            let token = step.take_in(seq, &mut self.sampler, length_limit);
            updates.extend(update(seq, token));
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
}

/// What there is to tell about a sequence after a step.
fn update(seq: &mut Sequence, token: Option<SampledToken>) -> Option<SeqUpdate> {
    let started = if seq.announced { None } else { seq.started };
    seq.announced = true;
    if started.is_none() && token.is_none() && seq.finish.is_none() {
        return None;
    }
    Some(SeqUpdate {
        seq: seq.work.seq,
        started,
        prompt_logprobs: token.as_ref().and_then(|_| seq.prompt_logprobs.take()),
        tokens: token.into_iter().collect(),
        finish: seq.finish,
    })
}

/// A chunk and what it got.
#[derive(Clone, Copy)]
struct ChunkOutput<'a> {
    chunk: &'a Chunk,
    result: ChunkResult,
    output: &'a StepOutput,
}

impl ChunkOutput<'_> {
    /// Notes the prompt's log-probabilities and, if the chunk reached the sequence's end, its next token.
    fn take_in(
        self,
        seq: &mut Sequence,
        sampler: &mut Sampler,
        length_limit: u32,
    ) -> Option<SampledToken> {
        let token = self.note_prompt(seq).and_then(|()| match seq.open() {
            0 => self.next_token(seq, sampler).map(Some),
            _ => Ok(None),
        });
        match token {
            Ok(Some(token)) => {
                seq.prefilling = false;
                seq.push(token.id, length_limit);
                Some(token)
            }
            Ok(None) => None,
            Err(_) => {
                seq.finish = Some(DeviceFinish::BadLogits);
                None
            }
        }
    }

    fn next_token(self, seq: &Sequence, sampler: &mut Sampler) -> Result<SampledToken, BadLogits> {
        let plain = |id| SampledToken {
            id,
            logprob: None,
            top: Vec::new(),
        };
        let row = match self.result {
            ChunkResult::Best(id) => return Ok(plain(id)),
            ChunkResult::Logits { first, count } => self.output.row(first + count - 1),
            ChunkResult::Nothing => return Err(BadLogits::NoCandidate),
        };
        let id = sampler.choose(row, seq.context())?;
        let Some(wanted) = seq.work.logprobs else {
            return Ok(plain(id));
        };
        let found = logprobs(row, id, wanted)?;
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
                top: found.top,
            });
        }
        Ok(())
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
    let wants_rows = chunks
        .iter()
        .any(|c| matches!(c.want, Want::LastLogits | Want::AllLogits));
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
            (Want::LastLogits, ChunkResult::Logits { first, count: 1 }) => has_rows(first, 1),
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
