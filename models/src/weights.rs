//! Brings a checkpoint's tensors onto a device, as a `DecoderSpec` names them.
//! Every tensor is checked against the spec's shape first; of those that nobody reads, the ones that would change results
//! are refused and the others named in the log.

use crate::checkpoint::{Checkpoint, CheckpointError, Tensor, read_all, stored};
use crate::error::LoadError;
use crate::rounding::f32_view;
use crate::rounding::int8::Int8Rows;
use crate::rounding::smoothing::Smoothing;
use crate::spec::{DecoderSpec, EMBEDDING, FINAL_NORM, HEAD, Projection};
use ropeteam_device::{Device, Dtype, Precision, TensorView, Weight};
use std::collections::HashSet;

/// A decoder's weights on the device.
pub(crate) struct DecoderWeights {
    pub embedding: Weight,
    pub layers: Vec<LayerWeights>,
    pub final_norm: Weight,
    pub head: Weight,
}

/// One layer's weights.
pub(crate) struct LayerWeights {
    pub attention_norm: Weight,
    pub qkv: Weight,
    /// Of query heads and of key heads.
    pub head_norms: Option<[Weight; 2]>,
    pub attention_output: Weight,
    pub attention_post_norm: Option<Weight>,
    pub mlp_norm: Weight,
    pub gate_up: Weight,
    pub down: Weight,
    pub mlp_post_norm: Option<Weight>,
}

impl DecoderWeights {
    /// Loads everything that `spec` asks for.
    pub fn load(
        spec: &DecoderSpec,
        checkpoint: &Checkpoint,
        device: &mut dyn Device,
    ) -> Result<Self, LoadError> {
        let mut loader = Loader {
            spec,
            checkpoint,
            smooth: device.info().precision == Precision::Int8,
            device,
            read: HashSet::new(),
        };
        let embedding = loader.tensor(EMBEDDING, &[spec.vocab, spec.hidden])?;
        let embedding = loader
            .device
            .load_embedding(&embedding.view(), spec.tied_head)?;
        let layers = (0..spec.layers())
            .map(|index| loader.layer(index))
            .collect::<Result<_, _>>()?;
        let final_norm = loader.vector(FINAL_NORM, spec.hidden)?;
        let head = if spec.tied_head {
            embedding
        } else {
            let head = loader.tensor(HEAD, &[spec.vocab, spec.hidden])?;
            // A head is a table as well, and held as finely as one.
            loader.device.load_embedding(&head.view(), true)?
        };
        loader.check_unread()?;
        Ok(Self {
            embedding,
            layers,
            final_norm,
            head,
        })
    }
}

struct Loader<'a> {
    spec: &'a DecoderSpec,
    checkpoint: &'a Checkpoint,
    device: &'a mut dyn Device,
    /// The device rounds weights to int8.
    smooth: bool,
    read: HashSet<String>,
}

/// The tensors of a projection.
struct ProjectionTensors<'a> {
    matrices: Vec<Tensor<'a>>,
    biases: Vec<Tensor<'a>>,
}

