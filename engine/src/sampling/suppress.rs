//! Tokens that must not come: the request's suppressed ones, and the end ids before `min_tokens`.

use crate::ids::TokenId;

/// Sets the tokens' logits to minus infinity. Ids beyond the row are ignored.
pub fn suppress_tokens(row: &mut [f32], tokens: &[TokenId]) {
    for id in tokens {
        if let Some(logit) = row.get_mut(id.0 as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}
