//! Whether a worker is asked to join jobs. A worker whose core somebody else wants is taken off it in the middle of a task, for
//! milliseconds, and everybody waits. Once that costs more than the worker brings, it is asked for short stays only, with rests in
//! between: the other one gets its share of the core during the rests, so the system has little reason to interrupt a stay. Stays
//! grow again while they go well.
//!
//! A plain state machine: time comes in as an argument, counted from any fixed moment.

use std::time::Duration;

/// A worker may keep others waiting for one part in so many of the time.
const TOLERATED_PART: u32 = 4;
/// How far a worker that is always asked may go beyond that.
const TOLERATED: Duration = Duration::from_millis(6);
/// The same of one that is asked for stays: less than one turn of somebody else on its core.
const TOLERATED_IN_STAYS: Duration = Duration::from_millis(2);
/// The first stay of a worker that kept others waiting too long, and the first rest.
const SHORT: Duration = Duration::from_millis(1);
/// Rests do not grow beyond this.
const LONGEST_REST: Duration = Duration::from_millis(16);
/// A worker whose stays have grown beyond this stays for good.
const LONGEST_STAY: Duration = Duration::from_millis(8);
/// Stays in a row that go well before they grow.
const GOOD_STAYS: u32 = 4;

/// How one worker has attended so far.
#[derive(Debug)]
pub(super) struct Attendance {
    state: State,
    stay: Duration,
    rest: Duration,
    good_stays: u32,
    /// Time lost in waiting for it, less what is tolerated, as it stood at `lost_at`.
    lost: Duration,
    lost_at: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Always,
    StaysUntil(Duration),
    RestsUntil(Duration),
}

impl Attendance {
    pub(super) fn new() -> Self {
        Self {
            state: State::Always,
            stay: SHORT,
            rest: SHORT,
            good_stays: 0,
            lost: Duration::ZERO,
            lost_at: Duration::ZERO,
        }
    }

    /// Whether it stays without an end in sight: `invited` would only say yes.
    pub(super) fn is_trusted(&self) -> bool {
        self.state == State::Always
    }

    /// Whether the worker shall join a job that starts now.
    pub(super) fn invited(&mut self, now: Duration) -> bool {
        match self.state {
            State::Always => true,
            State::StaysUntil(end) if now < end => true,
            State::StaysUntil(_) => {
                self.stay_went_well(now);
                self.is_trusted()
            }
            State::RestsUntil(end) if now < end => false,
            State::RestsUntil(_) => {
                self.state = State::StaysUntil(now + self.stay);
                true
            }
        }
    }

    /// The worker kept a job waiting that is over now, for so long.
    pub(super) fn was_late(&mut self, now: Duration, waited: Duration) {
        let forgiven = now.saturating_sub(self.lost_at) / TOLERATED_PART;
        self.lost = self.lost.saturating_sub(forgiven) + waited;
        self.lost_at = now;
        let tolerated = if self.is_trusted() {
            TOLERATED
        } else {
            TOLERATED_IN_STAYS
        };
        if self.lost > tolerated {
            self.lost = Duration::ZERO;
            self.restrict(now);
        }
    }

    fn restrict(&mut self, now: Duration) {
        // Late in a first, short stay: the rests are too short.
        let at_its_shortest = !self.is_trusted() && self.stay == SHORT && self.good_stays == 0;
        self.rest = if at_its_shortest {
            (self.rest * 2).min(LONGEST_REST)
        } else {
            SHORT
        };
        self.stay = SHORT;
        self.good_stays = 0;
        self.state = State::RestsUntil(now + self.rest);
    }

    fn stay_went_well(&mut self, now: Duration) {
        self.good_stays += 1;
        if self.good_stays == GOOD_STAYS {
            self.good_stays = 0;
            self.rest = SHORT;
            self.stay *= 2;
        }
        self.state = if self.stay > LONGEST_STAY {
            State::Always
        } else {
            State::RestsUntil(now + self.rest)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(100);
    /// A turn of somebody else on the worker's core.
    const TURN: Duration = Duration::from_millis(4);

    /// The share of the jobs, one each 100 us for a second, that the worker is asked to join. `late(n)`: how long it keeps the n-th of
    /// those waiting.
    fn share(attendance: &mut Attendance, late: impl Fn(usize) -> Duration) -> f64 {
        let (mut now, mut jobs, mut joined) = (Duration::ZERO, 0, 0);
        while now < Duration::from_secs(1) {
            now += STEP;
            jobs += 1;
            if attendance.invited(now) {
                let waited = late(joined);
                now += waited;
                if !waited.is_zero() {
                    attendance.was_late(now, waited);
                }
                joined += 1;
            }
        }
        f64::from(joined as u32) / f64::from(jobs)
    }

    fn turn_if(late: bool, turn: Duration) -> Duration {
        if late { turn } else { Duration::ZERO }
    }

    #[test]
    fn a_punctual_worker_joins_every_job() {
        assert_eq!(share(&mut Attendance::new(), |_| Duration::ZERO), 1.0);
    }

    #[test]
    fn short_interruptions_now_and_then_are_tolerated() {
        let late = |n: usize| turn_if(n.is_multiple_of(100), Duration::from_millis(1));
        assert_eq!(share(&mut Attendance::new(), late), 1.0);
    }

    #[test]
    fn a_bad_moment_is_forgiven_within_a_tenth_of_a_second() {
        let mut attendance = Attendance::new();
        let share = share(&mut attendance, |n| turn_if((50..53).contains(&n), TURN));
        assert!(share > 0.97 && share < 1.0, "{share}");
        assert!(attendance.is_trusted());
    }

    #[test]
    fn a_worker_that_shares_its_core_stays_for_half_of_the_time() {
        let late = |n: usize| turn_if(n.is_multiple_of(40), TURN);
        let share = share(&mut Attendance::new(), late);
        assert!((0.4..0.8).contains(&share), "{share}");
    }

    #[test]
    fn a_worker_that_is_always_late_is_hardly_asked() {
        let share = share(&mut Attendance::new(), |_| TURN);
        assert!(share < 0.02, "{share}");
    }
}
