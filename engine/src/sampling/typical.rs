//! Typical sampling: tokens whose surprise is near the expected one.

use super::{BadLogits, Candidates};

/// Keeps the smallest set of candidates that reaches the probability `p`, taking those first whose negative log-probability is
/// nearest the entropy; `p` 1: off.
///
/// Source: Meister et al., "Locally typical sampling", 2022; `TypicalLogitsWarper` of transformers.
///
/// # Errors
/// As [`Candidates::weigh`].
pub fn typical_p(candidates: &mut Candidates, p: f32) -> Result<(), BadLogits> {
    if p >= 1.0 {
        return Ok(());
    }
    let total = candidates.weigh()?;
    let (log_total, entropy) = candidates.log_total_and_entropy(total)?;
    let distance = |logit: f32| (log_total - f64::from(logit) - entropy).abs() as f32;
    candidates.keep_mass(f64::from(p) * total, f32::MIN_POSITIVE, distance);
    Ok(())
}

impl Candidates {
    /// `log(sum(exp(logit)))` and the entropy of the weighed candidates, in nats.
    pub(super) fn log_total_and_entropy(&self, total: f64) -> Result<(f64, f64), BadLogits> {
        let log_total = f64::from(self.max()?) + total.ln();
        let weighed = self
            .logits
            .iter()
            .zip(&self.weights)
            .filter(|(_, weight)| **weight > 0.0);
        let terms =
            weighed.map(|(&logit, &weight)| f64::from(weight) * (log_total - f64::from(logit)));
        Ok((log_total, terms.sum::<f64>() / total))
    }
}
