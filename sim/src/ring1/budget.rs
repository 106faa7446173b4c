//! What a step may hold: its budgets, and blocks that nobody else looks at while they are written.

use ropeteam_engine::batching::BatchLimits;
use ropeteam_engine::device_core::StepCounts;
use ropeteam_engine::executor::Capacity;
use ropeteam_engine::ids::BlockId;
use ropeteam_engine::plan::{Chunk, StepPlan, Want};
use std::collections::BTreeSet;

/// Checks a plan that was just made.
///
/// # Errors
/// The first bound that it exceeds.
pub(super) fn check(
    plan: &StepPlan,
    counts: &StepCounts,
    limits: &BatchLimits,
    capacity: &Capacity,
) -> Result<(), String> {
    let rows = plan.chunks.iter().map(rows).sum::<usize>() as u32;
    let drafted = counts.decode_tokens + counts.draft_tokens;
    let bounds = [
        ("tokens", plan.tokens() as u32, capacity.max_step_tokens),
        ("logits rows", rows, capacity.max_logits_rows),
        (
            "prompts",
            counts.prefill_seqs,
            limits.max_prefill_batch_size,
        ),
        (
            "prompt tokens",
            counts.prefill_tokens,
            limits.max_prefill_tokens,
        ),
        ("decodes", counts.decode_seqs, limits.max_decode_batch_size),
        (
            "guesses",
            drafted,
            counts.decode_seqs.max(limits.speculate_rows),
        ),
    ];
    if let Some((what, is, most)) = bounds.into_iter().find(|(_, is, most)| is > most) {
        return Err(format!("a step of {is} {what}, and {most} are allowed"));
    }
    let mut seqs = BTreeSet::new();
    for chunk in &plan.chunks {
        if !seqs.insert(chunk.seq) {
            return Err(format!("sequence {} is twice in a step", chunk.seq));
        }
        if chunk.want == Want::Nothing && chunk.tokens.len() > limits.chunk_tokens as usize {
            return Err(format!("a chunk of {} tokens", chunk.tokens.len()));
        }
        for block in written(chunk, capacity.block_size)? {
            let others = plan.chunks.iter().filter(|other| other.seq != chunk.seq);
            if let Some(other) = others
                .into_iter()
                .find(|other| other.blocks.contains(block))
            {
                let (seq, other) = (chunk.seq, other.seq);
                return Err(format!(
                    "sequence {seq} writes block {block}, which {other} reads"
                ));
            }
        }
    }
    Ok(())
}

fn rows(chunk: &Chunk) -> usize {
    match chunk.want {
        Want::Nothing | Want::Hidden => 0,
        Want::Argmax | Want::LastLogits | Want::BestLogits(_) => 1,
        Want::AllArgmax | Want::AllLogits => chunk.tokens.len(),
    }
}

/// The blocks that the chunk's tokens go to.
fn written(chunk: &Chunk, block_size: u32) -> Result<&[BlockId], String> {
    let first = chunk.start / block_size;
    let end = chunk.start + chunk.tokens.len() as u32;
    let blocks = chunk
        .blocks
        .get(first as usize..end.div_ceil(block_size) as usize);
    blocks
        .filter(|_| !chunk.tokens.is_empty())
        .ok_or_else(|| format!("sequence {} has no blocks for its tokens", chunk.seq))
}
