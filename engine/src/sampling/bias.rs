//! Logit bias: a number added to single logits.

use crate::ids::TokenId;

/// Adds each bias to its token's logit. Ids beyond the row are ignored: no such token exists.
pub fn logit_bias(row: &mut [f32], bias: &[(TokenId, f32)]) {
    for &(id, value) in bias {
        if let Some(logit) = row.get_mut(id.0 as usize) {
            *logit += value;
        }
    }
}
