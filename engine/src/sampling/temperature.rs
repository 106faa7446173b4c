//! Temperature: below 1 the distribution becomes more peaked, above 1 flatter.

use super::Candidates;

/// Below this, 0 included, the best token is taken instead of dividing: nothing else would have a chance anyway, and the
/// quotients stay finite.
pub const GREEDY_BELOW: f32 = 1e-5;

/// What the logits are multiplied with, which divides them by `temperature`; that is at least [`GREEDY_BELOW`].
pub fn scale(temperature: f32) -> f32 {
    1.0 / temperature
}

/// Scales the logits.
pub fn temperature(candidates: &mut Candidates, temperature: f32) {
    if temperature != 1.0 {
        let scale = scale(temperature);
        candidates
            .logits
            .iter_mut()
            .for_each(|logit| *logit *= scale);
    }
}
