//! What a device thread shows of its progress without sending anything: two atomics that the supervisor looks at now and then,
//! and the number of the life that may still act.

use ropeteam_engine::ids::Epoch;
use ropeteam_engine::supervision::Pulse;
use ropeteam_engine::time::Time;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Shared by one device's lives and the supervisor.
#[derive(Debug, Default)]
pub(crate) struct SharedPulse {
    busy: AtomicBool,
    /// Microseconds since the engine's start.
    last_us: AtomicU64,
    living: AtomicU32,
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

    /// From now on only that life may act.
    pub fn begin(&self, epoch: Epoch) {
        self.rest();
        self.living.store(epoch.0, Ordering::Release);
    }

    /// No life may act until the next begins: an abandoned thread that wakes up finds this and ends.
    pub fn end(&self) {
        self.living.store(0, Ordering::Release);
    }

    /// Whether that life may act.
    pub fn is_living(&self, epoch: Epoch) -> bool {
        self.living.load(Ordering::Acquire) == epoch.0
    }
}
