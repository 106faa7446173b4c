//! What both formats write alike: the folder, tensors by name, and whatever of the model stays as it is.

use super::Written;
use super::error::QuantizeError;
use super::folder::NewFolder;
use super::grid::Int4Rows;
use super::shards::{FileTensor, Shards};
use crate::checkpoint::{Checkpoint, Tensor, is_float, stored};
use crate::rounding::int8::Int8Rows;
use crate::spec::{DecoderSpec, Projection};
use ropeteam_device::Dtype;
use safetensors::tensor::Dtype as FileDtype;
use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;

/// A quantised model in the making.
pub(super) struct Output<'a> {
    checkpoint: &'a Checkpoint,
    folder: NewFolder,
    shards: Shards,
    names: HashSet<String>,
    matrices: usize,
}

/// A matrix of a layer, to be rounded.
pub(super) struct Source<'a> {
    /// Its module.
    pub module: String,
    /// Its numbers, which are floats.
    pub tensor: Tensor<'a>,
}

impl<'a> Output<'a> {
    /// Begins to write `checkpoint` to `out`.
    pub fn begin(checkpoint: &'a Checkpoint, out: &Path) -> Result<Self, QuantizeError> {
        if checkpoint.gguf().is_some() {
            let problem = "is a GGUF file; a folder in Hugging Face format is needed, with its tokenizer files";
            return Err(refused(checkpoint, problem));
        }
        if checkpoint.is_quantized() {
            return Err(refused(checkpoint, "is quantised already"));
        }
        let folder = NewFolder::begin(out)?;
        Ok(Self {
            checkpoint,
            shards: Shards::new(folder.path()),
            folder,
            names: HashSet::new(),
            matrices: 0,
        })
    }

    /// The matrices of a projection.
    pub fn sources(
        &self,
        layer: usize,
        projection: &Projection,
    ) -> Result<Vec<Source<'a>>, QuantizeError> {
        let source = |(name, rows): &(&'static str, usize)| {
            let module = format!("model.layers.{layer}.{name}");
            let tensor = self
                .checkpoint
                .tensor(&format!("{module}.weight"), &[*rows, projection.inputs])?;
            match is_float(tensor.dtype) {
                true => Ok(Source { module, tensor }),
                false => Err(refused(self.checkpoint, "is quantised already")),
            }
        };
        projection.parts.iter().map(source).collect()
    }

    /// Adds a vector of floats.
    pub fn add_vector(
        &mut self,
        name: String,
        dtype: Dtype,
        values: &[f32],
    ) -> Result<(), QuantizeError> {
        self.names.insert(name.clone());
        self.add(&name, float(dtype), &[values.len()], stored(dtype, values))
    }

    /// Adds a matrix of int8; its factors are numbers of `scale_dtype`.
    pub fn add_int8(
        &mut self,
        module: &str,
        rows: Int8Rows,
        scale_dtype: Dtype,
    ) -> Result<(), QuantizeError> {
        self.count(module);
        let scales = stored(scale_dtype, &rows.scales);
        let scale_shape = [rows.shape[0], 1];
        let part = |part| format!("{module}.{part}");
        self.add(&part("weight"), FileDtype::I8, &rows.shape, rows.bytes)?;
        self.add(
            &part("weight_scale"),
            float(scale_dtype),
            &scale_shape,
            scales,
        )
    }

    /// Adds a matrix of int4; its factors are numbers of `scale_dtype`.
    pub fn add_int4(
        &mut self,
        module: &str,
        rows: &Int4Rows,
        scale_dtype: Dtype,
    ) -> Result<(), QuantizeError> {
        self.count(module);
        let [outputs, inputs] = rows.shape;
        let groups = rows.groups_per_row();
        let part = |part| format!("{module}.{part}");
        let packed = rows.packed_numbers();
        self.add(
            &part("weight_packed"),
            FileDtype::I32,
            &[outputs, inputs / 8],
            packed,
        )?;
        let scales = stored(scale_dtype, &rows.scales());
        self.add(
            &part("weight_scale"),
            float(scale_dtype),
            &[outputs, groups],
            scales,
        )?;
        let shape = rows
            .shape
            .iter()
            .flat_map(|size| (*size as i64).to_le_bytes());
        self.add(&part("weight_shape"), FileDtype::I64, &[2], shape.collect())?;
        if rows.format.symmetric {
            return Ok(());
        }
        let zeros = rows.packed_zeros();
        let zeros_shape = [outputs.div_ceil(8), groups];
        self.add(
            &part("weight_zero_point"),
            FileDtype::I32,
            &zeros_shape,
            zeros,
        )
    }

    fn count(&mut self, module: &str) {
        self.matrices += 1;
        self.names.insert(format!("{module}.weight"));
    }

    fn add(
        &mut self,
        name: &str,
        dtype: FileDtype,
        shape: &[usize],
        bytes: Vec<u8>,
    ) -> Result<(), QuantizeError> {
        self.shards.add(FileTensor {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
            bytes,
        })
    }

    /// Adds what has not been added, as it is, with the configuration and the texts.
    pub fn finish(mut self, spec: &DecoderSpec, scheme: Value) -> Result<Written, QuantizeError> {
        for name in self.checkpoint.tensor_names() {
            let Some(shape) = self.checkpoint.stored_shape(&name) else {
                continue;
            };
            if self.names.contains(&*name) || !(1..=2).contains(&shape.len()) {
                continue;
            }
            let tensor = self.checkpoint.tensor(&name, shape)?;
            self.shards.add(FileTensor {
                name: name.into_owned(),
                dtype: float(tensor.dtype),
                shape: shape.to_vec(),
                bytes: tensor.bytes.into_owned(),
            })?;
        }
        let mut config = self.checkpoint.config().values().clone();
        config.insert("quantization_config".to_owned(), scheme);
        // Left out, the default differs from family to family.
        config.insert("tie_word_embeddings".to_owned(), spec.tied_head.into());
        self.folder.write_config(&config)?;
        self.folder.copy_texts(self.checkpoint.path())?;
        let bytes = self.shards.bytes();
        self.shards.finish()?;
        self.folder.finish()?;
        Ok(Written {
            matrices: self.matrices,
            bytes,
        })
    }
}

fn refused(checkpoint: &Checkpoint, problem: &str) -> QuantizeError {
    QuantizeError::Source {
        path: checkpoint.path().to_path_buf(),
        problem: problem.to_owned(),
    }
}

/// A float format's name in the file.
fn float(dtype: Dtype) -> FileDtype {
    match dtype {
        Dtype::F16 => FileDtype::F16,
        Dtype::BF16 => FileDtype::BF16,
        _ => FileDtype::F32,
    }
}
