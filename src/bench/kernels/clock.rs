//! How long something takes: the median of repeated measurements.

use std::time::{Duration, Instant};

/// A measurement is repeated until this much time has passed, and at least `LEAST` times.
const BUDGET: Duration = Duration::from_millis(60);
const LEAST: usize = 5;
/// More say nothing new.
const MOST: usize = 200;

/// The median time of `round`, which is run once beforehand.
pub fn median(mut round: impl FnMut()) -> f64 {
    round();
    let end = Instant::now() + BUDGET;
    let mut times = Vec::new();
    while times.len() < LEAST || (Instant::now() < end && times.len() < MOST) {
        let start = Instant::now();
        round();
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}
