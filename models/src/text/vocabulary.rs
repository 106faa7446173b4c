//! A tokenizer and what is known of its tokens: which are special, which ids have none, what each contributes to the text.

use std::collections::HashSet;

use ropeteam_engine::ids::TokenId;
use tokenizers::Tokenizer;

use super::TokenizerError;
use super::pieces::{Piece, Scheme};

/// No model's vocabulary comes near; a file that claims more would make us count holes for ever.
const MAX_VOCABULARY: u32 = 1 << 24;

/// The tokenizer and what was computed from it once.
pub(super) struct Vocabulary {
    pub tokenizer: Tokenizer,
    pub scheme: Scheme,
    pub special: HashSet<u32>,
    /// All ids are below.
    pub limit: u32,
    /// Ids below `limit` without a token, ascending.
    pub holes: Vec<u32>,
}

impl Vocabulary {
    /// Takes a tokenizer as it comes from a file; `origin` names it in errors.
    ///
    /// # Errors
    /// When it has no tokens, or ids that no model has.
    pub fn of(mut tokenizer: Tokenizer, origin: &str) -> Result<Self, TokenizerError> {
        // These settings served training. A server that cut prompts or padded them would answer another question.
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(None)
            .map_err(|e| TokenizerError::Invalid {
                origin: origin.to_owned(),
                detail: e.to_string(),
            })?;
        let mut ids: Vec<u32> = tokenizer.get_vocab(true).into_values().collect();
        ids.sort_unstable();
        ids.dedup();
        let last = match ids.last() {
            Some(&last) if last < MAX_VOCABULARY => last,
            last => {
                return Err(TokenizerError::Invalid {
                    origin: origin.to_owned(),
                    detail: format!("the highest token id is {last:?}"),
                });
            }
        };
        let special = tokenizer.get_added_tokens_decoder();
        Ok(Self {
            scheme: Scheme::of(&tokenizer),
            special: special
                .iter()
                .filter(|(_, token)| token.special)
                .map(|(&id, _)| id)
                .collect(),
            limit: last + 1,
            holes: gaps(&ids),
            tokenizer,
        })
    }

    /// What a token contributes; `None` for an id without a token, or a special token that is to be skipped.
    pub fn piece(&self, id: TokenId, skip_special: bool) -> Option<Piece> {
        if skip_special && self.special.contains(&id.0) {
            return None;
        }
        let token = self.tokenizer.id_to_token(id.0)?;
        Some(self.scheme.piece(&token))
    }

    /// Decoding by the tokenizer itself; empty where it fails.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        self.tokenizer.decode(ids, skip_special).unwrap_or_default()
    }
}

/// The numbers from 0 that are missing in ascending `ids`.
fn gaps(ids: &[u32]) -> Vec<u32> {
    let mut next = 0;
    let mut missing = Vec::new();
    for &id in ids {
        missing.extend(next..id);
        next = id + 1;
    }
    missing
}
