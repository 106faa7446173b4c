//! What can be wrong with a configuration: always one line that names the place, the key and what is expected.

use std::fmt;
use std::path::PathBuf;

/// A configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read or is no JSON object.
    #[error("{}: {problem}", file.display())]
    File {
        /// Which file.
        file: PathBuf,
        /// What is wrong, with line and column where known.
        problem: String,
    },
    /// One option is wrong.
    #[error("{place}: {problem}")]
    Option {
        /// Where it stands.
        place: Place,
        /// What is wrong and what is expected.
        problem: String,
    },
}

/// Where an option was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a file, under this path of keys.
    File(PathBuf, String),
    /// In this environment variable.
    Env(String),
    /// By this flag, named without dashes.
    Flag(String),
    /// In a change asked for while the server runs, under this key.
    Management(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(file, path) => write!(f, "{}: {path}", file.display()),
            Place::Env(variable) => write!(f, "{variable}"),
            Place::Flag(flag) => write!(f, "--{flag}"),
            Place::Management(key) => f.write_str(key),
        }
    }
}
