//! Min-p: tokens with at least a share of the best token's probability.

use super::{BadLogits, Candidates};

/// Keeps candidates with at least `p` times the best one's probability; `p` 0: off.
///
/// Source: Nguyen et al., "Min-p sampling", 2024; `MinPLogitsWarper` of transformers.
///
/// # Errors
/// As [`Candidates::max`].
pub fn min_p(candidates: &mut Candidates, p: f32) -> Result<(), BadLogits> {
    if p > 0.0 {
        let best = candidates.max()?;
        candidates.keep_from(best + p.ln());
    }
    Ok(())
}
