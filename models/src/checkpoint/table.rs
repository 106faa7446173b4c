//! The table of all tensors of a checkpoint, whatever files they lie in, and the checked way to one of them.

use super::error::CheckpointError;
use super::floats::is_float;
use super::mapped::MappedFile;
use ropeteam_device::{Dtype, TensorView};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Element formats that devices take, for messages.
const SUPPORTED_DTYPES: &str = "F32, F16, BF16, and in GGUF files Q4_0, Q4_1, Q8_0, Q4_K, Q6_K";
/// Those of factors, for messages.
const FLOAT_DTYPES: &str = "F32, F16, BF16";

/// Where a tensor lies. `bytes` is inside its file; that it fits shape and format is checked when it is asked for.
pub(crate) struct StoredTensor {
    /// Index of its file in the table.
    pub file: usize,
    /// Its element format, or the name of one that is not supported.
    pub dtype: Result<Dtype, String>,
    /// Its shape, `[out, in]` for a matrix.
    pub shape: Vec<usize>,
    /// Its bytes in the file.
    pub bytes: Range<usize>,
    /// Row r is stored as row `row_order[r]`.
    pub row_order: Option<Vec<u32>>,
}

/// All tensors of a checkpoint by name.
pub(crate) struct TensorTable {
    source: PathBuf,
    files: Vec<MappedFile>,
    tensors: BTreeMap<String, StoredTensor>,
}

impl TensorTable {
    /// An empty table; `source` is the file that messages about a missing tensor name.
    pub fn new(source: &Path) -> Self {
        Self {
            source: source.to_path_buf(),
            files: Vec::new(),
            tensors: BTreeMap::new(),
        }
    }

    /// Takes a file in and returns its index.
    pub fn add_file(&mut self, file: MappedFile) -> usize {
        self.files.push(file);
        self.files.len() - 1
    }

    /// Adds a tensor; its name must be new.
    pub fn insert(&mut self, name: String, tensor: StoredTensor) -> Result<(), CheckpointError> {
        if self.tensors.contains_key(&name) {
            let detail = format!("the name {name} stands there twice");
            return Err(CheckpointError::malformed(&self.source, detail));
        }
        self.tensors.insert(name, tensor);
        Ok(())
    }

    /// All names, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The tensor's entry, if there is one.
    pub fn get(&self, name: &str) -> Option<&StoredTensor> {
        self.tensors.get(name)
    }

    /// All tensors with their names, in alphabetical order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &StoredTensor)> {
        self.tensors
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The tensor as a view, if it has the shape `expected` (`[n]` or `[out, in]`), a known format and as many bytes
    /// as these take. A vector's view has the shape `[n, 1]`.
    pub fn view(&self, name: &str, expected: &[usize]) -> Result<TensorView<'_>, CheckpointError> {
        let tensor = self.find(name, &[expected])?;
        let file = &self.files[tensor.file];
        let wrong_dtype = |found: String| self.wrong_dtype(name, found, SUPPORTED_DTYPES);
        let dtype = tensor.dtype.clone().map_err(wrong_dtype)?;
        let shape = match *expected {
            [rows, cols] => [rows, cols],
            [len] => [len, 1],
            [] => [1, 1],
            _ => return Err(wrong_dtype(format!("in {} dimensions", expected.len()))),
        };
        let row_bytes = dtype
            .row_bytes(shape[1])
            .ok_or_else(|| wrong_dtype(format!("{dtype:?} in rows of {}", shape[1])))?;
        let bytes = &file.bytes()[tensor.bytes.clone()];
        if shape[0].checked_mul(row_bytes) != Some(bytes.len()) {
            let detail = format!(
                "{name} has {} bytes, which do not fit its shape",
                bytes.len()
            );
            return Err(CheckpointError::malformed(file.path(), detail));
        }
        Ok(TensorView {
            dtype,
            shape,
            bytes,
            row_order: tensor.row_order.as_deref(),
            scales: None,
        })
    }

    /// A tensor of floats that has one of the shapes `expected`, as a view.
    pub fn floats(
        &self,
        name: &str,
        expected: &[&[usize]],
    ) -> Result<TensorView<'_>, CheckpointError> {
        let shape = &self.find(name, expected)?.shape;
        let view = self.view(name, shape)?;
        match is_float(view.dtype) {
            true => Ok(view),
            false => Err(self.wrong_dtype(name, format!("{:?}", view.dtype), FLOAT_DTYPES)),
        }
    }

    /// The bytes of a tensor of the shape `expected` whose elements no device takes as they are, by their name in the file.
    pub fn raw(
        &self,
        name: &str,
        elements: &'static str,
        expected: &[usize],
    ) -> Result<&[u8], CheckpointError> {
        let tensor = self.find(name, &[expected])?;
        match &tensor.dtype {
            Err(found) if found == elements => {
                Ok(&self.files[tensor.file].bytes()[tensor.bytes.clone()])
            }
            Err(found) => Err(self.wrong_dtype(name, found.clone(), elements)),
            Ok(found) => Err(self.wrong_dtype(name, format!("{found:?}"), elements)),
        }
    }

    /// The tensor, if it has one of the shapes `expected`.
    fn find(&self, name: &str, expected: &[&[usize]]) -> Result<&StoredTensor, CheckpointError> {
        let wanted = expected.first().copied().unwrap_or_default();
        let tensor = self
            .get(name)
            .ok_or_else(|| CheckpointError::MissingTensor {
                file: self.source.clone(),
                tensor: name.to_owned(),
                expected: format!("{wanted:?}"),
            })?;
        if expected.contains(&&tensor.shape[..]) {
            return Ok(tensor);
        }
        Err(CheckpointError::WrongShape {
            file: self.files[tensor.file].path().to_path_buf(),
            tensor: name.to_owned(),
            expected: wanted.to_vec(),
            found: tensor.shape.clone(),
        })
    }

    fn wrong_dtype(&self, name: &str, found: String, supported: &'static str) -> CheckpointError {
        CheckpointError::WrongDtype {
            file: self.file_of(name).to_path_buf(),
            tensor: name.to_owned(),
            found,
            supported,
        }
    }

    /// The file that holds the tensor, for messages; the table's source when there is no such tensor.
    pub fn file_of(&self, name: &str) -> &Path {
        self.get(name)
            .map_or(&self.source, |tensor| self.files[tensor.file].path())
    }
}
