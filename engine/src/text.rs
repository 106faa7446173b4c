//! What a session needs of a tokenizer. `models::text` implements it; tests use a toy one.

use crate::ids::TokenId;
use std::ops::Range;

/// A token and the bytes of the text that it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetToken {
    /// The token.
    pub id: TokenId,
    /// Where it stands in the text, in bytes; empty for a token that the tokenizer added. Tokens that share a character all have its range.
    pub bytes: Range<usize>,
}

/// Text to tokens and back. Shared by all sessions.
pub trait TextCodec: Send + Sync {
    /// Tokenises `text`; with `add_special_tokens` the tokenizer's own begin and end tokens are added.
    ///
    /// # Errors
    /// When the tokenizer refuses the text; the message is meant for the client.
    fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>, TextError>;

    /// Tokenises `text` as [`TextCodec::encode`] does and says where in it each token stands.
    ///
    /// # Errors
    /// As [`TextCodec::encode`].
    fn encode_with_offsets(
        &self,
        text: &str,
        add_special_tokens: bool,
    ) -> Result<Vec<OffsetToken>, TextError>;

    /// An incremental decoder for text that follows `context` (the prompt's ids; they give no output themselves).
    fn decoder(&self, context: &[TokenId], skip_special_tokens: bool) -> Box<dyn TokenDecoder>;

    /// The token's own text (may hold U+FFFD for a token that is part of a character), `None` for an id without a token.
    fn token_text(&self, id: TokenId) -> Option<String>;

    /// The token as the vocabulary writes it, which may be another form of its text; `None` for an id without a token.
    fn token_entry(&self, id: TokenId) -> Option<String> {
        self.token_text(id)
    }

    /// The token's own bytes, also of a token that is part of a character; `None` for an id without a token.
    fn token_bytes(&self, id: TokenId) -> Option<Vec<u8>> {
        self.token_text(id).map(String::into_bytes)
    }

    /// Whether the bytes of tokens, joined, are the bytes of their text.
    fn has_exact_bytes(&self) -> bool {
        true
    }

    /// Whether the token is a special one (end of turn and the like).
    fn is_special(&self, id: TokenId) -> bool;

    /// Ids are below this. Ids in between may still have no token.
    fn vocab_size(&self) -> u32;
}

/// Decodes one sequence token by token.
pub trait TokenDecoder: Send {
    /// Takes the next token and returns the text that is now complete; empty while a character is incomplete.
    fn push(&mut self, id: TokenId) -> String;

    /// Returns what is still held back at the end of the sequence (an incomplete character becomes U+FFFD).
    fn finish(&mut self) -> String;
}

/// The tokenizer refused a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TextError(pub String);
