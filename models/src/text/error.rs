//! What can be wrong with a tokenizer or a chat template. Both texts are meant for people: the first for the operator,
//! the second also for the client whose messages could not be rendered.

use std::path::PathBuf;

/// A tokenizer cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The operating system refused.
    #[error("cannot read {file}: {source}", file = file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's own words.
        source: std::io::Error,
    },
    /// The file is no tokenizer, or not one that is understood.
    #[error("{origin}: {detail}")]
    Invalid {
        /// The file, or where in a file the tokenizer stands.
        origin: String,
        /// What is wrong.
        detail: String,
    },
    /// A GGUF file names a way of splitting text that is not built.
    #[error(
        "{origin}: tokenizer.ggml.pre is {name:?}, which is not supported; supported: {supported}. \
         Give the model as a Hugging Face folder with tokenizer.json instead"
    )]
    UnknownPreTokenizer {
        /// The file.
        origin: String,
        /// The name found.
        name: String,
        /// All names that work.
        supported: String,
    },
    /// A GGUF file holds a kind of tokenizer that is not built.
    #[error(
        "{origin}: tokenizer.ggml.model is {name:?}, which is not supported; supported: gpt2, llama. \
         Give the model as a Hugging Face folder with tokenizer.json instead"
    )]
    UnknownModel {
        /// The file.
        origin: String,
        /// The name found.
        name: String,
    },
}

/// A chat cannot be turned into a prompt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The operating system refused; at start-up only.
    #[error("cannot read {file}: {detail}")]
    Read {
        /// The file.
        file: String,
        /// The system's own words.
        detail: String,
    },
    /// The template does not compile; at start-up, or for one that a client brought.
    #[error("{origin}, line {line}: the chat template does not compile: {detail}")]
    Syntax {
        /// The file that holds the template.
        origin: String,
        /// Line within the template, from 1.
        line: usize,
        /// What is wrong there.
        detail: String,
    },
    /// The model has no chat template, so it cannot chat; completions work.
    #[error("this model has no chat template; use the completion routes or give a template")]
    Missing,
    /// The messages are not what a chat can be rendered from (an image part, content that is no text, ...).
    #[error("{0}")]
    Messages(String),
    /// The template itself refused the messages (`raise_exception`); its own words.
    #[error("the chat template refuses these messages: {0}")]
    Refused(String),
    /// The template failed on these messages.
    #[error("the chat template failed on these messages: {0}")]
    Failed(String),
    /// The template took more steps, memory or depth than a prompt can need.
    #[error("the chat template took too long or nested too deep on these messages")]
    TooExpensive,
}
