//! The arithmetic of a logits row: maximum, argmax, exponentials and their sum.
//! Plain loops over fixed lanes, so that the compiler vectorises them and the order of additions depends on nothing but the row. They are
//! compiled once for each instruction set that widens them; every version gives the same bits, since none of them fuses or reorders.

use super::BadLogits;
use multiversion::multiversion;

/// Accumulators that run side by side.
const LANES: usize = 16;
/// Weights are summed up in runs of this length; a draw skips whole runs.
pub(super) const RUN: usize = 512;

/// The highest logit.
///
/// # Errors
/// When the row holds NaN or plus infinity, or nothing above minus infinity.
pub(super) fn max(row: &[f32]) -> Result<f32, BadLogits> {
    match highest(row) {
        None => Err(BadLogits::NotANumber),
        Some(f32::NEG_INFINITY) => Err(BadLogits::NoCandidate),
        Some(f32::INFINITY) => Err(BadLogits::NotANumber),
        Some(best) => Ok(best),
    }
}

/// The highest of some values, minus infinity of none; `None` if one is NaN.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2"))]
fn highest(row: &[f32]) -> Option<f32> {
    highest_in_lanes(row)
}

/// Writes the highest value of each stretch of `len` values into `found`; false if one is NaN.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2"))]
pub(super) fn highest_of_each(row: &[f32], len: usize, found: &mut Vec<f32>) -> bool {
    found.clear();
    for stretch in row.chunks(len) {
        match highest_in_lanes(stretch) {
            Some(highest) => found.push(highest),
            None => return false,
        }
    }
    true
}

#[inline(always)]
fn highest_in_lanes(row: &[f32]) -> Option<f32> {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut best = [f32::NEG_INFINITY; LANES];
    let mut not_a_number = [false; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            let value = chunk[lane];
            best[lane] = if value > best[lane] {
                value
            } else {
                best[lane]
            };
            not_a_number[lane] |= value.is_nan();
        }
    }
    let best = best
        .iter()
        .chain(rest)
        .copied()
        .fold(f32::NEG_INFINITY, f32::max);
    let sound = !not_a_number.contains(&true) && !rest.iter().any(|value| value.is_nan());
    sound.then_some(best)
}

/// Index of the highest logit, the lowest one among equals.
///
/// # Errors
/// As [`max`].
pub(super) fn argmax(row: &[f32]) -> Result<usize, BadLogits> {
    let best = max(row)?;
    Ok(row
        .iter()
        .position(|&value| value == best)
        .expect("the maximum is one of the values"))
}

/// Writes `exp(logit - max)` of every logit into `weights` and returns their sum.
pub(super) fn exp_weights(logits: &[f32], max: f32, weights: &mut Vec<f32>) -> f64 {
    weights.resize(logits.len(), 0.0);
    let runs = logits.chunks(RUN).zip(weights.chunks_mut(RUN));
    runs.map(|(logits, weights)| weigh_run(logits, 1.0, max, weights))
        .sum()
}

/// Natural log of the sum of the exponentials of a row whose maximum is `max`.
pub(super) fn log_sum_exp(row: &[f32], max: f32) -> f64 {
    let mut weights = [0.0f32; RUN];
    let runs = row.chunks(RUN);
    let sum: f64 = runs
        .map(|run| weigh_run(run, 1.0, max, &mut weights[..run.len()]))
        .sum();
    f64::from(max) + sum.ln()
}

/// Writes `exp(logit * scale - max)` of at most [`RUN`] logits into as many `weights` and returns their sum.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw", "x86_64+avx2"))]
pub(super) fn weigh_run(run: &[f32], scale: f32, max: f32, weights: &mut [f32]) -> f64 {
    for (weight, &logit) in weights.iter_mut().zip(run) {
        *weight = exp(logit * scale - max);
    }
    let (chunks, rest) = weights.as_chunks::<LANES>();
    let mut lanes = [0.0f32; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] += chunk[lane];
        }
    }
    let mut sum = 0.0f64;
    for &weight in lanes.iter().chain(rest) {
        sum += f64::from(weight);
    }
    sum
}

/// `e^x` for `x <= 0`, within 2e-7 of the true value relatively; exactly 0 below -87 (minus infinity included), NaN for NaN.
///
/// Range reduction to `|r| <= ln 2 / 2` and a polynomial of degree 7 (its Taylor coefficients suffice there), as in
/// Cephes' `expf`; in contrast to the library's it has no branch, so a loop over it becomes vector code.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    /// Adding it rounds to the nearest integer and leaves that in the low bits of the mantissa.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let high = ((1.0 / 5040.0 * r + 1.0 / 720.0) * r + 1.0 / 120.0) * r + 1.0 / 24.0;
    let e_r = (((high * r + 1.0 / 6.0) * r + 0.5) * r + 1.0) * r + 1.0;
    let power_of_two = (shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits());
    let value = e_r * f32::from_bits(power_of_two);
    if x < -87.0 { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_close_everywhere() {
        for step in 0..=870_000 {
            let x = -(step as f32) * 1e-4;
            let (near, true_value) = (f64::from(exp(x)), f64::from(x).exp());
            let error = ((near - true_value) / true_value).abs();
            assert!(error < 2e-7, "exp({x}) = {near}, not {true_value}");
        }
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1e30), 0.0);
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn the_lowest_of_equal_maxima_wins() {
        let mut row = vec![0.0f32; 100];
        row[37] = 2.0;
        row[90] = 2.0;
        assert_eq!(argmax(&row), Ok(37));
    }

    #[test]
    fn rows_without_a_sound_maximum_are_refused() {
        for at in [0, 17, 35] {
            let mut row = vec![1.0f32; 36];
            row[at] = f32::NAN;
            assert_eq!(max(&row), Err(BadLogits::NotANumber));
            row[at] = f32::INFINITY;
            assert_eq!(max(&row), Err(BadLogits::NotANumber));
        }
        assert_eq!(max(&[f32::NEG_INFINITY; 40]), Err(BadLogits::NoCandidate));
        assert_eq!(max(&[]), Err(BadLogits::NoCandidate));
    }

    #[test]
    fn log_sum_exp_agrees_with_double_precision() {
        let row: Vec<f32> = (0..3000)
            .map(|i| ((i * 37) % 101) as f32 * 0.2 - 9.0)
            .collect();
        let expected = row.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
        assert!((log_sum_exp(&row, max(&row).unwrap()) - expected).abs() < 1e-6);
    }
}
