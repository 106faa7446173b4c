//! How often each token occurred in a sequence: what the penalties need.

use crate::ids::TokenId;
use std::collections::HashMap;

/// Occurrences of the tokens of one sequence.
#[derive(Clone, Debug, Default)]
pub struct TokenCounts {
    counts: HashMap<TokenId, u32>,
}

impl TokenCounts {
    /// Counts the `output` tokens and notes those of the `prompt`, which count 0 until they are generated.
    pub fn new(prompt: &[TokenId], output: &[TokenId]) -> Self {
        let mut counts = TokenCounts {
            counts: prompt.iter().map(|&id| (id, 0)).collect(),
        };
        output.iter().for_each(|&id| counts.push(id));
        counts
    }

    /// Counts one more output token.
    pub fn push(&mut self, id: TokenId) {
        *self.counts.entry(id).or_default() += 1;
    }

    /// Each token of prompt and output once, with its occurrences in the output.
    pub fn iter(&self) -> impl Iterator<Item = (TokenId, u32)> {
        self.counts.iter().map(|(&id, &count)| (id, count))
    }
}
