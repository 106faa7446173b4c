//! A step plan as the device takes it: one row per token, with its position, its cache slot and its sequence's blocks.
//! Buffers are reused from step to step.

use ropeteam_device::{Rows, Segment};
use ropeteam_engine::plan::{Chunk, StepPlan, Want};

/// What a runner can hold; a plan beyond it is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepLimits {
    pub blocks: u32,
    pub block_size: u32,
    pub model_len: u32,
    pub step_tokens: u32,
    pub logits_rows: u32,
    /// Most best columns of a row that the device finds itself.
    pub highest: u32,
}

/// The rows of one step.
#[derive(Default)]
pub(crate) struct StepRows {
    /// Token ids, one per row.
    pub ids: Vec<u32>,
    /// Where the rows belong.
    pub rows: Rows,
    /// Rows that want anything of the logits: the first `best` of them their best id, the next so many best columns as `highest` has
    /// it, the others the logits row.
    pub wanted: Vec<u32>,
    /// See `wanted`.
    pub best: usize,
    /// See `wanted`.
    pub highest: Vec<usize>,
    /// Whether the hidden states of any row are wanted.
    pub hidden: bool,
    /// Segments of larger steps, kept for their block tables.
    spare: Vec<Segment>,
}

impl StepRows {
    /// Takes a plan in. The error says what of it is beyond the limits.
    pub fn fill(&mut self, plan: &StepPlan, limits: &StepLimits) -> Result<(), String> {
        self.ids.clear();
        self.rows.positions.clear();
        self.rows.slots.clear();
        self.resize_segments(plan.chunks.len());
        self.wanted.clear();
        self.hidden = false;
        for (index, chunk) in plan.chunks.iter().enumerate() {
            self.add_chunk(index, chunk, limits)?;
        }
        self.choose_wanted(plan, limits.highest);
        within("tokens in a step", self.ids.len(), limits.step_tokens)?;
        within(
            "logits rows in a step",
            self.wanted.len(),
            limits.logits_rows,
        )
    }

    fn resize_segments(&mut self, count: usize) {
        let segments = &mut self.rows.segments;
        self.spare
            .extend(segments.drain(count.min(segments.len())..));
        while segments.len() < count {
            segments.push(self.spare.pop().unwrap_or_default());
        }
    }

    fn add_chunk(
        &mut self,
        index: usize,
        chunk: &Chunk,
        limits: &StepLimits,
    ) -> Result<(), String> {
        let size = limits.block_size;
        let end = chunk.start as usize + chunk.tokens.len();
        within("positions of a sequence", end, limits.model_len)?;
        if chunk.tokens.is_empty() || chunk.blocks.len() * (size as usize) < end {
            return Err(format!(
                "sequence {}: {} tokens up to position {end} in {} blocks of {size}",
                chunk.seq,
                chunk.tokens.len(),
                chunk.blocks.len()
            ));
        }
        if let Some(block) = chunk.blocks.iter().find(|block| block.0 >= limits.blocks) {
            return Err(format!(
                "sequence {}: block {block} of {}",
                chunk.seq, limits.blocks
            ));
        }
        let segment = &mut self.rows.segments[index];
        segment.first_row = self.ids.len();
        segment.rows = chunk.tokens.len();
        segment.blocks.clear();
        segment
            .blocks
            .extend(chunk.blocks.iter().map(|block| block.0));
        for (position, token) in (chunk.start..).zip(&chunk.tokens) {
            let block = chunk.blocks[(position / size) as usize];
            self.ids.push(token.0);
            self.rows.positions.push(position);
            self.rows.slots.push(block.0 * size + position % size);
        }
        Ok(())
    }

    fn choose_wanted(&mut self, plan: &StepPlan, highest: u32) {
        let segments = self.rows.segments.iter().zip(&plan.chunks);
        let last = |segment: &Segment| (segment.first_row + segment.rows - 1) as u32;
        for (segment, chunk) in segments.clone() {
            match chunk.want {
                Want::Argmax => self.wanted.push(last(segment)),
                Want::AllArgmax => self.wanted.extend(segment.first_row as u32..=last(segment)),
                Want::Nothing | Want::LastLogits | Want::BestLogits(_) | Want::AllLogits => {}
                Want::Hidden => self.hidden = true,
            }
        }
        self.best = self.wanted.len();
        self.highest.clear();
        for (segment, chunk) in segments.clone() {
            if let Some(count) = highest_of(chunk.want, highest) {
                self.wanted.push(last(segment));
                self.highest.push(count);
            }
        }
        for (segment, chunk) in segments {
            match chunk.want {
                Want::Nothing | Want::Argmax | Want::AllArgmax | Want::Hidden => {}
                Want::BestLogits(_) if highest_of(chunk.want, highest).is_some() => {}
                Want::LastLogits | Want::BestLogits(_) => self.wanted.push(last(segment)),
                Want::AllLogits => self.wanted.extend(segment.first_row as u32..=last(segment)),
            }
        }
    }
}

