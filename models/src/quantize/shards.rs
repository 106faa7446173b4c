//! The weights of a model as safetensors: tensors are gathered and written shard by shard.

use super::error::QuantizeError;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes after which a shard is written. It is held in memory until then.
const SHARD_BYTES: usize = 1 << 30;

/// One tensor of the file.
pub(super) struct FileTensor {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// Writes tensors to a folder.
pub(super) struct Shards {
    folder: PathBuf,
    gathered: Vec<FileTensor>,
    gathered_bytes: usize,
    /// Names of the tensors of each shard that is written.
    written: Vec<Vec<String>>,
    total_bytes: usize,
}

impl Shards {
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_path_buf(),
            gathered: Vec::new(),
            gathered_bytes: 0,
            written: Vec::new(),
            total_bytes: 0,
        }
    }

    /// Adds a tensor.
    pub fn add(&mut self, tensor: FileTensor) -> Result<(), QuantizeError> {
        let bytes = tensor.bytes.len();
        if self.gathered_bytes + bytes > SHARD_BYTES {
            self.write()?;
        }
        self.gathered_bytes += bytes;
        self.total_bytes += bytes;
        self.gathered.push(tensor);
        Ok(())
    }

    /// Bytes of all tensors so far.
    pub fn bytes(&self) -> usize {
        self.total_bytes
    }

    fn provisional(&self, shard: usize) -> PathBuf {
        self.folder.join(format!("shard-{shard}.safetensors"))
    }

    fn write(&mut self) -> Result<(), QuantizeError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let file = self.provisional(self.written.len());
        let mut views = Vec::new();
        for tensor in &self.gathered {
            let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes);
            let view = view.map_err(|error| QuantizeError::write(&file, error))?;
            views.push((tensor.name.as_str(), view));
        }
        // Libraries in Python read what framework the tensors are for.
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        safetensors::serialize_to_file(views, Some(metadata), &file)
            .map_err(|error| QuantizeError::write(&file, error))?;
        let names = self.gathered.drain(..).map(|tensor| tensor.name);
        self.written.push(names.collect());
        self.gathered_bytes = 0;
        Ok(())
    }

    /// Writes the rest, gives the shards their names and writes the index if there are several.
    pub fn finish(mut self) -> Result<(), QuantizeError> {
        self.write()?;
        let count = self.written.len();
        let name = |shard: usize| match count {
            1 => "model.safetensors".to_owned(),
            _ => format!("model-{:05}-of-{count:05}.safetensors", shard + 1),
        };
        let mut weight_map = BTreeMap::new();
        for (shard, tensors) in self.written.iter().enumerate() {
            let file = self.folder.join(name(shard));
            fs::rename(self.provisional(shard), &file)
                .map_err(|error| QuantizeError::write(&file, error))?;
            weight_map.extend(tensors.iter().map(|tensor| (tensor, name(shard))));
        }
        if count > 1 {
            let index =
                json!({"metadata": {"total_size": self.total_bytes}, "weight_map": weight_map});
            let file = self.folder.join("model.safetensors.index.json");
            fs::write(&file, format!("{index:#}\n"))
                .map_err(|error| QuantizeError::write(&file, error))?;
        }
        Ok(())
    }
}
