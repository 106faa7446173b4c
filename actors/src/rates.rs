//! Sums over the last ten seconds, in buckets of one second.

use ropeteam_engine::time::Time;

/// How many seconds are kept.
const SECONDS: u64 = 10;

/// A sum over the last ten seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentSum {
    buckets: [u64; SECONDS as usize],
    /// The second of the newest bucket.
    newest: u64,
}

impl RecentSum {
    /// Counts `amount` now.
    pub fn add(&mut self, amount: u64, now: Time) {
        self.forget(now);
        self.buckets[(self.newest % SECONDS) as usize] += amount;
    }

    /// The sum of the last ten seconds.
    pub fn sum(&mut self, now: Time) -> u64 {
        self.forget(now);
        self.buckets.iter().sum()
    }

    /// The mean per second; over the time since the start while that is shorter.
    pub fn per_second(&mut self, now: Time) -> f64 {
        let span = now.0.as_secs_f64().clamp(1.0, SECONDS as f64);
        self.sum(now) as f64 / span
    }

    fn forget(&mut self, now: Time) {
        let second = now.0.as_secs();
        let steps = second.saturating_sub(self.newest).min(SECONDS);
        for back in 0..steps {
            self.buckets[((second - back) % SECONDS) as usize] = 0;
        }
        self.newest = self.newest.max(second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(s: u64) -> Time {
        Time(Duration::from_secs(s))
    }

    #[test]
    fn what_is_older_than_ten_seconds_is_forgotten() {
        let mut sum = RecentSum::default();
        sum.add(5, at(0));
        sum.add(7, at(3));
        assert_eq!(sum.sum(at(9)), 12);
        assert_eq!(sum.sum(at(10)), 7);
        sum.add(1, at(12));
        assert_eq!(sum.sum(at(13)), 1);
        assert_eq!(sum.sum(at(500)), 0);
    }

    #[test]
    fn rates_are_per_second() {
        let mut sum = RecentSum::default();
        sum.add(30, at(20));
        assert_eq!(sum.per_second(at(25)), 3.0);
    }
}
