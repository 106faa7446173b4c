//! Opens a model as it is distributed and answers named tensors and typed configuration: a Hugging Face folder
//! (`folder`, `safetensors`, quantised: `compressed`) or a GGUF file (`gguf`). Nothing in a file can make it panic or allocate more than the file's
//! size suggests. What a tensor is for is not known here; see `crate::families`.

mod compressed;
mod config;
mod error;
mod finite;
mod floats;
mod folder;
mod gguf;
mod mapped;
mod safetensors;
mod table;
mod tensor;
mod unique;

pub(crate) use config::same;
pub use config::{Config, Fields};
pub use error::CheckpointError;
pub(crate) use floats::{is_float, read_all, read_row, rounded, stored};
pub use gguf::{Metadata as GgufMetadata, Value as GgufValue};
pub use tensor::Tensor;

use compressed::{Quantization, Scheme};
use ropeteam_device::Dtype;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use table::TensorTable;

/// An opened model. Its weights are mapped, so drop it as soon as they are on the device: a file that is shortened
/// while it is mapped takes the process down.
pub struct Checkpoint {
    path: PathBuf,
    config: Config,
    generation: Option<Config>,
    gguf: Option<GgufMetadata>,
    quantization: Option<Quantization>,
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
            quantization: None,
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
        let quantization = Quantization::read(&config)?;
        let tensors = folder::open_weights(folder)?;
        Ok(Self {
            path: folder.to_path_buf(),
            config,
            generation,
            gguf: None,
            quantization,
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

    /// Names of all tensors, as Hugging Face calls them; those that together stand for a quantised weight are one.
    pub fn tensor_names(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.tensors
            .names()
            .filter_map(|name| match self.part_of_weight(name) {
                None => Some(Cow::Borrowed(name)),
                Some((module, part, scheme)) if scheme.parts().first() == Some(&part) => {
                    Some(Cow::Owned(format!("{module}.weight")))
                }
                Some(_) => None,
            })
    }

    /// Module, part and scheme of a tensor that stands for a quantised weight together with others.
    fn part_of_weight<'a>(&self, name: &'a str) -> Option<(&'a str, &'a str, &Scheme)> {
        let (module, part) = name.rsplit_once('.')?;
        let scheme = self.quantization.as_ref()?.scheme(module)?;
        let first = scheme.parts().first()?;
        let holds = self.tensors.get(&format!("{module}.{first}"));
        let is_matrix = holds.is_some_and(|numbers| numbers.shape.len() == 2);
        (is_matrix && scheme.parts().contains(&part)).then_some((module, part, scheme))
    }

    /// A tensor of the shape `shape`, `[n]` or `[out, in]`. A vector's view has the shape `[n, 1]`.
    ///
    /// # Errors
    /// No such tensor, another shape, elements that no device takes, or an infinity or NaN among them.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor<'_>, CheckpointError> {
        if let (Some(module), &[outputs, inputs]) = (name.strip_suffix(".weight"), shape)
            && let Some(quantization) = &self.quantization
            && let Some(scheme) = quantization.scheme(module)
        {
            return compressed::read(&self.tensors, module, scheme, [outputs, inputs]);
        }
        let view = self.tensors.view(name, shape)?;
        if let Some(row) = finite::first_bad_row(&view) {
            let file = self.tensors.file_of(name).to_path_buf();
            return Err(CheckpointError::NotFinite {
                file,
                tensor: name.to_owned(),
                row,
            });
        }
        Ok(Tensor::from(view))
    }

    /// Numbers that the files hold of each element format, most first; weights of a quantised module count by what devices
    /// are given of them.
    pub fn elements(&self) -> Vec<(Dtype, u64)> {
        let mut sums: Vec<(Dtype, u64)> = Vec::new();
        for (name, tensor) in self.tensors.entries() {
            let stored = tensor
                .shape
                .iter()
                // The shape of a tensor that nobody can read was checked against nothing.
                .fold(1, |numbers: u64, &size| numbers.saturating_mul(size as u64));
            let (dtype, numbers) = match (self.part_of_weight(name), &tensor.dtype) {
                (Some((_, part, scheme)), _) if scheme.parts().first() == Some(&part) => (
                    scheme.given_dtype(),
                    stored.saturating_mul(scheme.numbers_per_element()),
                ),
                (None, Ok(dtype)) => (*dtype, stored),
                _ => continue,
            };
            match sums.iter_mut().find(|(known, _)| *known == dtype) {
                Some((_, sum)) => *sum = sum.saturating_add(numbers),
                None => sums.push((dtype, numbers)),
            }
        }
        sums.sort_by_key(|(_, numbers)| std::cmp::Reverse(*numbers));
        sums
    }

    /// Whether most weights are quantised.
    pub fn is_quantized(&self) -> bool {
        self.weights_dtype().is_some_and(|dtype| !is_float(dtype))
    }

    /// The shape of a tensor that stands by this name in a file.
    pub(crate) fn stored_shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|tensor| &tensor.shape[..])
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
        self.elements().first().map(|(dtype, _)| *dtype)
    }
}