fn views<'t>(tensors: &'t [Tensor<'_>]) -> Vec<TensorView<'t>> {
    tensors.iter().map(Tensor::view).collect()
}

fn weight_name(layer: usize, module: &str) -> String {
    format!("model.layers.{layer}.{module}.weight")
}

impl<'a> Loader<'a> {
    fn layer(&mut self, index: usize) -> Result<LayerWeights, LoadError> {
        let (spec, names) = (self.spec, self.spec.names);
        let projections = spec.projections();
        let (attention_norm, qkv) = self.normed(index, names.attention_norm, &projections.qkv)?;
        let head_norms = match names.query_key_norms {
            Some([query, key]) => Some([
                self.norm(index, query, spec.head_dim)?,
                self.norm(index, key, spec.head_dim)?,
            ]),
            None => None,
        };
        let attention_output = self.linear(index, &projections.attention_output)?;
        let attention_post_norm = self.norm_if(index, names.attention_post_norm)?;
        let (mlp_norm, gate_up) = self.normed(index, names.mlp_norm, &projections.gate_up)?;
        Ok(LayerWeights {
            attention_norm,
            qkv,
            head_norms,
            attention_output,
            attention_post_norm,
            mlp_norm,
            gate_up,
            down: self.linear(index, &projections.down)?,
            mlp_post_norm: self.norm_if(index, names.mlp_post_norm)?,
        })
    }

    fn linear(&mut self, layer: usize, projection: &Projection) -> Result<Weight, LoadError> {
        let tensors = self.parts(layer, projection)?;
        let (matrices, biases) = (views(&tensors.matrices), views(&tensors.biases));
        Ok(self.device.load_linear(&matrices, &biases)?)
    }

    /// A norm and the projection that reads what it normed; smoothed when the device is going to round it to int8
    /// and no file has done so before.
    fn normed(
        &mut self,
        layer: usize,
        norm: &str,
        projection: &Projection,
    ) -> Result<(Weight, Weight), LoadError> {
        let vector = self.tensor(&weight_name(layer, norm), &[projection.inputs])?;
        let tensors = self.parts(layer, projection)?;
        let (norm, matrices, biases) = (
            vector.view(),
            views(&tensors.matrices),
            views(&tensors.biases),
        );
        let is_rounded = matrices.iter().any(|view| view.dtype == Dtype::I8);
        if !self.smooth || is_rounded {
            let norm = self.device.load_vector(&norm)?;
            return Ok((norm, self.device.load_linear(&matrices, &biases)?));
        }
        let smoothing = Smoothing::new(&read_all(&norm), &matrices, Dtype::F32);
        let rounded: Vec<Int8Rows> = matrices
            .iter()
            .map(|matrix| Int8Rows::round(matrix, Some(&smoothing.columns), Dtype::F32))
            .collect();
        let matrices: Vec<_> = rounded.iter().map(Int8Rows::view).collect();
        let bytes = stored(Dtype::F32, &smoothing.norm);
        let norm = self.device.load_vector(&f32_view(&bytes, norm.shape))?;
        Ok((norm, self.device.load_linear(&matrices, &biases)?))
    }

    fn parts(
        &mut self,
        layer: usize,
        projection: &Projection,
    ) -> Result<ProjectionTensors<'a>, CheckpointError> {
        let (mut matrices, mut biases) = (Vec::new(), Vec::new());
        for &(module, rows) in &projection.parts {
            let stem = format!("model.layers.{layer}.{module}");
            matrices.push(self.tensor(&format!("{stem}.weight"), &[rows, projection.inputs])?);
            if projection.bias {
                biases.push(self.tensor(&format!("{stem}.bias"), &[rows])?);
            }
        }
        Ok(ProjectionTensors { matrices, biases })
    }

    fn norm(&mut self, layer: usize, module: &str, len: usize) -> Result<Weight, LoadError> {
        self.vector(&weight_name(layer, module), len)
    }

    fn norm_if(&mut self, layer: usize, module: Option<&str>) -> Result<Option<Weight>, LoadError> {
        module
            .map(|module| self.norm(layer, module, self.spec.hidden))
            .transpose()
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<Weight, LoadError> {
        let vector = self.tensor(name, &[len])?;
        Ok(self.device.load_vector(&vector.view())?)
    }

    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Tensor<'a>, CheckpointError> {
        self.read.insert(name.to_owned());
        self.checkpoint.tensor(name, shape)
    }

    /// Tensors that are not read may mean that the model is not what its configuration says: those that would change
    /// results are refused, the others told.
    fn check_unread(&self) -> Result<(), CheckpointError> {
        let predictors: HashSet<_> = self
            .checkpoint
            .tensor_names()
            .filter(|name| joins_two_tokens(name))
            .filter_map(|name| layer_of(&name))
            .collect();
        let leftover = |name: &str| is_known_leftover(name, self.spec, &predictors);
        let unread: Vec<_> = self
            .checkpoint
            .tensor_names()
            .filter(|name| !self.read.contains(&**name) && !leftover(name))
            .collect();
        if let Some(name) = unread.iter().find(|name| changes_results(name)) {
            return Err(self.checkpoint.unread_tensor(name));
        }
        for tensor in unread.iter().take(NAMED_UNREAD) {
            tracing::warn!(
                %tensor,
                "the model does not read this tensor of its checkpoint"
            );
        }
        if unread.len() > NAMED_UNREAD {
            let count = unread.len() - NAMED_UNREAD;
            tracing::warn!(
                count,
                "the model does not read further tensors of its checkpoint"
            );
        }
        Ok(())
    }
}

/// Unread tensors that are named one by one; of more the number is told.
const NAMED_UNREAD: usize = 20;

/// Tensors that checkpoints of such models carry for no use: stored rotary frequencies, the copy of a tied head, layers
/// for predicting further tokens (`predictors`), which are numbered behind the decoder's.
fn is_known_leftover(name: &str, spec: &DecoderSpec, predictors: &HashSet<usize>) -> bool {
    name.contains("rotary_emb.")
        || (spec.tied_head && name == HEAD)
        || layer_of(name).is_some_and(|layer| layer >= spec.layers() && predictors.contains(&layer))
}

/// Only a layer that predicts further tokens projects a hidden state together with an embedding.
fn joins_two_tokens(name: &str) -> bool {
    name.contains(".eh_proj.")
}

/// Unread tensors without which the model computes something else: whatever is in layers, and biases outside them.
fn changes_results(name: &str) -> bool {
    let outer_biases =
        [FINAL_NORM, HEAD].map(|weight| weight.trim_end_matches("weight").to_owned() + "bias");
    layer_of(name).is_some() || outer_biases.iter().any(|bias| bias == name)
}

/// The layer that a tensor belongs to. Names of GGUF files that have no other keep their own prefix.
fn layer_of(name: &str) -> Option<usize> {
    let rest = ["model.layers.", "blk."]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))?;
    rest.split_once('.')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Config;
    use crate::families;
    use std::path::Path;

    #[test]
    fn only_leftovers_of_no_use_go_unmentioned() {
        let config = r#"{"model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "vocab_size": 9,
            "num_attention_heads": 4, "num_hidden_layers": 2, "tie_word_embeddings": true}"#;
        let mut spec =
            families::spec(&Config::parse(Path::new("config.json"), config).unwrap()).unwrap();
        let predictors = HashSet::from([2]);
        for name in [
            "model.layers.1.self_attn.rotary_emb.inv_freq",
            "lm_head.weight",
            "model.layers.2.mlp.up_proj.weight",
            "blk.2.nextn.eh_proj.weight",
        ] {
            assert!(is_known_leftover(name, &spec, &predictors), "{name}");
        }
        for (name, changes) in [
            ("model.layers.1.self_attn.q_proj.bias", true),
            ("blk.1.attn_sinks.weight", true),
            // A layer that predicts nothing is one that the configuration leaves out.
            ("model.layers.3.mlp.up_proj.weight", true),
            ("lm_head.bias", true),
            ("model.norm.bias", true),
            ("model.extra", false),
        ] {
            assert!(!is_known_leftover(name, &spec, &predictors), "{name}");
            assert_eq!(changes_results(name), changes, "{name}");
        }
        spec.tied_head = false;
        assert!(!is_known_leftover("lm_head.weight", &spec, &predictors));
    }
}
