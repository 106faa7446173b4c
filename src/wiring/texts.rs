//! Reads a model's tokenizer and chat template, from its folder or from a GGUF file's metadata.

use crate::config::ModelConfig;
use crate::start_error::StartError;
use ropeteam_engine::ids::TokenId;
use ropeteam_models::Checkpoint;
use ropeteam_models::checkpoint::GgufMetadata;
use ropeteam_models::text::{
    ChatTemplate, Codec, GgufText, SpecialTokens, TemplateError, TokenizerError,
};
use std::path::Path;
use std::sync::Arc;

/// The texts of a model.
pub struct Texts {
    /// Its tokenizer.
    pub codec: Codec,
    /// Its chat template, or why there is none that can be used. That is told to who asks for a chat: the rest works without.
    pub chat: Result<Arc<ChatTemplate>, String>,
    /// Its named tokens.
    pub special: SpecialTokens,
    /// Ids that end an answer, beside those of the configuration files.
    pub end_ids: Vec<TokenId>,
}

/// Reads them.
///
/// # Errors
/// A tokenizer that is missing or broken; a template file that was asked for and cannot be used.
pub fn read(checkpoint: &Checkpoint, config: &ModelConfig) -> Result<Texts, StartError> {
    let read = match checkpoint.gguf() {
        Some(metadata) => from_gguf(metadata, checkpoint.path()),
        None => from_folder(checkpoint.path()),
    };
    let mut texts = read.map_err(|error| StartError::Model(error.to_string()))?;
    if let Some(file) = &config.chat_template {
        texts.chat = Ok(Arc::new(own_template(file, &texts.special)?));
    }
    if let Err(problem) = &texts.chat {
        tracing::warn!(problem, "chat is not available");
    }
    Ok(texts)
}

/// Reads the tokenizer alone.
///
/// # Errors
/// When it is missing or broken.
pub fn codec(checkpoint: &Checkpoint) -> Result<Codec, TokenizerError> {
    let path = checkpoint.path();
    match checkpoint.gguf() {
        Some(metadata) => {
            let text = GgufText::from_metadata(metadata, &path.display().to_string())?;
            Ok(text.codec)
        }
        None => Codec::from_folder(path),
    }
}

fn from_folder(folder: &Path) -> Result<Texts, TokenizerError> {
    let special = SpecialTokens::load(folder)?;
    Ok(Texts {
        codec: Codec::from_folder(folder)?,
        chat: usable(ChatTemplate::load(folder, &special)),
        special,
        end_ids: Vec::new(),
    })
}

fn from_gguf(metadata: &GgufMetadata, file: &Path) -> Result<Texts, TokenizerError> {
    let text = GgufText::from_metadata(metadata, &file.display().to_string())?;
    let chat = usable(text.chat_template());
    let GgufText {
        codec,
        special_tokens,
        end_ids,
        ..
    } = text;
    Ok(Texts {
        codec,
        chat,
        special: special_tokens,
        end_ids,
    })
}

fn own_template(file: &Path, special: &SpecialTokens) -> Result<ChatTemplate, StartError> {
    let wrong = |problem: String| StartError::Usage(format!("chat_template: {problem}"));
    let name = file.display().to_string();
    let source =
        std::fs::read_to_string(file).map_err(|error| wrong(format!("{name}: {error}")))?;
    ChatTemplate::from_source(&source, &name, special).map_err(|error| wrong(error.to_string()))
}

fn usable(chat: Result<ChatTemplate, TemplateError>) -> Result<Arc<ChatTemplate>, String> {
    match chat {
        Ok(template) if template.exists() => Ok(Arc::new(template)),
        Ok(_) => Err("the model has no chat template; give one with --chat-template".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
