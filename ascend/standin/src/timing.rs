//! How long a task would take on the chip: what its bytes and its arithmetic need, whichever is more, and the dispatch. Peaks from
//! the chips' platform files; the shares of them that real runs reach, and the dispatch, are estimates.

use crate::settings::Settings;

/// Microseconds of modelled time.
pub type Microseconds = f64;

/// Share of peak arithmetic that products reach.
const REACHED_FLOPS: f64 = 0.45;
/// Share of peak bandwidth that large reads reach.
const REACHED_BYTES: f64 = 0.65;
/// From one task to the next on the device.
const DISPATCH: Microseconds = 3.0;

/// Time of one task.
pub fn task_time(settings: &Settings, bytes: u64, flops: u64) -> Microseconds {
    // (16-bit operations per microsecond, bytes per microsecond)
    let (peak_flops, peak_bytes) = match settings.is_310p() {
        true => (69.5e6, 204e3),
        false => (295e6, 1.6e6),
    };
    let arithmetic = flops as f64 / (REACHED_FLOPS * peak_flops);
    let transfer = bytes as f64 / (REACHED_BYTES * peak_bytes);
    DISPATCH + arithmetic.max(transfer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_takes_what_its_bytes_or_its_arithmetic_need() {
        let settings = Settings::default();
        assert_eq!(task_time(&settings, 0, 0), DISPATCH);
        let gigabyte = task_time(&settings, 1_000_000_000, 0);
        assert!((900.0..1000.0).contains(&gigabyte), "{gigabyte} µs");
        assert!(task_time(&settings, 1000, 1_000_000_000_000) > 1000.0);
    }
}
