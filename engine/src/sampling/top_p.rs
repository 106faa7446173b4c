//! Top-p (nucleus): the smallest set of best tokens that together reach a probability.

use super::{BadLogits, Candidates};

/// Keeps the smallest set of best candidates whose probabilities reach `p`, at least one; `p` 1: off.
///
/// Source: Holtzman et al., "The curious case of neural text degeneration", 2019; `TopPLogitsWarper` of transformers.
///
/// # Errors
/// As [`Candidates::weigh`].
pub fn top_p(candidates: &mut Candidates, p: f32) -> Result<(), BadLogits> {
    if p >= 1.0 {
        return Ok(());
    }
    let total = candidates.weigh()?;
    // All tokens with less than (1 - p) / n have less than 1 - p together: the others, which are better, reach p without them.
    let never_needed = (1.0 - f64::from(p)) * total / candidates.len() as f64;
    candidates.keep_mass(f64::from(p) * total, never_needed as f32 * 0.999, |logit| {
        -logit
    });
    Ok(())
}
