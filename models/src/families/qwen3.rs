//! Qwen3: heads of their own width, a norm on each query and key head, no bias unless the config asks for it.
//! Source: transformers models/qwen3.

use super::{refusals, windows};
use crate::checkpoint::{CheckpointError, Config};
use crate::rope::{self, RopeKind};
use crate::spec::{Biases, DecoderSpec, LayerNames, Shape, ShapeDefaults};

pub(super) fn spec(config: &Config) -> Result<DecoderSpec, CheckpointError> {
    let fields = config.fields();
    refusals::flags_must_be_off(&fields, &["mlp_bias"])?;
    let shape = Shape::read(
        &fields,
        ShapeDefaults {
            head_dim: Some(128),
            eps: 1e-6,
        },
    )?;
    let kind = RopeKind {
        head_dim: shape.head_dim,
        partial: None,
        interleaved: false,
    };
    let (rope, max_positions) = rope::read(config, kind)?;
    let bias = fields.flag("attention_bias")?.unwrap_or(false);
    Ok(DecoderSpec {
        biases: Biases {
            qkv: bias,
            attention_output: bias,
            mlp: false,
        },
        windows: windows::read_qwen(&fields, shape.layers)?,
        names: LayerNames {
            query_key_norms: Some(["self_attn.q_norm", "self_attn.k_norm"]),
            ..LayerNames::PLAIN
        },
        ..DecoderSpec::plain(shape, rope, max_positions)
    })
}
