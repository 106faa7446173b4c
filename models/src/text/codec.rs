//! A tokenizer of Hugging Face's `tokenizers` crate as the engine's `TextCodec`.
//! Not here: what is known of its tokens (`vocabulary.rs`), decoding token by token (`decode.rs`), GGUF vocabularies (`gguf.rs`).

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Arc;

use ropeteam_device::ColumnMask;
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::text::{OffsetToken, TextCodec, TextError, TokenDecoder};
use tokenizers::Tokenizer;

use super::TokenizerError;
use super::decode::Decoder;
use super::pieces::{Piece, Scheme};
use super::vocabulary::Vocabulary;

/// A model's tokenizer. Cheap to clone.
#[derive(Clone)]
pub struct Codec {
    vocabulary: Arc<Vocabulary>,
}

impl Codec {
    /// Loads `tokenizer.json` of a model folder.
    ///
    /// # Errors
    /// When the file cannot be read or is no tokenizer.
    pub fn from_folder(folder: &Path) -> Result<Self, TokenizerError> {
        let file = folder.join("tokenizer.json");
        let bytes = fs::read(&file).map_err(|source| TokenizerError::Read {
            file: file.clone(),
            source,
        })?;
        Self::from_json(&bytes, &file.display().to_string())
    }

    /// Loads a tokenizer from the content of a tokenizer.json; `origin` names it in errors.
    ///
    /// # Errors
    /// When it is no tokenizer.
    pub fn from_json(json: &[u8], origin: &str) -> Result<Self, TokenizerError> {
        let invalid = |detail: String| TokenizerError::Invalid {
            origin: origin.to_owned(),
            detail,
        };
        // The crate panics at some files that end in the middle of a part.
        let read = catch_unwind(|| Tokenizer::from_bytes(json))
            .map_err(|_| invalid("it is no tokenizer that can be read".to_owned()))?;
        Self::new(read.map_err(|error| invalid(error.to_string()))?, origin)
    }

    pub(super) fn new(tokenizer: Tokenizer, origin: &str) -> Result<Self, TokenizerError> {
        let vocabulary = Arc::new(Vocabulary::of(tokenizer, origin)?);
        Ok(Self { vocabulary })
    }

    /// Which of a model's `columns` logits have a token.
    pub fn column_mask(&self, columns: usize) -> ColumnMask {
        let limit = columns.min(self.vocabulary.limit as usize);
        let holes = self.vocabulary.holes.iter().copied();
        ColumnMask {
            limit,
            holes: holes.take_while(|&id| (id as usize) < limit).collect(),
        }
    }

    /// The id of a token, by its text as the vocabulary has it.
    pub fn token_id(&self, token: &str) -> Option<TokenId> {
        self.vocabulary.tokenizer.token_to_id(token).map(TokenId)
    }

    /// Text of a whole sequence that follows nothing, as Hugging Face decodes it.
    pub fn decode(&self, ids: &[TokenId], skip_special_tokens: bool) -> String {
        let ids: Vec<u32> = ids.iter().map(|id| id.0).collect();
        self.vocabulary.decode(&ids, skip_special_tokens)
    }
}

impl TextCodec for Codec {
    fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>, TextError> {
        let encoding = self
            .vocabulary
            .tokenizer
            .encode_fast(text, add_special_tokens)
            .map_err(|e| refused(&*e))?;
        Ok(encoding.get_ids().iter().copied().map(TokenId).collect())
    }

    fn encode_with_offsets(
        &self,
        text: &str,
        add_special_tokens: bool,
    ) -> Result<Vec<OffsetToken>, TextError> {
        let encoding = self
            .vocabulary
            .tokenizer
            .encode(text, add_special_tokens)
            .map_err(|e| refused(&*e))?;
        let offsets = encoding.get_offsets().iter();
        Ok(encoding
            .get_ids()
            .iter()
            .zip(offsets)
            .map(|(&id, &(start, end))| OffsetToken {
                id: TokenId(id),
                bytes: start..end,
            })
            .collect())
    }

    fn decoder(&self, context: &[TokenId], skip_special_tokens: bool) -> Box<dyn TokenDecoder> {
        Box::new(Decoder::new(
            self.vocabulary.clone(),
            context,
            skip_special_tokens,
        ))
    }

    fn token_text(&self, id: TokenId) -> Option<String> {
        let bytes = self.token_bytes(id)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn token_entry(&self, id: TokenId) -> Option<String> {
        self.vocabulary.tokenizer.id_to_token(id.0)
    }

    fn token_bytes(&self, id: TokenId) -> Option<Vec<u8>> {
        let token = self.vocabulary.tokenizer.id_to_token(id.0)?;
        Some(match self.vocabulary.scheme.piece(&token) {
            Piece::Text(text) => text.into_bytes(),
            Piece::Bytes(bytes) => bytes,
            Piece::Byte(byte) => vec![byte],
        })
    }

    fn has_exact_bytes(&self) -> bool {
        self.vocabulary.scheme != Scheme::Other
    }

    fn is_special(&self, id: TokenId) -> bool {
        self.vocabulary.special.contains(&id.0)
    }

    fn vocab_size(&self) -> u32 {
        self.vocabulary.limit
    }
}

fn refused(error: &dyn std::fmt::Display) -> TextError {
    TextError(format!("the text cannot be tokenised: {error}"))
}

#[cfg(test)]
mod tests;
