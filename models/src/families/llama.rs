//! Llama 2 and 3.x, SmolLM2 and what else is saved as `LlamaForCausalLM`.
//! Source: transformers models/llama.

use super::windows;
use crate::checkpoint::{CheckpointError, Config};
use crate::rope::{self, RopeKind};
use crate::spec::{Biases, DecoderSpec, Shape, ShapeDefaults};

pub(super) fn spec(config: &Config) -> Result<DecoderSpec, CheckpointError> {
    let fields = config.fields();
    windows::refuse(&fields)?;
    let shape = Shape::read(
        &fields,
        ShapeDefaults {
            head_dim: None,
            eps: 1e-6,
        },
    )?;
    let kind = RopeKind {
        head_dim: shape.head_dim,
        partial: None,
        interleaved: false,
    };
    let (rope, max_positions) = rope::read(config, kind)?;
    let attention_bias = fields.flag("attention_bias")?.unwrap_or(false);
    let mlp_bias = fields.flag("mlp_bias")?.unwrap_or(false);
    Ok(DecoderSpec {
        biases: Biases {
            qkv: attention_bias,
            attention_output: attention_bias,
            mlp: mlp_bias,
        },
        ..DecoderSpec::plain(shape, rope, max_positions)
    })
}
