//! Opens a model as it is distributed and answers named tensors and typed configuration: a Hugging Face folder
//! (`folder`, `safetensors`) or a GGUF file (`gguf`). Nothing in a file can make it panic or allocate more than the file's
//! size suggests. What a tensor is for is not known here; see `crate::families`.

mod config;
mod error;
mod finite;
mod folder;
mod gguf;
mod mapped;
mod safetensors;
mod table;
mod unique;

pub(crate) use config::same;
pub use config::{Config, Fields};
pub use error::CheckpointError;
pub use gguf::{Metadata as GgufMetadata, Value as GgufValue};

use ropeteam_device::{Dtype, TensorView};
use std::path::{Path, PathBuf};
use table::TensorTable;

/// An opened model. Its weights are mapped, so drop it as soon as they are on the device: a file that is shortened
/// while it is mapped takes the process down.
pub struct Checkpoint {
    path: PathBuf,
    config: Config,
    generation: Option<Config>,
    gguf: Option<GgufMetadata>,
    tensors: TensorTable,
}

impl Checkpoint {
    /// Opens a folder with `config.json` and safetensors, the root of such a model in the hub's cache, a GGUF file, or a
    /// folder with a single GGUF file.
    ///
    /// # Errors
    /// Any file that is missing, damaged or contradicts itself. Shapes are checked when a tensor is asked for.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        match folder::locate(path)? {
            folder::Found::Gguf(file) => Self::open_gguf(&file),
            folder::Found::Folder(folder) => Self::open_folder(&folder),
        }
    }

    fn open_gguf(path: &Path) -> Result<Self, CheckpointError> {
        let file = gguf::open(path)?;
        Ok(Self {
            path: path.to_path_buf(),
            config: file.config,
            generation: None,
            gguf: Some(file.metadata),
            tensors: file.table,
        })
    }

    fn open_folder(folder: &Path) -> Result<Self, CheckpointError> {
        let config_file = folder.join("config.json");
        let config = Config::parse(&config_file, &mapped::read_text(&config_file)?)?;
        let generation_file = folder.join("generation_config.json");
        let generation = match mapped::read_text_if_there(&generation_file)? {
            Some(text) => Some(Config::parse(&generation_file, &text)?),
            None => None,
        };
        let tensors = folder::open_weights(folder)?;
        Ok(Self {
            path: folder.to_path_buf(),
            config,
            generation,
            gguf: None,
            tensors,
        })
    }

    /// The folder (of a hub cache: the snapshot) or the GGUF file that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `config.json`, or what a GGUF file says in its place.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// `generation_config.json`, if there is one.
    pub fn generation_config(&self) -> Option<&Config> {
        self.generation.as_ref()
    }

    /// The metadata of a GGUF file (tokenizer, chat template, ...); `None` for a folder.
    pub fn gguf(&self) -> Option<&GgufMetadata> {
        self.gguf.as_ref()
    }

    /// Names of all tensors, as Hugging Face calls them.
    pub fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.tensors.names()
    }

    /// A tensor of the shape `shape`, `[n]` or `[out, in]`. A vector's view has the shape `[n, 1]`.
    ///
    /// # Errors
    /// No such tensor, another shape, elements that no device takes, or an infinity or NaN among them.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>, CheckpointError> {
        let view = self.tensors.view(name, shape)?;
        if let Some(row) = finite::first_bad_row(&view) {
            let file = self.tensors.file_of(name).to_path_buf();
            return Err(CheckpointError::NotFinite {
                file,
                tensor: name.to_owned(),
                row,
            });
        }
        Ok(view)
    }

    /// The refusal of a tensor that the model cannot make use of.
    pub(crate) fn unread_tensor(&self, name: &str) -> CheckpointError {
        CheckpointError::UnreadTensor {
            file: self.tensors.file_of(name).to_path_buf(),
            tensor: name.to_owned(),
        }
    }

    /// The element format that most of the weights have.
    pub fn weights_dtype(&self) -> Option<Dtype> {
        self.tensors.main_dtype()
    }
}
