//! The one clock of the actors: tokio's, so that a paused runtime moves it. The engine gets its readings as arguments.

use ropeteam_engine::time::Time;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use tokio::time::Instant;

/// Tells the time since the engine's start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that reads zero now.
    pub fn start() -> Self {
        Clock {
            origin: Instant::now(),
        }
    }

    /// Its start on the machine's monotonic clock, by which another process can tell the same time.
    pub fn start_on_monotonic(&self) -> Duration {
        monotonic().saturating_sub(self.origin.elapsed())
    }

    /// The clock of another process of this machine that started then on the monotonic clock.
    pub fn started_on_monotonic(start: Duration) -> Self {
        let now = Instant::now();
        let age = monotonic().saturating_sub(start);
        Clock {
            origin: now.checked_sub(age).unwrap_or(now),
        }
    }

    /// Time since its start.
    pub fn now(&self) -> Time {
        Time(self.origin.elapsed())
    }
}

fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_tell_the_same_time() {
        let ours = Clock::start();
        std::thread::sleep(Duration::from_millis(20));
        let theirs = Clock::started_on_monotonic(ours.start_on_monotonic());
        let (a, b) = (ours.now().0, theirs.now().0);
        assert!(b.abs_diff(a) < Duration::from_millis(5), "{a:?} {b:?}");
    }
}
