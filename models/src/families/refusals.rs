//! Configuration fields that would change results and that no family here carries out. They are refused by name: a model
//! that answers almost rightly is worse than one that does not start.

use crate::checkpoint::{CheckpointError, Fields, same};
use serde_json::Value;

/// Objects and numbers whose mere presence asks for something.
const MUST_BE_ABSENT: [&str; 6] = [
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "query_pre_attn_scalar",
    "clip_qkv",
    "attention_chunk_size",
    "text_config",
];

/// Factors that change nothing when they are 1.
const MUST_BE_ONE: [&str; 6] = [
    "embedding_multiplier",
    "residual_multiplier",
    "attention_multiplier",
    "logits_scaling",
    "logit_scale",
    "scale_depth",
];

/// Counts and flags that change nothing when they are 0 or false.
const MUST_BE_ZERO: [&str; 10] = [
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "rope_interleaved",
    "use_qk_norm",
    "alibi",
    "add_cross_attention",
    "no_rope_layer_interval",
    "qk_layernorm",
    "use_bidirectional_attention",
];

/// Refuses what no family supports.
pub(super) fn check(fields: &Fields<'_>) -> Result<(), CheckpointError> {
    fields.dtype()?;
    for field in ["hidden_act", "hidden_activation"] {
        if !matches!(fields.text(field)?, None | Some("silu" | "swish")) {
            return Err(fields.unsupported(field, "silu"));
        }
    }
    let asks = |field: &str, harmless: &[Value]| {
        fields
            .value(field)
            .is_some_and(|value| !harmless.iter().any(|known| same(known, value)))
    };
    for field in MUST_BE_ABSENT {
        if asks(field, &[]) {
            return Err(fields.unsupported(field, "models without it"));
        }
    }
    for field in MUST_BE_ONE {
        if asks(field, &[Value::from(1)]) {
            return Err(fields.unsupported(field, "1"));
        }
    }
    for field in MUST_BE_ZERO {
        if asks(field, &[Value::from(0), Value::from(false)]) {
            return Err(fields.unsupported(field, "none"));
        }
    }
    if asks("is_causal", &[Value::from(true)]) {
        return Err(fields.unsupported("is_causal", "true"));
    }
    // One entry per layer; 1 means that the layer does rotate.
    let rotates = |layer: &Value| same(layer, &Value::from(1));
    let layers = fields.value("no_rope_layers");
    if layers.is_some_and(|layers| !layers.as_array().is_some_and(|l| l.iter().all(rotates))) {
        return Err(fields.unsupported("no_rope_layers", "1 for all layers"));
    }
    Ok(())
}

/// Refuses flags that this family does not have.
pub(super) fn flags_must_be_off(
    fields: &Fields<'_>,
    flags: &[&str],
) -> Result<(), CheckpointError> {
    for &flag in flags {
        if fields.flag(flag)? == Some(true) {
            return Err(fields.unsupported(flag, "false for this family"));
        }
    }
    Ok(())
}
