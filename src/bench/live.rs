//! What a progress display reads while a run goes on: a few counters.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a run.
#[derive(Debug, Default)]
pub struct Live {
    sent: AtomicU64,
    ended: AtomicU64,
    failed: AtomicU64,
    tokens: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests sent and not ended.
    pub running: u64,
    /// Requests ended, good or bad.
    pub ended: u64,
    /// Those that failed.
    pub failed: u64,
    /// Events with tokens.
    pub tokens: u64,
}

impl Live {
    /// A request is sent.
    pub fn sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// A request has ended.
    pub fn ended(&self, failed: bool) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.failed.fetch_add(u64::from(failed), Ordering::Relaxed);
    }

    /// Tokens came.
    pub fn tokens(&self, count: u32) {
        self.tokens.fetch_add(u64::from(count), Ordering::Relaxed);
    }

    /// The counters now.
    pub fn counts(&self) -> Counts {
        let ended = self.ended.load(Ordering::Relaxed);
        Counts {
            running: self.sent.load(Ordering::Relaxed).saturating_sub(ended),
            ended,
            failed: self.failed.load(Ordering::Relaxed),
            tokens: self.tokens.load(Ordering::Relaxed),
        }
    }
}
