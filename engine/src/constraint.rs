//! What a sequence's tokens must obey beside being likely: a schema, a grammar. Only the seam; `models::grammar` implements it.
//!
//! A [`Constraint`] is compiled once and shared, a [`ConstraintState`] belongs to one sequence on one device. The state follows from the
//! output tokens alone, so a device that got a `Work` can begin it anywhere in the sequence. Masks may be made on other threads: whoever
//! implements this begins with the next one as soon as it has the token before, so that it is there when the step has ended.

use crate::ids::TokenId;
use std::fmt::Debug;
use std::sync::Arc;

/// What all tokens of a sequence must obey.
pub trait Constraint: Debug + Send + Sync {
    /// The state of a sequence that has produced `output` so far. Returns at once.
    fn begin(&self, output: &[TokenId]) -> Box<dyn ConstraintState>;

    /// A text from which whoever made this makes the like in another process; `None` where that is not possible.
    fn source(&self) -> Option<Arc<str>>;
}

/// How far one sequence has come.
pub trait ConstraintState: Debug + Send {
    /// Takes the sequence's next token. Returns at once.
    fn push(&mut self, id: TokenId);

    /// Whether [`mask`](Self::mask) would not wait.
    fn is_ready(&mut self) -> bool;

    /// Which tokens may come next; waits until that is known. Where nothing may follow, the model's end ids are allowed.
    ///
    /// # Errors
    /// When the constraint cannot be followed any further.
    fn mask(&mut self) -> Result<TokenMask, ConstraintFailed>;
}

/// The constraint became too complex to be followed, or broke. The sequence ends; it would be the same on another device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the constraint cannot be followed any further")]
pub struct ConstraintFailed;

/// A set of tokens. Ids beyond its end are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenMask {
    words: Vec<u32>,
}

impl TokenMask {
    /// From 32 tokens per word, the lowest id in the lowest bit.
    pub fn from_words(words: Vec<u32>) -> Self {
        TokenMask { words }
    }

    /// The set of `ids`.
    pub fn of(ids: &[TokenId]) -> Self {
        let mut words = Vec::new();
        for id in ids {
            let word = id.0 as usize / 32;
            words.resize(words.len().max(word + 1), 0);
            words[word] |= 1 << (id.0 % 32);
        }
        TokenMask { words }
    }

    /// Whether the token is in it.
    pub fn allows(&self, id: TokenId) -> bool {
        let word = self.words.get(id.0 as usize / 32);
        word.is_some_and(|word| word >> (id.0 % 32) & 1 == 1)
    }

    /// Sets the logits of all other tokens to minus infinity.
    pub fn apply(&self, row: &mut [f32]) {
        let words = self.words.iter().copied().chain(std::iter::repeat(0));
        for (logits, word) in row.chunks_mut(32).zip(words) {
            match word {
                0 => logits.fill(f32::NEG_INFINITY),
                u32::MAX => {}
                word => forbid_zeros(logits, word),
            }
        }
    }
}

fn forbid_zeros(logits: &mut [f32], word: u32) {
    for (bit, logit) in logits.iter_mut().enumerate() {
        if word >> bit & 1 == 0 {
            *logit = f32::NEG_INFINITY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exactly_the_tokens_of_the_mask_keep_their_logits(
            ids in prop::collection::vec(0u32..100, 0..40),
            whole in 0usize..4,
            row in prop::collection::vec(-9f32..9.0, 0..120),
        ) {
            let mut ids: Vec<TokenId> = ids.into_iter().map(TokenId).collect();
            ids.extend((whole as u32 * 32..whole as u32 * 32 + 32).map(TokenId));
            let mask = TokenMask::of(&ids);
            let mut masked = row.clone();
            mask.apply(&mut masked);
            for (id, (&before, &after)) in row.iter().zip(&masked).enumerate() {
                let id = TokenId(id as u32);
                prop_assert_eq!(mask.allows(id), ids.contains(&id));
                let expected = if ids.contains(&id) { before } else { f32::NEG_INFINITY };
                prop_assert_eq!(after, expected);
            }
        }
    }
}
