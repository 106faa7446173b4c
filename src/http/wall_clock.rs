//! Wall-clock time as answers and logs tell it. Not here: spans, which are measured with `Instant`.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970 of `time`; 0 for a clock before that.
pub fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |span| span.as_secs())
}

/// Seconds since 1970, now.
pub fn now() -> u64 {
    unix_seconds(SystemTime::now())
}
