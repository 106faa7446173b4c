//! Mistral 7B and its kin: Llama with a sliding window on all layers.
//! Source: transformers models/mistral.

use super::{refusals, windows};
use crate::checkpoint::{CheckpointError, Config};
use crate::rope::{self, RopeKind};
use crate::spec::{DecoderSpec, Shape, ShapeDefaults};

/// Where the key is missing; `null` means none.
const DEFAULT_WINDOW: usize = 4096;

pub(super) fn spec(config: &Config) -> Result<DecoderSpec, CheckpointError> {
    let fields = config.fields();
    refusals::flags_must_be_off(&fields, &["attention_bias", "mlp_bias"])?;
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
    let window = match fields.size_if("sliding_window")? {
        None if !fields.has_key("sliding_window") => Some(DEFAULT_WINDOW),
        given => given,
    };
    Ok(DecoderSpec {
        windows: windows::read_uniform(&fields, shape.layers, window)?,
        ..DecoderSpec::plain(shape, rope, max_positions)
    })
}
