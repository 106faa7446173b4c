//! What can be wrong with a model's files: every variant names the file and what was expected of it.

use std::path::PathBuf;

/// A checkpoint cannot be opened or does not hold what its model needs. The text is meant for the operator.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The operating system refused.
    #[error("cannot read {file}: {source}", file = file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's own words.
        source: std::io::Error,
    },
    /// A symbolic link (a snapshot of the hub's cache is made of them) whose target is gone.
    #[error(
        "{link} is a link to {target}, which does not exist (interrupted download?)",
        link = link.display(),
        target = target.display()
    )]
    DanglingLink {
        /// The link.
        link: PathBuf,
        /// What it points to.
        target: PathBuf,
    },
    /// The path holds no model that can be opened.
    #[error("{path} is no model: {detail}", path = path.display())]
    NotAModel {
        /// The path.
        path: PathBuf,
        /// What was looked for.
        detail: String,
    },
    /// The file breaks its own format.
    #[error("{file} is damaged or not of its kind: {detail}", file = file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// A configuration field is missing or has a value of the wrong kind.
    #[error("{file}: {field} must be {expected}, found {found}", file = file.display())]
    Field {
        /// The file.
        file: PathBuf,
        /// The field, with the path to it.
        field: String,
        /// What it has to be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A configuration field asks for something that is not built and would change results.
    #[error("{file}: {field} is {found}, which is not supported; supported: {supported}", file = file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The field, with the path to it.
        field: String,
        /// Its value.
        found: String,
        /// What would work.
        supported: String,
    },
    /// No family is known under the architecture's name.
    #[error("{file}: architecture {architecture} is not known; known: {known}", file = file.display())]
    UnknownArchitecture {
        /// The file.
        file: PathBuf,
        /// The name found.
        architecture: String,
        /// All known names.
        known: String,
    },
    /// The model needs a tensor that the files do not hold.
    #[error("{file} holds no tensor {tensor}, which the model needs as {expected}", file = file.display())]
    MissingTensor {
        /// The file, or the index of several.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// The shape it should have.
        expected: String,
    },
    /// A tensor has another shape than the configuration says.
    #[error("{file}: tensor {tensor} has shape {found:?}, expected {expected:?}", file = file.display())]
    WrongShape {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Shape by the configuration.
        expected: Vec<usize>,
        /// Shape in the file.
        found: Vec<usize>,
    },
    /// The files hold a tensor that would change results and that the model as configured does not read.
    #[error(
        "{file} holds tensor {tensor}, which the model does not read as its configuration stands; its results would be wrong",
        file = file.display()
    )]
    UnreadTensor {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A tensor has elements that no device takes.
    #[error("{file}: tensor {tensor} has elements {found}; supported: {supported}", file = file.display())]
    WrongDtype {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Element format in the file.
        found: String,
        /// Formats that work.
        supported: &'static str,
    },
    /// A weight is infinite or not a number, so every logit would be.
    #[error("{file}: tensor {tensor} holds an infinity or NaN in row {row}", file = file.display())]
    NotFinite {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its first such row.
        row: usize,
    },
}

impl CheckpointError {
    /// A `Malformed` error.
    pub(crate) fn malformed(file: &std::path::Path, detail: impl Into<String>) -> Self {
        Self::Malformed {
            file: file.to_path_buf(),
            detail: detail.into(),
        }
    }
}
