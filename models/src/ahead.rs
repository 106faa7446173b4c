//! Steps ahead of what was asked for: while a device computes a step in which every sequence decodes and wants its best id, the next
//! one is enqueued behind it, with the ids that the first will find. If the plan that then comes is that step, its result is only
//! waited for; if sequences have left meanwhile, their rows were computed in vain; what else is in the plan is computed beside it. What
//! a step in vain wrote to the cache lies behind the end of its sequences, in blocks that nobody else had then, and whoever has them now
//! writes later.

use ropeteam_device::Answer;
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::plan::{Chunk, StepPlan, Want};

/// A step that is enqueued.
pub(crate) struct Underway {
    /// What it computes; the tokens are not known yet, unless it was asked for.
    pub plan: StepPlan,
    /// What will have been found.
    pub answer: Answer,
}

impl Underway {
    /// Per chunk of a plan the row that is its result: the very tokens at the same place, which came out of the step before.
    pub fn rows_for(
        &self,
        plan: &StepPlan,
        before: &[Option<u32>],
        block_size: u32,
    ) -> Vec<Option<usize>> {
        let row_of = |chunk: &Chunk| {
            let row = self
                .plan
                .chunks
                .iter()
                .position(|own| own.seq == chunk.seq)?;
            let own = &self.plan.chunks[row];
            let needed = (chunk.start / block_size) as usize + 1;
            let is_same = is_decode(chunk)
                && own.start == chunk.start
                && before.get(row).copied().flatten() == Some(chunk.tokens[0].0)
                && own.blocks.get(..needed) == chunk.blocks.get(..needed);
            is_same.then_some(row)
        };
        plan.chunks.iter().map(row_of).collect()
    }
}

/// One token, whose best successor is wanted.
pub(crate) fn is_decode(chunk: &Chunk) -> bool {
    chunk.tokens.len() == 1 && chunk.want == Want::Argmax
}

/// The step behind a plan: every sequence goes on by one token, for which it must have a block.
pub(crate) fn behind(plan: &StepPlan, block_size: u32, model_len: u32) -> Option<StepPlan> {
    let next = |chunk: &Chunk| {
        let start = chunk.start + 1;
        let has_room = start < model_len && chunk.blocks.len() > (start / block_size) as usize;
        (is_decode(chunk) && has_room).then(|| Chunk {
            tokens: vec![TokenId(0)],
            start,
            ..chunk.clone()
        })
    };
    let chunks: Option<Vec<Chunk>> = plan.chunks.iter().map(next).collect();
    chunks.map(|chunks| StepPlan { chunks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeteam_engine::ids::{BlockId, SeqId};

    fn chunk(seq: u64, start: u32, token: u32, blocks: &[u32]) -> Chunk {
        Chunk {
            seq: SeqId(seq),
            tokens: vec![TokenId(token)],
            start,
            blocks: blocks.iter().map(|block| BlockId(*block)).collect(),
            want: Want::Argmax,
        }
    }

    fn plan(chunks: &[Chunk]) -> StepPlan {
        StepPlan {
            chunks: chunks.to_vec(),
        }
    }

    #[test]
    fn a_step_is_followed_where_all_go_on_and_have_room() {
        let first = plan(&[chunk(1, 3, 9, &[5, 6]), chunk(2, 0, 9, &[7])]);
        let next = behind(&first, 4, 16).expect("room");
        assert_eq!((next.chunks[0].start, next.chunks[1].start), (4, 1));
        assert_eq!(
            behind(&next, 4, 16).map(|plan| plan.chunks[0].start),
            Some(5)
        );
        assert_eq!(behind(&first, 4, 4), None, "the model's length");
        assert_eq!(
            behind(&plan(&[chunk(1, 3, 9, &[5])]), 4, 16),
            None,
            "no block"
        );
        let mut other = chunk(1, 0, 9, &[5]);
        other.want = Want::LastLogits;
        assert_eq!(behind(&plan(&[other]), 4, 16), None, "no best id");
    }

    #[test]
    fn rows_are_those_of_the_same_tokens_at_the_same_place() {
        let ahead = Underway {
            plan: plan(&[chunk(1, 4, 0, &[5, 6]), chunk(2, 1, 0, &[7])]),
            answer: Answer { number: 0, rows: 2 },
        };
        let found = [Some(30), Some(40)];
        let rows = |chunks: &[Chunk]| ahead.rows_for(&plan(chunks), &found, 4);
        let same = [chunk(1, 4, 30, &[5, 6, 8]), chunk(2, 1, 40, &[7])];
        assert_eq!(rows(&same), [Some(0), Some(1)]);
        assert_eq!(rows(&same[1..]), [Some(1)], "the first has left");
        assert_eq!(rows(&[chunk(2, 1, 41, &[7])]), [None], "another token");
        assert_eq!(rows(&[chunk(2, 2, 40, &[7])]), [None], "another place");
        assert_eq!(rows(&[chunk(2, 1, 40, &[8])]), [None], "another block");
        assert_eq!(rows(&[chunk(3, 1, 40, &[7])]), [None], "another sequence");
    }
}
