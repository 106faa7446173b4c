//! GLM-4-0414 as `Glm4ForCausalLM`: GLM with a second norm behind attention and MLP.
//! Source: transformers models/glm4.

use super::glm;
use crate::checkpoint::{CheckpointError, Config};
use crate::spec::{DecoderSpec, LayerNames};

pub(super) fn spec(config: &Config) -> Result<DecoderSpec, CheckpointError> {
    let glm = glm::spec(config)?;
    let names = LayerNames {
        attention_post_norm: Some("post_self_attn_layernorm"),
        mlp_post_norm: Some("post_mlp_layernorm"),
        ..glm.names
    };
    Ok(DecoderSpec { names, ..glm })
}
