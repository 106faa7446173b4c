//! A tokenizer of one token per character, for devices without a vocabulary of their own.

use ropeteam_engine::ids::TokenId;
use ropeteam_engine::text::{OffsetToken, TextCodec, TextError, TokenDecoder};

/// Id 0 ends a text; id `n` above it is the `n`-th character of the alphabet. Capitals count as small letters, and what is not in
/// the alphabet as its last character.
#[derive(Clone, Debug)]
pub struct SimCodec {
    alphabet: Vec<char>,
}

/// The id that ends a text.
pub const END_OF_TEXT: TokenId = TokenId(0);

/// Text of `END_OF_TEXT`.
pub const END_TEXT: &str = "<end>";

impl Default for SimCodec {
    /// Lower-case letters and the space: short stop strings occur soon.
    fn default() -> Self {
        SimCodec {
            alphabet: ('a'..='z').chain([' ']).collect(),
        }
    }
}

impl SimCodec {
    fn char_of(&self, id: TokenId) -> Option<char> {
        let index = (id.0 as usize).checked_sub(1)?;
        self.alphabet.get(index).copied()
    }
}

impl TextCodec for SimCodec {
    fn encode(&self, text: &str, _add_special_tokens: bool) -> Result<Vec<TokenId>, TextError> {
        // Any text is taken, so that a demo can be asked what a model would be asked.
        let position = |c: char| self.alphabet.iter().position(|&a| a == c);
        let other = self.alphabet.len() - 1;
        let index = |c: char| position(c.to_ascii_lowercase()).unwrap_or(other);
        Ok(text.chars().map(|c| TokenId(index(c) as u32 + 1)).collect())
    }

    fn encode_with_offsets(
        &self,
        text: &str,
        add_special_tokens: bool,
    ) -> Result<Vec<OffsetToken>, TextError> {
        let ids = self.encode(text, add_special_tokens)?;
        let places = text.char_indices();
        Ok(ids
            .into_iter()
            .zip(places)
            .map(|(id, (start, c))| OffsetToken {
                id,
                bytes: start..start + c.len_utf8(),
            })
            .collect())
    }

    fn decoder(&self, _context: &[TokenId], skip_special_tokens: bool) -> Box<dyn TokenDecoder> {
        Box::new(SimDecoder {
            codec: self.clone(),
            skip_special_tokens,
        })
    }

    fn token_text(&self, id: TokenId) -> Option<String> {
        match id {
            END_OF_TEXT => Some(END_TEXT.into()),
            _ => self.char_of(id).map(String::from),
        }
    }

    fn is_special(&self, id: TokenId) -> bool {
        id == END_OF_TEXT
    }

    fn vocab_size(&self) -> u32 {
        self.alphabet.len() as u32 + 1
    }
}

struct SimDecoder {
    codec: SimCodec,
    skip_special_tokens: bool,
}

impl TokenDecoder for SimDecoder {
    fn push(&mut self, id: TokenId) -> String {
        match self.skip_special_tokens && self.codec.is_special(id) {
            true => String::new(),
            false => self.codec.token_text(id).unwrap_or_default(),
        }
    }

    fn finish(&mut self) -> String {
        String::new()
    }
}
