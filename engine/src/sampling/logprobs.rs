//! Log-probabilities as they are reported: of the model's unmodified distribution, always finite.

use super::top_k::largest;
use super::{BadLogits, softmax};
use crate::ids::TokenId;

/// What is written instead of minus infinity, which JSON cannot say.
pub const LOWEST_LOGPROB: f32 = -9999.0;

/// Log-probability of one token, and of the best ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// Of the token asked for.
    pub logprob: f32,
    /// How many tokens are at least as likely as that one, itself included: 1 for the best.
    pub rank: u32,
    /// The best tokens with theirs, best first, the lowest id first among equals.
    pub top: Vec<(TokenId, f32)>,
}

/// Natural-log probabilities of `token` and of the `top` best tokens of an unmodified logits row, `[vocab]`.
///
/// # Errors
/// When the row holds NaN or plus infinity, or nothing above minus infinity.
pub fn logprobs(row: &[f32], token: TokenId, top: u32) -> Result<Logprobs, BadLogits> {
    let log_sum = softmax::log_sum_exp(row, softmax::max(row)?);
    let reported = |logit: f32| ((f64::from(logit) - log_sum) as f32).clamp(LOWEST_LOGPROB, 0.0);
    let best = largest(row, (top as usize).min(row.len()));
    let own = row
        .get(token.0 as usize)
        .copied()
        .unwrap_or(f32::NEG_INFINITY);
    let rank: u32 = row.iter().map(|&logit| u32::from(logit >= own)).sum();
    Ok(Logprobs {
        logprob: reported(own),
        rank,
        top: best
            .into_iter()
            .map(|(logit, id)| (TokenId(id), reported(logit)))
            .collect(),
    })
}

/// As [`logprobs`], but in place of the best tokens `token` itself and `others`, in that order, each once.
///
/// # Errors
/// As [`logprobs`].
pub fn logprobs_of(row: &[f32], token: TokenId, others: &[TokenId]) -> Result<Logprobs, BadLogits> {
    let mut found = logprobs(row, token, 0)?;
    let log_sum = softmax::log_sum_exp(row, softmax::max(row)?);
    found.top.push((token, found.logprob));
    for &other in others {
        if found.top.iter().all(|(known, _)| *known != other) {
            let logit = row.get(other.0 as usize).copied();
            let logprob = (f64::from(logit.unwrap_or(f32::NEG_INFINITY)) - log_sum) as f32;
            found.top.push((other, logprob.clamp(LOWEST_LOGPROB, 0.0)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_of_the_unmodified_row_sorted_and_finite() {
        let row = [0.2f32.ln(), f32::NEG_INFINITY, 0.5f32.ln(), 0.3f32.ln()];
        let found = logprobs(&row, TokenId(1), 4).unwrap();
        assert_eq!((found.logprob, found.rank), (LOWEST_LOGPROB, 4));
        assert_eq!(logprobs(&row, TokenId(3), 0).unwrap().rank, 2);
        let ids: Vec<u32> = found.top.iter().map(|(id, _)| id.0).collect();
        assert_eq!(ids, [2, 3, 0, 1]);
        assert!((found.top[0].1 - 0.5f32.ln()).abs() < 1e-6);
        assert_eq!(found.top[3].1, LOWEST_LOGPROB);
        assert!(logprobs(&[f32::NAN], TokenId(0), 1).is_err());
    }

    #[test]
    fn tokens_asked_for_by_name_stand_behind_the_chosen_one() {
        let row = [0.2f32.ln(), f32::NEG_INFINITY, 0.5f32.ln(), 0.3f32.ln()];
        let [first, second, third] = [1, 3, 0].map(TokenId);
        let found = logprobs_of(&row, third, &[first, third, second, first]).unwrap();
        let ids: Vec<u32> = found.top.iter().map(|(id, _)| id.0).collect();
        assert_eq!(ids, [0, 1, 3]);
        let best = logprobs(&row, third, 4).unwrap();
        assert!(found.top.iter().all(|pair| best.top.contains(pair)));
        assert_eq!((found.logprob, found.rank), (best.logprob, best.rank));
    }

    #[test]
    fn ties_are_listed_by_id_and_none_is_above_zero() {
        let found = logprobs(&[7.0], TokenId(0), 5).unwrap();
        assert_eq!((found.logprob, found.top.len()), (0.0, 1));
        let tied = logprobs(&[1.0; 200], TokenId(9), 3).unwrap();
        let ids: Vec<u32> = tied.top.iter().map(|(id, _)| id.0).collect();
        assert_eq!(ids, [0, 1, 2]);
    }
}
