//! What a server tells about a model and takes from it as defaults, gathered from its configuration files.

use crate::checkpoint::{Checkpoint, CheckpointError, Config};
use crate::families;
use crate::spec::DecoderSpec;
use ropeteam_device::{Dtype, Precision};
use ropeteam_engine::ids::TokenId;

/// A model's facts.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// `LlamaForCausalLM` and so on.
    pub architecture: &'static str,
    /// Longest sequence that its positions are made for, rope scaling included.
    pub max_position_embeddings: u32,
    /// Rows of the embedding table and of the head. Ids from here on cannot be computed, whatever the tokenizer knows.
    pub vocab_size: u32,
    /// Width of the residual stream.
    pub hidden_size: u32,
    /// Decoder layers.
    pub layers: u32,
    /// Weights in all.
    pub parameters: u64,
    /// Ids that end a sequence: those of generation_config.json first, then those that config.json adds.
    pub eos_ids: Vec<TokenId>,
    /// The id that begins a text, if the model has one.
    pub bos_id: Option<TokenId>,
    /// Element format the configuration names, or else that of most weights.
    pub dtype: Dtype,
    /// How many numbers the files hold in each format, most first.
    pub elements: Vec<(Dtype, u64)>,
    /// What the model's authors sample with.
    pub sampling: SamplingDefaults,
}

/// Sampling values of generation_config.json; `None` where it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplingDefaults {
    /// False means greedy whatever the other values are.
    pub do_sample: Option<bool>,
    /// Divisor of the logits.
    pub temperature: Option<f32>,
    /// Nucleus.
    pub top_p: Option<f32>,
    /// How many of the best tokens are kept; 0 keeps all.
    pub top_k: Option<u32>,
    /// Divisor of the logits of tokens seen before.
    pub repetition_penalty: Option<f32>,
}

impl ModelInfo {
    /// Gathers the facts of an opened model.
    ///
    /// # Errors
    /// Fields of the wrong kind, and an element format that is not supported.
    pub fn gather(checkpoint: &Checkpoint, spec: &DecoderSpec) -> Result<Self, CheckpointError> {
        let config = checkpoint.config();
        let named_dtype = config.fields().dtype()?;
        Ok(Self {
            architecture: families::architecture(config)?,
            max_position_embeddings: saturated(spec.max_positions),
            vocab_size: saturated(spec.vocab),
            hidden_size: saturated(spec.hidden),
            layers: saturated(spec.layers()),
            parameters: spec.parameters(),
            eos_ids: token_ids(checkpoint, "eos_token_id")?,
            bos_id: token_ids(checkpoint, "bos_token_id")?.first().copied(),
            dtype: named_dtype
                .or(checkpoint.weights_dtype())
                .unwrap_or(Dtype::F32),
            elements: checkpoint.elements(),
            sampling: match checkpoint.generation_config() {
                Some(generation) => SamplingDefaults::read(generation)?,
                None => SamplingDefaults::default(),
            },
        })
    }

    /// The arithmetic that suits the checkpoint: f32 where its weights are, else as they are stored.
    pub fn default_precision(&self) -> Precision {
        match self.dtype {
            Dtype::F32 if !self.is_quantized() => Precision::F32,
            _ => Precision::Stored,
        }
    }

    /// Whether most weights are quantised.
    pub fn is_quantized(&self) -> bool {
        let most = self.elements.first().map(|(dtype, _)| *dtype);
        !matches!(most, None | Some(Dtype::F32 | Dtype::F16 | Dtype::BF16))
    }
}

impl SamplingDefaults {
    fn read(generation: &Config) -> Result<Self, CheckpointError> {
        let fields = generation.fields();
        let number = |field: &str| Ok(fields.number(field)?.map(|number| number as f32));
        Ok(Self {
            do_sample: fields.flag("do_sample")?,
            temperature: number("temperature")?,
            top_p: number("top_p")?,
            top_k: fields.count_if("top_k")?.map(saturated),
            repetition_penalty: number("repetition_penalty")?,
        })
    }
}

/// Ids of generation_config.json, then those of config.json that are new.
fn token_ids(checkpoint: &Checkpoint, field: &str) -> Result<Vec<TokenId>, CheckpointError> {
    let mut ids = Vec::new();
    for config in checkpoint
        .generation_config()
        .into_iter()
        .chain([checkpoint.config()])
    {
        for id in config.fields().token_ids(field)? {
            if !ids.contains(&TokenId(id)) {
                ids.push(TokenId(id));
            }
        }
    }
    Ok(ids)
}

fn saturated(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}
