//! How large a step may be and who goes first: the limits that an operator sets, and what they leave for the prompts of one step.
//! Which sequences take part is decided in `device_core`.

use crate::executor::Capacity;
use serde::{Deserialize, Serialize};

/// Limits of a device's steps. All are at least 1; a 0 counts as 1, or no prompt would ever begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchLimits {
    /// Most sequences that have a prefill chunk in one step.
    pub max_prefill_batch_size: u32,
    /// Most prefill tokens in one step.
    pub max_prefill_tokens: u32,
    /// Most sequences that run (hold blocks) at once, and so the most that decode in one step.
    pub max_decode_batch_size: u32,
    /// Who goes first, `support_select_batch` 0 or 1.
    pub select: SelectBatch,
    /// New sequences join at every step; otherwise a batch is formed, runs until all its members are done, then the next is formed.
    pub continuous_batching: bool,
    /// Most tokens of one sequence's prefill in one step; longer prompts are cut into chunks.
    pub chunk_tokens: u32,
    /// Steps that only decode are filled up to so many tokens with guesses of what comes next (`speculate`); 0: none. From some number
    /// of rows on a step takes longer with each further row, and then a guess costs more than it brings.
    pub speculate_rows: u32,
}

impl Default for BatchLimits {
    fn default() -> Self {
        BatchLimits {
            max_prefill_batch_size: 32,
            max_prefill_tokens: 8192,
            max_decode_batch_size: 64,
            select: SelectBatch::PrefillFirst,
            continuous_batching: true,
            chunk_tokens: 512,
            speculate_rows: 0,
        }
    }
}

/// Who goes first when prompts wait while sequences decode. Both keep going in every step; the question is how much of a step
/// prompts may take, and so how long a decode step may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectBatch {
    /// `support_select_batch: 0`. Prompts may fill a step up to `max_prefill_tokens`; once step times are known they may make a step with
    /// decodes 2.5 times as long as one without, and longer the more sequences wait for their first token: a crowd gets it soon, and
    /// running generations are hardly disturbed by a few.
    PrefillFirst,
    /// `support_select_batch: 1`. While anything decodes, all prompts of a step together get `chunk_tokens` less the decoding
    /// sequences, and at least one block, and may make the step 1.5 times as long: running generations are hardly disturbed.
    DecodeFirst,
}

impl SelectBatch {
    /// How many times as long as a step without prompts one with them may take, where `decoding` sequences decode (at least one) and
    /// `behind` have not had their first token.
    pub fn stretch(self, decoding: u32, behind: u32) -> f64 {
        match self {
            // A step is as long for all that decode, and what it saves those behind adds up along their queue.
            SelectBatch::PrefillFirst => {
                1.0 + 1.5 * (f64::from(behind).powi(2) / f64::from(decoding)).max(1.0)
            }
            SelectBatch::DecodeFirst => 1.5,
        }
    }
}

impl BatchLimits {
    /// Most sequences that hold blocks at once on a device of this `capacity`: each of them may need a token and a logits row
    /// in the same step.
    pub fn max_running(&self, capacity: &Capacity) -> u32 {
        self.max_decode_batch_size
            .min(capacity.max_step_tokens)
            .min(capacity.max_logits_rows)
            .max(1)
    }

    /// What a step in which `decoding` sequences decode has left for prompts.
    pub fn prefill_budget(&self, capacity: &Capacity, decoding: u32) -> PrefillBudget {
        let undisturbed = match self.select {
            SelectBatch::DecodeFirst if decoding > 0 => self
                .chunk_tokens
                .saturating_sub(decoding)
                .max(capacity.block_size),
            _ => u32::MAX,
        };
        let step_rest = capacity.max_step_tokens.saturating_sub(decoding);
        PrefillBudget {
            tokens: self
                .max_prefill_tokens
                .max(1)
                .min(step_rest)
                .min(undisturbed),
            sequences: self.max_prefill_batch_size.max(1),
            rows: capacity.max_logits_rows.saturating_sub(decoding),
            chunk_tokens: self.chunk_tokens.max(1),
        }
    }
}

