//! How many guesses are worth trying for a sequence, learnt from how the last ones went.

use super::DRAFTS_MAX;

/// Guesses at the beginning, and after a pause.
const FIRST: u32 = 2;
/// Steps without a guess after guesses went wrong; twice as many each further time.
const PAUSE_FIRST: u32 = 8;
/// Longest pause, in steps.
const PAUSE_MAX: u32 = 128;

/// The state of one sequence. It changes how fast its tokens come, never which.
#[derive(Clone, Debug)]
pub struct Eagerness {
    drafts: u32,
    pause: u32,
    next_pause: u32,
}

impl Default for Eagerness {
    fn default() -> Self {
        Eagerness {
            drafts: FIRST,
            pause: 0,
            next_pause: PAUSE_FIRST,
        }
    }
}

impl Eagerness {
    /// How many tokens to guess in the coming step.
    pub fn drafts(&self) -> u32 {
        match self.pause {
            0 => self.drafts,
            _ => 0,
        }
    }

    /// Learns from a step with `drafted` guesses of which the first `accepted` were right. All right: twice as many next time; at
    /// least half: as many; fewer: half as many, and at none a pause.
    pub fn learn(&mut self, drafted: u32, accepted: u32) {
        if drafted == 0 {
            self.pause = self.pause.saturating_sub(1);
        } else if accepted == drafted {
            self.drafts = (self.drafts * 2).min(DRAFTS_MAX);
            self.next_pause = PAUSE_FIRST;
        } else if accepted * 2 < drafted {
            self.drafts /= 2;
            if self.drafts == 0 {
                self.drafts = FIRST;
                self.pause = self.next_pause;
                self.next_pause = (self.next_pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn right_guesses_make_bold() {
        let mut eagerness = Eagerness::default();
        for expected in [2, 4, 7, 7] {
            assert_eq!(eagerness.drafts(), expected);
            eagerness.learn(expected, expected);
        }
    }

    #[test]
    fn half_right_keeps_the_number() {
        let mut eagerness = Eagerness::default();
        eagerness.learn(2, 1);
        assert_eq!(eagerness.drafts(), 2);
    }

    #[test]
    fn wrong_guesses_end_in_ever_longer_pauses_and_are_tried_again() {
        let mut eagerness = Eagerness::default();
        for pause in [8, 16, 32, 64, 128, 128] {
            while eagerness.drafts() > 0 {
                eagerness.learn(eagerness.drafts(), 0);
            }
            let mut paused = 0;
            while eagerness.drafts() == 0 {
                eagerness.learn(0, 0);
                paused += 1;
            }
            assert_eq!(paused, pause);
        }
    }
}
