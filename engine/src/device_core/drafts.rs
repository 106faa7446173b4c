//! Guesses in a step: how many a sequence may have, and the blocks they need. What is guessed is in `speculate`, whether it was right
//! shows when the step is applied.
//!
//! Guesses take nothing from anybody: they come only into steps without prompts, as far as rows, tokens, length and blocks are left over.
//! The K and V of a wrong one lie behind the sequence's end and are written over by what comes there.

use super::DeviceCore;
use crate::speculate::guess;

impl DeviceCore {
    /// Most guesses that each of the `decoding` sequences may have in the planned step.
    pub(super) fn draft_share(&self, decoding: u32) -> u32 {
        if decoding == 0 || self.running.len() as u32 > decoding {
            return 0;
        }
        let rows = self
            .limits
            .speculate_rows
            .min(self.capacity.max_step_tokens)
            .min(self.capacity.max_logits_rows);
        rows.saturating_sub(decoding) / decoding
    }

    /// Guesses at most `share` tokens of running sequence number `at` into `self.drafts` and gets the blocks for them.
    pub(super) fn draft(&mut self, at: usize, share: u32) {
        self.drafts.clear();
        if share == 0 {
            return;
        }
        let length_limit = self.capacity.length_limit().tokens;
        let seq = &self.running[at];
        let most = seq.drafts_wanted(length_limit).min(share);
        guess(&seq.work.prompt, &seq.work.output, most, &mut self.drafts);
        let room = self.room_behind(at, self.drafts.len() as u32);
        self.drafts.truncate(room as usize);
    }

    /// Positions behind the end of running sequence number `at`, up to `wanted`, that its table covers or is made to cover. A block is
    /// taken only while more are left than running sequences, so that no guess drives anybody out in the next step.
    fn room_behind(&mut self, at: usize, wanted: u32) -> u32 {
        let spare = self.running.len() as u32;
        let seq = &mut self.running[at];
        let needed = self.kv.pool().blocks_for((seq.len() + wanted) as usize) as usize;
        while seq.table.len() < needed && self.kv.pool().available() > spare {
            let grown = self.kv.grow(&mut seq.table);
            assert!(grown, "an available block can be had");
        }
        let covered = seq.table.len() as u32 * self.capacity.block_size;
        covered.saturating_sub(seq.len()).min(wanted)
    }
}
