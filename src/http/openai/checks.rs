//! Checks of single values; a refusal names the field, the value and what was expected.

use crate::http::refusal::Refusal;
use crate::http::state::Serving;
use ropeteam_engine::ids::TokenId;

/// A token id of the model.
///
/// # Errors
/// Negative, too large, or an id without a token.
pub fn token_id(field: &str, id: i64, serving: &Serving) -> Result<TokenId, Refusal> {
    let limit = serving.text.vocab_size();
    let known = u32::try_from(id).ok().filter(|&id| id < limit).map(TokenId);
    known
        .filter(|&id| serving.text.token_text(id).is_some())
        .ok_or_else(|| {
            Refusal::invalid(
                field,
                format!(
                    "{field}: {id} is no token id of this model (0 to {})",
                    limit.saturating_sub(1)
                ),
            )
        })
}

/// A whole number from `low` to `high`.
///
/// # Errors
/// Outside.
pub fn whole(field: &str, value: i64, low: i64, high: i64) -> Result<i64, Refusal> {
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    let expected = match high {
        high if high >= i64::from(i32::MAX) => format!("at least {low}"),
        high => format!("from {low} to {high}"),
    };
    Err(Refusal::invalid(
        field,
        format!("{field} must be {expected}, got {value}"),
    ))
}

/// A number from `low` to `high`.
///
/// # Errors
/// Outside.
pub fn within(field: &str, value: f32, low: f32, high: f32) -> Result<f32, Refusal> {
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    Err(Refusal::invalid(
        field,
        format!("{field} must be from {low} to {high}, got {value}"),
    ))
}

/// A probability above 0.
///
/// # Errors
/// Outside.
pub fn share(field: &str, value: f32) -> Result<f32, Refusal> {
    if value > 0.0 && value <= 1.0 {
        return Ok(value);
    }
    Err(Refusal::invalid(
        field,
        format!("{field} must be greater than 0 and at most 1, got {value}"),
    ))
}
