//! What a device may still be given: the blocks and places it last reported, less what was promised since.
//! A report counts the assignments it covers, so a promise is taken off exactly once, whatever is on its way.

use crate::device_core::Load;
use crate::executor::Capacity;
use crate::ids::SeqId;
use std::collections::VecDeque;

/// The credits of one life of a device.
#[derive(Clone, Debug)]
pub struct Credits {
    block_size: u32,
    max_running: u32,
    load: Load,
    /// Assignments made in this life.
    promised_total: u64,
    /// Assignments that the last report does not cover, oldest first.
    open: VecDeque<Promise>,
}

#[derive(Clone, Copy, Debug)]
struct Promise {
    /// The how-many-eth assignment it is.
    number: u64,
    seq: SeqId,
    blocks: u32,
}

impl Credits {
    /// Credits of a device that just began and is empty.
    pub fn new(capacity: &Capacity, max_running: u32) -> Self {
        Credits {
            block_size: capacity.block_size,
            max_running,
            load: Load {
                blocks_free: capacity.blocks,
                blocks_total: capacity.blocks,
                ..Load::default()
            },
            promised_total: 0,
            open: VecDeque::new(),
        }
    }

    /// Changes how many sequences the device may hold; those it has stay.
    pub fn set_max_running(&mut self, max_running: u32) {
        self.max_running = max_running;
    }

    /// The last report.
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// Blocks that may be promised.
    pub fn blocks(&self) -> u32 {
        let open = self.open.iter().map(|promise| promise.blocks).sum();
        self.load.blocks_available().saturating_sub(open)
    }

    /// Sequences that are on the device or on their way to it.
    pub fn sequences(&self) -> u32 {
        self.load.running + self.load.waiting + self.open.len() as u32
    }

    /// Whether a sequence of `tokens` tokens can be given to the device: there is a place, and there are blocks for it with its
    /// next token and one more for each sequence that is there.
    pub fn cover(&self, tokens: usize) -> bool {
        let needed = self.blocks_for(tokens) + self.sequences();
        self.sequences() < self.max_running && needed <= self.blocks()
    }

    /// Takes note of an assignment of a sequence of `tokens` tokens.
    pub fn promise(&mut self, seq: SeqId, tokens: usize) {
        self.promised_total += 1;
        self.open.push_back(Promise {
            number: self.promised_total,
            seq,
            blocks: self.blocks_for(tokens),
        });
    }

    /// Takes a report.
    pub fn report(&mut self, load: Load) {
        self.load = load;
        self.open
            .retain(|promise| promise.number > load.assigned_total);
    }

    /// A sequence left the device, perhaps before any report covered it.
    pub fn release(&mut self, seq: SeqId) {
        self.open.retain(|promise| promise.seq != seq);
    }

    fn blocks_for(&self, tokens: usize) -> u32 {
        (tokens + 1).div_ceil(self.block_size as usize) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credits() -> Credits {
        let capacity = Capacity {
            blocks: 8,
            block_size: 16,
            max_model_len: 4096,
            max_step_tokens: 512,
            max_logits_rows: 64,
            vocab: 100,
        };
        Credits::new(&capacity, 3)
    }

    #[test]
    fn an_empty_device_takes_what_just_fits_and_then_nothing() {
        let mut credits = credits();
        assert!(credits.cover(127));
        assert!(!credits.cover(128));
        credits.promise(SeqId(1), 127);
        assert_eq!(credits.blocks(), 0);
        assert!(!credits.cover(1));
    }

    #[test]
    fn a_report_takes_off_exactly_the_promises_it_covers() {
        let mut credits = credits();
        credits.promise(SeqId(1), 20);
        credits.promise(SeqId(2), 40);
        let covers_one = Load {
            blocks_free: 6,
            blocks_total: 8,
            running: 1,
            assigned_total: 1,
            ..Load::default()
        };
        credits.report(covers_one);
        assert_eq!((credits.blocks(), credits.sequences()), (3, 2));
        credits.report(covers_one);
        assert_eq!((credits.blocks(), credits.sequences()), (3, 2));
        credits.release(SeqId(2));
        assert_eq!((credits.blocks(), credits.sequences()), (6, 1));
    }

    #[test]
    fn places_are_bounded_though_blocks_are_left() {
        let mut credits = credits();
        (1..=2).for_each(|seq| credits.promise(SeqId(seq), 1));
        assert!(credits.cover(1));
        credits.promise(SeqId(3), 1);
        assert!(!credits.cover(1));
    }

    #[test]
    fn a_report_below_what_is_promised_leaves_no_credit_rather_than_a_debt() {
        let mut credits = credits();
        credits.promise(SeqId(1), 60);
        credits.report(Load {
            blocks_total: 8,
            blocks_free: 2,
            ..Load::default()
        });
        assert_eq!(credits.blocks(), 0);
    }
}
