//! GLM-4 9B as `GlmForCausalLM`: half of each head is rotated in neighbouring pairs, gate and up are one tensor.
//! Source: transformers models/glm.

use super::{refusals, windows};
use crate::checkpoint::{CheckpointError, Config};
use crate::rope::{self, RopeKind};
use crate::spec::{Biases, DecoderSpec, GateUp, LayerNames, Shape, ShapeDefaults};

pub(super) fn spec(config: &Config) -> Result<DecoderSpec, CheckpointError> {
    let fields = config.fields();
    refusals::flags_must_be_off(&fields, &["mlp_bias"])?;
    windows::refuse(&fields)?;
    let shape = Shape::read(
        &fields,
        ShapeDefaults {
            head_dim: Some(128),
            eps: 1.5625e-7,
        },
    )?;
    let kind = RopeKind {
        head_dim: shape.head_dim,
        partial: Some(0.5),
        interleaved: true,
    };
    let (rope, max_positions) = rope::read(config, kind)?;
    Ok(DecoderSpec {
        biases: Biases {
            qkv: fields.flag("attention_bias")?.unwrap_or(false),
            ..Biases::default()
        },
        names: LayerNames {
            gate_up: GateUp::Stacked("mlp.gate_up_proj"),
            ..LayerNames::PLAIN
        },
        ..DecoderSpec::plain(shape, rope, max_positions)
    })
}