/// How many best columns a chunk wants of a device that finds up to `most` of them; `None` if it wants something else, or more.
pub(crate) fn highest_of(want: Want, most: u32) -> Option<usize> {
    match want {
        Want::BestLogits(count) if count <= most => Some(count as usize),
        _ => None,
    }
}

fn within(what: &str, found: usize, limit: u32) -> Result<(), String> {
    if found > limit as usize {
        return Err(format!("{found} {what}, at most {limit} are possible"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeteam_engine::ids::{BlockId, SeqId, TokenId};

    const LIMITS: StepLimits = StepLimits {
        blocks: 8,
        block_size: 4,
        model_len: 16,
        step_tokens: 8,
        logits_rows: 6,
        highest: 4,
    };

    fn chunk(start: u32, tokens: &[u32], blocks: &[u32], want: Want) -> Chunk {
        Chunk {
            seq: SeqId(1),
            tokens: tokens.iter().map(|&id| TokenId(id)).collect(),
            start,
            blocks: blocks.iter().map(|&id| BlockId(id)).collect(),
            want,
        }
    }

    #[test]
    fn rows_know_their_slots_and_wanted_rows_come_best_first() {
        let plan = StepPlan {
            chunks: vec![
                chunk(3, &[10, 11], &[5, 2], Want::AllLogits),
                chunk(0, &[12], &[7], Want::Nothing),
                chunk(4, &[13], &[0, 1], Want::Argmax),
                chunk(0, &[14, 15], &[3], Want::LastLogits),
                chunk(2, &[16, 17], &[4], Want::AllArgmax),
            ],
        };
        let mut rows = StepRows::default();
        rows.fill(&plan, &LIMITS).unwrap();
        assert_eq!(rows.ids, [10, 11, 12, 13, 14, 15, 16, 17]);
        assert_eq!(rows.rows.positions, [3, 4, 0, 4, 0, 1, 2, 3]);
        assert_eq!(rows.rows.slots, [23, 8, 28, 4, 12, 13, 18, 19]);
        assert_eq!((rows.best, &rows.wanted[..]), (3, &[3, 6, 7, 0, 1, 5][..]));
        assert_eq!(
            rows.rows.segments[3],
            Segment {
                first_row: 4,
                rows: 2,
                blocks: vec![3]
            }
        );
        rows.fill(
            &StepPlan {
                chunks: plan.chunks[1..2].to_vec(),
            },
            &LIMITS,
        )
        .unwrap();
        assert_eq!(
            (rows.rows.segments.len(), rows.wanted.len(), rows.ids.len()),
            (1, 0, 1)
        );
    }

    #[test]
    fn rows_of_which_the_device_finds_the_best_come_before_whole_ones() {
        let plan = StepPlan {
            chunks: vec![
                chunk(0, &[1], &[0], Want::BestLogits(5)),
                chunk(0, &[2], &[1], Want::BestLogits(4)),
                chunk(0, &[3], &[2], Want::Argmax),
            ],
        };
        let mut rows = StepRows::default();
        rows.fill(&plan, &LIMITS).unwrap();
        assert_eq!(rows.wanted, [2, 1, 0]);
        assert_eq!((rows.best, &rows.highest[..]), (1, &[4][..]));
    }

    #[test]
    fn a_plan_beyond_the_limits_is_refused() {
        let refused = |chunks: Vec<Chunk>| {
            StepRows::default()
                .fill(&StepPlan { chunks }, &LIMITS)
                .unwrap_err()
        };
        assert!(refused(vec![chunk(0, &[], &[0], Want::Nothing)]).contains("0 tokens"));
        assert!(refused(vec![chunk(4, &[1], &[0], Want::Nothing)]).contains("1 blocks"));
        assert!(refused(vec![chunk(0, &[1], &[8], Want::Nothing)]).contains("block 8 of 8"));
        assert!(
            refused(vec![chunk(16, &[1], &[0, 1, 2, 3, 4], Want::Nothing)])
                .contains("17 positions")
        );
        assert!(refused(vec![chunk(0, &[1; 9], &[0, 1, 2], Want::Nothing)]).contains("9 tokens"));
        assert!(
            refused(vec![chunk(0, &[1; 7], &[0, 1], Want::AllLogits)]).contains("7 logits rows")
        );
    }
}
