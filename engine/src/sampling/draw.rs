//! The draw: one candidate by its probability.

use super::softmax::{RUN, max, weigh_run};
use super::{BadLogits, Candidates};
use crate::ids::TokenId;

impl Candidates {
    /// Draws by inverting the cumulative distribution at `uniform`, a number in `[0, 1)`.
    /// A candidate at minus infinity is never drawn.
    ///
    /// # Errors
    /// When there is NaN, or no candidate above minus infinity.
    pub fn draw(&mut self, uniform: f64) -> Result<TokenId, BadLogits> {
        let index = draw_from(&self.logits, 1.0, uniform, &mut self.run_sums)?;
        Ok(self.id(index))
    }
}

/// Draws an index of `logits` by the distribution of `logits * scale`. Nothing but a sum per run is stored: the weights of the one run
/// that is hit are computed twice. `run_sums` is room.
///
/// # Errors
/// As [`Candidates::draw`].
pub(super) fn draw_from(
    logits: &[f32],
    scale: f32,
    uniform: f64,
    run_sums: &mut Vec<f64>,
) -> Result<usize, BadLogits> {
    let max = max(logits)? * scale;
    let mut weights = [0.0f32; RUN];
    run_sums.clear();
    for run in logits.chunks(RUN) {
        run_sums.push(weigh_run(run, scale, max, &mut weights[..run.len()]));
    }
    let mut left = uniform * run_sums.iter().sum::<f64>();
    // Rounding may take the number past the sum of all runs: then it belongs to the last candidate.
    let mut hit = (0, f64::INFINITY);
    for (run, &sum) in run_sums.iter().enumerate() {
        if left < sum {
            hit = (run, left);
            break;
        }
        left -= sum;
        if sum > 0.0 {
            hit = (run, f64::INFINITY);
        }
    }
    let (run, left) = hit;
    let logits = &logits[run * RUN..];
    let logits = &logits[..logits.len().min(RUN)];
    let weights = &mut weights[..logits.len()];
    weigh_run(logits, scale, max, weights);
    Ok(run * RUN + index_at(weights, left))
}

/// Index of the weight in which `left` falls; the last one that is not zero if rounding left a rest beyond them all.
fn index_at(weights: &[f32], mut left: f64) -> usize {
    let mut last = 0;
    for (index, &weight) in weights
        .iter()
        .enumerate()
        .filter(|(_, weight)| **weight > 0.0)
    {
        last = index;
        if left < f64::from(weight) {
            break;
        }
        left -= f64::from(weight);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::random::uniform;

    fn candidates(row: &[f32]) -> Candidates {
        let mut candidates = Candidates::default();
        candidates.begin(row);
        candidates
    }

    /// Chi-square of `draws` draws against the probabilities.
    fn chi_square(probabilities: &[f64], draws: u64) -> f64 {
        let row: Vec<f32> = probabilities.iter().map(|p| p.ln() as f32).collect();
        let mut candidates = candidates(&row);
        let mut counts = vec![0u64; row.len()];
        for position in 0..draws {
            counts[candidates.draw(uniform(99, position)).unwrap().0 as usize] += 1;
        }
        let deviation = |(&count, p): (&u64, &f64)| {
            let expected = p * draws as f64;
            (count as f64 - expected).powi(2) / expected
        };
        counts.iter().zip(probabilities).map(deviation).sum()
    }

    #[test]
    fn frequencies_follow_the_probabilities() {
        // 99.9 % limits of chi-square with 2 and with 1499 degrees of freedom.
        assert!(chi_square(&[0.5, 0.3, 0.2], 20_000) < 13.8);
        let weights: Vec<f64> = (0..1500).map(|i| f64::from(1 + i * 7 % 13)).collect();
        let sum: f64 = weights.iter().sum();
        let probabilities: Vec<f64> = weights.iter().map(|w| w / sum).collect();
        assert!(chi_square(&probabilities, 60_000) < 1674.0);
    }

    #[test]
    fn a_token_at_minus_infinity_is_never_drawn() {
        let mut row = vec![f32::NEG_INFINITY; 2000];
        (row[700], row[1300]) = (1.0, 1.0);
        let mut candidates = candidates(&row);
        for step in 0..=1000 {
            let drawn = candidates.draw(f64::from(step) / 1_000.000_001).unwrap();
            assert!([TokenId(700), TokenId(1300)].contains(&drawn));
        }
        assert_eq!(candidates.draw(0.0), Ok(TokenId(700)));
        assert_eq!(candidates.draw(1.0), Ok(TokenId(1300)));
    }

    #[test]
    fn rows_that_cannot_be_drawn_from_are_errors() {
        assert_eq!(
            candidates(&[f32::NEG_INFINITY; 3]).draw(0.5),
            Err(BadLogits::NoCandidate)
        );
        assert_eq!(
            candidates(&[0.0, f32::NAN]).draw(0.5),
            Err(BadLogits::NotANumber)
        );
    }
}
