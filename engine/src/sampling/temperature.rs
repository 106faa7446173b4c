//! Temperature: below 1 the distribution becomes more peaked, above 1 flatter.

use super::Candidates;

/// Below this, 0 included, the best token is taken instead of dividing: nothing else would have a chance anyway, and the
/// quotients stay finite.
pub const GREEDY_BELOW: f32 = 1e-5;

/// Divides the logits by `temperature`, which is at least [`GREEDY_BELOW`].
pub fn temperature(candidates: &mut Candidates, temperature: f32) {
    if temperature != 1.0 {
        candidates
            .logits
            .iter_mut()
            .for_each(|logit| *logit /= temperature);
    }
}
