//! Epsilon and eta cutoffs: tokens above an absolute probability.
//!
//! Source: Hewitt, Manning and Liang, "Truncation sampling as language model desmoothing", 2022; `EpsilonLogitsWarper` and
//! `EtaLogitsWarper` of transformers.

use super::{BadLogits, Candidates};

/// Keeps candidates with at least the probability `epsilon`, and the best one in any case; `epsilon` 0: off.
///
/// # Errors
/// As [`Candidates::weigh`].
pub fn epsilon_cutoff(candidates: &mut Candidates, epsilon: f32) -> Result<(), BadLogits> {
    if epsilon > 0.0 {
        let total = candidates.weigh()?;
        keep_probable(candidates, f64::from(epsilon), total)?;
    }
    Ok(())
}

/// The same with a threshold that falls where the distribution is flat: `min(epsilon, sqrt(epsilon) * exp(-entropy))`.
///
/// # Errors
/// As [`Candidates::weigh`].
pub fn eta_cutoff(candidates: &mut Candidates, epsilon: f32) -> Result<(), BadLogits> {
    if epsilon > 0.0 {
        let total = candidates.weigh()?;
        let (_, entropy) = candidates.log_total_and_entropy(total)?;
        let epsilon = f64::from(epsilon);
        keep_probable(
            candidates,
            epsilon.min(epsilon.sqrt() * (-entropy).exp()),
            total,
        )?;
    }
    Ok(())
}

fn keep_probable(
    candidates: &mut Candidates,
    probability: f64,
    total: f64,
) -> Result<(), BadLogits> {
    let best = candidates.max()?;
    let lowest = f64::from(best) + (probability * total).ln();
    candidates.keep_from(best.min(lowest as f32));
    Ok(())
}
