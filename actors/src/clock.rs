//! The one clock of the actors: tokio's, so that a paused runtime moves it. The engine gets its readings as arguments.

use ropeteam_engine::time::Time;
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

    /// Time since its start.
    pub fn now(&self) -> Time {
        Time(self.origin.elapsed())
    }
}