/// What is left of a step for prompts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefillBudget {
    /// Tokens.
    pub tokens: u32,
    /// Sequences.
    pub sequences: u32,
    /// Logits rows.
    pub rows: u32,
    /// Most tokens of one sequence.
    pub chunk_tokens: u32,
}

impl PrefillBudget {
    /// Takes a chunk of a sequence that has `open` tokens left to compute and returns its length, 0 if nothing is left.
    /// The chunk that completes a prompt needs a logits row; with `all_rows` every token needs one.
    pub fn take(&mut self, open: u32, all_rows: bool) -> u32 {
        if self.sequences == 0 {
            return 0;
        }
        let mut len = open.min(self.chunk_tokens).min(self.tokens);
        if all_rows {
            len = len.min(self.rows);
        } else if len == open && self.rows == 0 {
            len = len.saturating_sub(1);
        }
        if len > 0 {
            self.sequences -= 1;
            self.tokens -= len;
            self.rows -= match (all_rows, len == open) {
                (true, _) => len,
                (false, completes) => u32::from(completes),
            };
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: Capacity = Capacity {
        blocks: 100,
        block_size: 16,
        max_model_len: 1000,
        max_step_tokens: 100,
        max_logits_rows: 10,
        vocab: 10,
    };

    fn limits(select: SelectBatch) -> BatchLimits {
        BatchLimits {
            max_prefill_batch_size: 3,
            max_prefill_tokens: 80,
            select,
            chunk_tokens: 32,
            ..BatchLimits::default()
        }
    }

    #[test]
    fn a_step_never_takes_more_than_its_limits() {
        let mut budget = limits(SelectBatch::PrefillFirst).prefill_budget(&CAPACITY, 5);
        assert_eq!(budget.take(500, false), 32);
        assert_eq!(budget.take(20, false), 20);
        assert_eq!(budget.take(40, false), 28);
        assert_eq!(budget.take(40, false), 0);
        let mut crowded = limits(SelectBatch::PrefillFirst).prefill_budget(&CAPACITY, 90);
        assert_eq!(crowded.take(500, false), 10);
    }

    #[test]
    fn decode_first_leaves_prompts_one_chunk_less_the_decoding_sequences_and_at_least_a_block() {
        let tokens = |decoding| {
            limits(SelectBatch::DecodeFirst)
                .prefill_budget(&CAPACITY, decoding)
                .tokens
        };
        assert_eq!(tokens(0), 80);
        assert_eq!(tokens(2), 30);
        assert_eq!(tokens(31), 16);
    }

    #[test]
    fn one_prompt_waits_for_decodes_and_a_crowd_does_not() {
        let stretch = |decoding, behind| SelectBatch::PrefillFirst.stretch(decoding, behind);
        assert_eq!(
            (stretch(1, 1), stretch(8, 1), stretch(8, 2)),
            (2.5, 2.5, 2.5)
        );
        assert_eq!((stretch(9, 6), stretch(1, 15)), (7.0, 338.5));
        assert_eq!(SelectBatch::DecodeFirst.stretch(1, 15), 1.5);
    }

    #[test]
    fn a_chunk_never_needs_more_logits_rows_than_there_are() {
        let mut budget = limits(SelectBatch::PrefillFirst).prefill_budget(&CAPACITY, 5);
        assert_eq!(budget.take(500, true), 5);
        assert_eq!(budget.take(20, false), 19);
        assert_eq!(budget.take(20, true), 0);
        assert_eq!(budget.take(1, false), 0);
    }

    #[test]
    fn every_running_sequence_finds_a_token_and_a_row() {
        let limits = limits(SelectBatch::PrefillFirst);
        assert_eq!(limits.max_running(&CAPACITY), 10);
    }
}
