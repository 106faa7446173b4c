//! What a device thread shows of its progress without sending anything, and whether it may still act: a few atomics, shared by one
//! life of a device and the supervisor.

use ropeteam_engine::supervision::Pulse;
use ropeteam_engine::time::Time;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Shared by one life of a device and the supervisor.
#[derive(Debug, Default)]
pub(crate) struct SharedPulse {
    busy: AtomicBool,
    /// Microseconds since the engine's start.
    last_us: AtomicU64,
    ended: AtomicBool,
}

impl SharedPulse {
    /// The device has work, and finished a step (or got its first work) now.
    pub fn beat(&self, now: Time) {
        self.last_us
            .store(now.0.as_micros() as u64, Ordering::Relaxed);
        self.busy.store(true, Ordering::Release);
    }

    /// The device has nothing to do.
    pub fn rest(&self) {
        self.busy.store(false, Ordering::Release);
    }

    /// What the supervisor judges by.
    pub fn read(&self) -> Pulse {
        let busy = self.busy.load(Ordering::Acquire);
        let last = Time(Duration::from_micros(self.last_us.load(Ordering::Relaxed)));
        Pulse { busy, last }
    }

    /// The life may act no more: an abandoned thread that wakes up finds this and ends.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Whether the life is over.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}
