//! Constrained sequences in the device core: they obey, alone and in company, from the beginning and when taken up again; and nobody waits
//! for their masks.

use crate::toy::{Outcome, ToyDevice, VOCAB, capacity, solo, work};
use ropeteam_engine::batching::BatchLimits;
use ropeteam_engine::constraint::{Constraint, ConstraintFailed, ConstraintState, TokenMask};
use ropeteam_engine::ids::{SeqId, TokenId};
use ropeteam_engine::work::{DeviceFinish, Work};
use std::sync::Arc;

/// The tokens may only rise, from one to the next, and end behind the highest.
#[derive(Clone, Copy, Debug)]
pub struct Rising {
    /// So often a mask is asked for before it is there.
    lag: u32,
    /// Tokens after which it cannot be followed.
    breaks_after: usize,
}

impl Rising {
    /// Whose masks are asked for `lag` times before they are there.
    pub fn late_by(lag: u32) -> Self {
        Rising {
            lag,
            breaks_after: usize::MAX,
        }
    }
}

const END: TokenId = TokenId(0);

#[derive(Debug)]
struct RisingState {
    of: Rising,
    last: TokenId,
    count: usize,
    asked: u32,
}

impl Constraint for Rising {
    fn begin(&self, output: &[TokenId]) -> Box<dyn ConstraintState> {
        Box::new(RisingState {
            of: *self,
            last: output.last().copied().unwrap_or(END),
            count: output.len(),
            asked: 0,
        })
    }

    fn source(&self) -> Option<Arc<str>> {
        None
    }
}

impl ConstraintState for RisingState {
    fn push(&mut self, id: TokenId) {
        (self.last, self.asked) = (id, 0);
        self.count += 1;
    }

    fn is_ready(&mut self) -> bool {
        self.asked += 1;
        self.asked > self.of.lag
    }

    fn mask(&mut self) -> Result<TokenMask, ConstraintFailed> {
        if self.count >= self.of.breaks_after {
            return Err(ConstraintFailed);
        }
        let higher: Vec<TokenId> = (self.last.0 + 1..VOCAB).map(TokenId).collect();
        Ok(TokenMask::of(if higher.is_empty() {
            &[END]
        } else {
            &higher
        }))
    }
}

fn rising(seq: u64, lag: u32) -> Work {
    Work {
        constraint: Some(Arc::new(Rising::late_by(lag))),
        end_ids: [END].into(),
        ..work(seq, &[1, 2, 3 + seq as u32], 100)
    }
}

fn device() -> ToyDevice {
    ToyDevice::new(BatchLimits::default(), capacity(64, 16), true)
}

fn ids(outcome: &Outcome) -> Vec<u32> {
    outcome.tokens.iter().map(|token| token.id.0).collect()
}

#[test]
fn a_constrained_sequence_obeys_and_ends_where_only_its_end_is_allowed() {
    for seq in 0..8 {
        let outcome = solo(&rising(seq, 0));
        let mut tokens = ids(&outcome);
        assert_eq!(
            (tokens.pop(), outcome.finish),
            (Some(0), Some(DeviceFinish::EndId))
        );
        assert!(
            tokens.is_sorted() && tokens.last() == Some(&(VOCAB - 1)),
            "{tokens:?}"
        );
    }
}

#[test]
fn company_and_late_masks_change_no_token() {
    let works: Vec<Work> = (0..6).map(|seq| rising(seq, seq as u32 % 3)).collect();
    let mut device = device();
    for work in &works {
        device.core.assign(work.clone()).unwrap();
    }
    device.core.assign(work(9, &[5, 6], 60)).unwrap();
    let outcomes = device.run().0;
    for work in &works {
        assert_eq!(
            outcomes[&work.seq],
            solo(&rising(work.seq.0, 0)),
            "{}",
            work.seq
        );
    }
}

#[test]
fn plain_sequences_do_not_wait_for_masks() {
    let mut device = device();
    device.core.assign(rising(1, 1000)).unwrap();
    device.core.assign(work(2, &[5, 6], 30)).unwrap();
    let mut steps = 0;
    loop {
        steps += 1;
        let updates = device.step().expect("the plain sequence goes on");
        device.core.check().unwrap();
        assert!(
            updates
                .iter()
                .all(|u| u.seq != SeqId(1) || u.tokens.is_empty())
        );
        if updates
            .iter()
            .any(|u| u.seq == SeqId(2) && u.finish.is_some())
        {
            break;
        }
    }
    assert_eq!(steps, 30, "one token in every step");
    // Alone, the constrained one may wait.
    assert_eq!(device.run().0[&SeqId(1)].tokens, solo(&rising(1, 0)).tokens);
}

#[test]
fn a_sequence_taken_up_anywhere_goes_on_with_the_same_tokens() {
    let whole = ids(&solo(&rising(3, 0)));
    for done in 1..whole.len() {
        let begun = Work {
            output: whole[..done].iter().copied().map(TokenId).collect(),
            ..rising(3, 0)
        };
        assert_eq!(ids(&solo(&begun)), whole[done..]);
    }
}

#[test]
fn guesses_and_log_probabilities_leave_the_tokens_as_they_are() {
    let expected = ids(&solo(&rising(4, 0)));
    let asked = Work {
        logprobs: Some(2),
        prompt_logprobs: Some(1),
        ..rising(4, 2)
    };
    let mut device = device();
    device.core.assign(asked).unwrap();
    device.core.assign(work(5, &[7, 7, 7, 7], 40)).unwrap();
    let outcomes = device.run().0;
    let outcome = &outcomes[&SeqId(4)];
    assert_eq!(ids(outcome), expected);
    assert_eq!(outcome.prompt_logprobs.as_ref().map(Vec::len), Some(3));
}

#[test]
fn what_cannot_be_followed_any_further_ends_as_such() {
    let broken = Rising {
        lag: 0,
        breaks_after: 2,
    };
    let outcome = solo(&Work {
        constraint: Some(Arc::new(broken)),
        ..rising(2, 0)
    });
    assert_eq!(outcome.tokens.len(), 2);
    assert_eq!(outcome.finish, Some(DeviceFinish::ConstraintFailed));
}
