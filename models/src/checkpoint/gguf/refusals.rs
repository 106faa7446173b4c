//! GGUF metadata that would change results and that nothing here carries out: refused by its key.

use super::keys::Keys;
use crate::checkpoint::error::CheckpointError;

/// Keys whose presence (with another value than the one given) changes results in a way that is not built.
const REFUSED: [(&str, f64); 12] = [
    ("expert_count", 0.0),
    ("attention.max_alibi_bias", 0.0),
    ("attention.clamp_kqv", 0.0),
    ("attn_logit_softcapping", 0.0),
    ("final_logit_softcapping", 0.0),
    ("logit_scale", 1.0),
    ("embedding_scale", 1.0),
    ("residual_scale", 1.0),
    ("rope.scaling.attn_factor", 1.0),
    ("rope.scaling.yarn_attn_factor", 1.0),
    ("rope.scaling.yarn_ext_factor", 1.0),
    ("rope.scaling.yarn_log_multiplier", 0.0),
];

/// How far a stated scale of the scores may be from that of the head's width, relative to it: rounding to f32.
const SCALE_TOLERANCE: f64 = 1e-6;

/// Refuses what no family supports.
pub(super) fn check(keys: &Keys<'_>) -> Result<(), CheckpointError> {
    let parts = keys.metadata.int("split.count").filter(|&parts| parts > 1);
    if let Some(parts) = parts {
        return Err(CheckpointError::Unsupported {
            file: keys.file.to_path_buf(),
            field: "split.count".to_owned(),
            found: parts.to_string(),
            supported: "models in one file".to_owned(),
        });
    }
    for (key, harmless) in REFUSED {
        refuse_unless(keys, key, &harmless.to_string(), |value| value == harmless)?;
    }
    check_attention(keys)
}

fn check_attention(keys: &Keys<'_>) -> Result<(), CheckpointError> {
    if let Some(width) = keys.float("attention.key_length") {
        refuse_unless(
            keys,
            "attention.value_length",
            "that of the keys",
            |value| value == width,
        )?;
    }
    let causal = "attention.causal";
    if keys.get(causal).is_some() && keys.metadata.flag(&keys.name(causal)) != Some(true) {
        return Err(keys.unsupported(causal, &found(keys, causal), "true"));
    }
    let context = keys.float("context_length");
    refuse_unless(
        keys,
        "attention.sliding_window",
        "none, or the context length",
        |window| window == 0.0 || context.is_some_and(|context| window >= context),
    )?;
    let usual = head_dim(keys).map(|width| 1.0 / width.sqrt());
    refuse_unless(
        keys,
        "attention.scale",
        "1 over the square root of the head's width",
        |scale| {
            let near = |usual: f64| (scale - usual).abs() <= usual * SCALE_TOLERANCE;
            scale == 0.0 || usual.is_some_and(near)
        },
    )
}

/// Elements per head, where the metadata say.
fn head_dim(keys: &Keys<'_>) -> Option<f64> {
    keys.float("attention.key_length")
        .or_else(|| Some(keys.float("embedding_length")? / keys.float("attention.head_count")?))
}

/// Refuses a key that is there with a value that is no number or not harmless.
fn refuse_unless(
    keys: &Keys<'_>,
    key: &str,
    supported: &str,
    harmless: impl Fn(f64) -> bool,
) -> Result<(), CheckpointError> {
    if keys.get(key).is_none() || keys.float(key).is_some_and(harmless) {
        return Ok(());
    }
    Err(keys.unsupported(key, &found(keys, key), supported))
}

fn found(keys: &Keys<'_>, key: &str) -> String {
    keys.get(key)
        .map_or_else(String::new, |value| format!("{value:?}"))
}
