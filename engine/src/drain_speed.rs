//! How quickly the waiting queue empties, and what follows from it for those who come.

use crate::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// How quickly the queue empties, measured over the last departures since it was last empty.
#[derive(Debug, Default)]
pub(crate) struct DrainSpeed {
    /// The beginning of the measurement, then departures, oldest first.
    departures: VecDeque<Time>,
}

impl DrainSpeed {
    /// Fewer departures tell nothing about those to come.
    const TELLING: usize = 8;
    const MEASURED: usize = 32;
    const SHORTEST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(60);

    /// The queue was empty and is not any more.
    pub fn restart(&mut self, now: Time) {
        self.departures.clear();
        self.departures.push_back(now);
    }

    /// A sequence left for a device.
    pub fn left(&mut self, now: Time) {
        if self.departures.len() > Self::MEASURED {
            self.departures.pop_front();
        }
        self.departures.push_back(now);
    }

    /// The time in which `waiting` sequences leave at the measured speed, in whole seconds from 1 to 60.
    /// A queue that nothing left yet is taken to have let one go just now.
    pub fn retry_after(&self, waiting: usize, now: Time) -> Duration {
        let Some(&since) = self.departures.front() else {
            return Self::SHORTEST;
        };
        let departures = (self.departures.len() - 1).max(1) as f64;
        let seconds = now.since(since).as_secs_f64() / departures * waiting as f64;
        let seconds = seconds.min(Self::LONGEST.as_secs_f64()).ceil() as u64;
        Duration::from_secs(seconds).max(Self::SHORTEST)
    }

    /// The time in which so many sequences leave at the measured speed; `None` while too few have left to tell.
    pub fn time_for(&self, count: usize, now: Time) -> Option<Duration> {
        let since = *self.departures.front()?;
        let departures = self.departures.len() - 1;
        (departures >= Self::TELLING)
            .then(|| now.since(since).mul_f64(count as f64 / departures as f64))
    }
}
