//! No repeated n-grams: a token is suppressed if it would complete an n-gram that is in the sequence already.

use crate::ids::TokenId;

/// Suppresses every token that followed an earlier occurrence of the last `n - 1` tokens; `n` 0: off.
///
/// Source: `NoRepeatNGramLogitsProcessor` of transformers 5.24, after fairseq.
pub fn no_repeat_ngram(row: &mut [f32], prompt: &[TokenId], output: &[TokenId], n: u32) {
    let len = prompt.len() + output.len();
    let Some(context) = (n as usize).checked_sub(1) else {
        return;
    };
    let token = |at: usize| match prompt.get(at) {
        Some(&id) => id,
        None => output[at - prompt.len()],
    };
    for start in 0..len.saturating_sub(context) {
        let repeats = (0..context).all(|i| token(start + i) == token(len - context + i));
        let follower = token(start + context).0 as usize;
        if let (true, Some(logit)) = (repeats, row.get_mut(follower)) {
            *logit = f32::NEG_INFINITY;
        }
    }
}
