//! How a `--model` argument becomes a path: what is on disk already, the embedded default, or the Hugging Face hub.
//! Not here: opening what stands at the path (`checkpoint`).
//!
//! | argument | meaning |
//! | --- | --- |
//! | an existing folder or .gguf file | that |
//! | nothing, or `SmolLM2-135M-Instruct` | the embedded default, fetched once into the user's cache (`embedded.rs`) |
//! | `org/name`, `org/name@revision` | the model of that name on the hub, fetched into the hub's own cache (`hub.rs`) |
//!
//! Everything here blocks and may take minutes: call it at start-up, from a thread that may wait. Progress goes to the
//! terminal on standard error, and to the log where there is none.
//!
//! ```no_run
//! use ropeteam_models::source::{Places, locate};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let located = locate(None, &Places::from_env()?)?;
//! println!("{} is at {}", located.name, located.path.display());
//! let checkpoint = ropeteam_models::Checkpoint::open(&located.path)?;
//! # Ok(())
//! # }
//! ```

mod embedded;
mod error;
mod hub;
mod progress;
mod sha256;

use std::path::{Path, PathBuf};

pub use error::SourceError;

/// Name of the embedded default model.
pub const DEFAULT_MODEL: &str = "SmolLM2-135M-Instruct";

/// A model on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The folder or .gguf file.
    pub path: PathBuf,
    /// What to call it when nobody says otherwise.
    pub name: String,
}

/// Where models are fetched from and kept.
#[derive(Clone, Debug)]
pub struct Places {
    /// Our own cache.
    pub cache: PathBuf,
    /// The hub's address.
    pub hub_endpoint: String,
    /// The hub's cache, shared with its other clients.
    pub hub_cache: PathBuf,
    /// Opens private models.
    pub hub_token: Option<String>,
    /// Ways to call pip, in the order in which they are tried.
    pub pip: Vec<Vec<String>>,
}

impl Places {
    /// The usual places: `XDG_CACHE_HOME`, `HF_ENDPOINT`, `HF_HOME`, `HF_TOKEN`.
    ///
    /// # Errors
    /// When there is no home directory to keep anything in.
    pub fn from_env() -> Result<Self, SourceError> {
        let variable = |name| std::env::var(name).ok().filter(|v| !v.is_empty());
        let home = || std::env::home_dir().ok_or(SourceError::NoHome);
        let cache = match variable("XDG_CACHE_HOME").map(PathBuf::from) {
            Some(absolute) if absolute.is_absolute() => absolute,
            _ => home()?.join(".cache"),
        };
        let hub_home = match variable("HF_HOME") {
            Some(given) => PathBuf::from(given),
            None => cache.join("huggingface"),
        };
        let words = |command: &str| command.split(' ').map(str::to_owned).collect();
        Ok(Self {
            cache: cache.join("ropeteam"),
            hub_endpoint: variable("HF_ENDPOINT")
                .unwrap_or_else(|| "https://huggingface.co".to_owned()),
            hub_token: variable("HF_TOKEN").or_else(|| hub::stored_token(&hub_home)),
            hub_cache: hub_home.join("hub"),
            pip: ["python3 -m pip", "pip3", "pip"].map(words).to_vec(),
        })
    }
}

/// Finds or fetches a model.
///
/// # Errors
/// When nothing on disk or on the hub has that name, or fetching fails; the text says what to do.
pub fn locate(argument: Option<&str>, places: &Places) -> Result<Located, SourceError> {
    let argument = argument.unwrap_or(DEFAULT_MODEL);
    let path = Path::new(argument);
    if path.exists() || path.is_symlink() {
        return Ok(Located {
            path: path.to_path_buf(),
            name: name_of(path),
        });
    }
    if argument == DEFAULT_MODEL {
        return Ok(Located {
            path: embedded::obtain(places)?,
            name: DEFAULT_MODEL.to_owned(),
        });
    }
    let Some(model) = hub::Model::parse(argument) else {
        return Err(SourceError::NoSuchModel {
            argument: argument.to_owned(),
        });
    };
    Ok(Located {
        path: hub::fetch(&model, places)?,
        name: model.id,
    })
}

/// Where the default model is kept, if it is there and whole.
pub fn cached_default(places: &Places) -> Option<PathBuf> {
    embedded::cached(places)
}

/// The last part of a path, without the extension of a file.
fn name_of(path: &Path) -> String {
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let name = match path.is_dir() {
        true => resolved.file_name(),
        false => path.file_stem(),
    };
    name.map_or_else(|| "model".to_owned(), |n| n.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn places(folder: &Path) -> Places {
        Places {
            cache: folder.join("cache"),
            hub_endpoint: "http://127.0.0.1:1".to_owned(),
            hub_cache: folder.join("hub"),
            hub_token: None,
            pip: vec![],
        }
    }

    #[test]
    fn what_is_on_disk_is_taken_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("my.model");
        fs::create_dir(&model).unwrap();
        let file = folder.path().join("other.Q4_1.gguf");
        fs::write(&file, "").unwrap();
        for (path, name) in [(model, "my.model"), (file, "other.Q4_1")] {
            let located = locate(path.to_str(), &places(folder.path())).unwrap();
            let name = name.to_owned();
            assert_eq!(located, Located { path, name });
        }
    }

    #[test]
    fn an_argument_that_names_nothing_is_refused_with_what_it_may_be() {
        let folder = tempfile::tempdir().unwrap();
        for argument in ["no-such-folder", "./no/such", "a/b/c", "org/model.gguf", ""] {
            let error = locate(Some(argument), &places(folder.path())).unwrap_err();
            assert!(matches!(error, SourceError::NoSuchModel { .. }), "{error}");
            assert!(error.to_string().contains("org/name"), "{error}");
        }
    }
}
