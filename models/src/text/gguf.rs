//! Tokenizer, named tokens, end tokens and chat template from a GGUF file's metadata.
//! Not here: reading the metadata (`checkpoint/gguf`).
//!
//! Meaning of the keys: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, section "Tokenizer".

mod merges;
mod pre_tokenizers;
mod vocabulary;

use ropeteam_engine::ids::TokenId;

use super::{ChatTemplate, Codec, SpecialTokens, TemplateError, TokenizerError};
use crate::checkpoint::GgufMetadata;
use vocabulary::Vocabulary;

/// What a GGUF file says about text.
pub struct GgufText {
    /// The tokenizer.
    pub codec: Codec,
    /// The named tokens.
    pub special_tokens: SpecialTokens,
    /// Tokens that end an answer: end of text, of turn, of message.
    pub end_ids: Vec<TokenId>,
    templates: Vec<(String, String)>,
    origin: String,
}

impl GgufText {
    /// Builds the tokenizer. `origin` names the file in errors.
    ///
    /// # Errors
    /// When a field is missing or contradicts another, or a kind of tokenizer is not built.
    pub fn from_metadata(metadata: &GgufMetadata, origin: &str) -> Result<Self, TokenizerError> {
        let vocabulary = Vocabulary::read(metadata, origin)?;
        let tokenizer = vocabulary.tokenizer()?;
        Ok(Self {
            codec: Codec::new(tokenizer, origin)?,
            special_tokens: vocabulary.special_tokens(),
            end_ids: vocabulary.end_ids(),
            templates: templates(metadata),
            origin: origin.to_owned(),
        })
    }

    /// Compiles the file's chat templates; there may be none.
    ///
    /// # Errors
    /// When one does not compile.
    pub fn chat_template(&self) -> Result<ChatTemplate, TemplateError> {
        let named = self.templates.iter().map(|(n, t)| (n.as_str(), t.as_str()));
        let origin = format!("{}, tokenizer.chat_template", self.origin);
        ChatTemplate::named(named, &origin, &self.special_tokens)
    }
}

/// The default template and the named ones (`tokenizer.chat_template.NAME`).
fn templates(metadata: &GgufMetadata) -> Vec<(String, String)> {
    let key = "tokenizer.chat_template";
    metadata
        .keys()
        .filter_map(|k| {
            let name = match k.strip_prefix(key)? {
                "" => "default",
                named => named.strip_prefix('.')?,
            };
            Some((name.to_owned(), metadata.text(k)?.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests;
