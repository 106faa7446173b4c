//! Qwen2 and Qwen2.5: Llama with biases on query, key and value, and a sliding window that most configs mention but switch off.
//! Source: transformers models/qwen2.

use super::{refusals, windows};
use crate::checkpoint::{CheckpointError, Config};
use crate::rope::{self, RopeKind};
use crate::spec::{Biases, DecoderSpec, Shape, ShapeDefaults};

pub(super) fn spec(config: &Config) -> Result<DecoderSpec, CheckpointError> {
    let fields = config.fields();
    refusals::flags_must_be_off(&fields, &["mlp_bias"])?;
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
    Ok(DecoderSpec {
        // The biases are part of the family; no key says so.
        biases: Biases {
            qkv: true,
            ..Biases::default()
        },
        windows: windows::read_qwen(&fields, shape.layers)?,
        ..DecoderSpec::plain(shape, rope, max_positions)
    })
}
