//! GGUF metadata as the configuration that Hugging Face would write for the same model, so that the families read one kind.
//! Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

use super::TensorEntry;
use super::keys::Keys;
use super::metadata::Metadata;
use super::refusals;
use crate::checkpoint::config::Config;
use crate::checkpoint::error::CheckpointError;
use serde_json::{Map, json};
use std::path::Path;

/// GGUF architectures and the Hugging Face ones that they stand for.
const ARCHITECTURES: [(&str, &str); 4] = [
    ("llama", "LlamaForCausalLM"),
    ("qwen2", "Qwen2ForCausalLM"),
    ("qwen3", "Qwen3ForCausalLM"),
    ("glm4", "Glm4ForCausalLM"),
];

/// Plain copies: key below the architecture's prefix, field.
const COPIED: [(&str, &str); 9] = [
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("block_count", "num_hidden_layers"),
    ("context_length", "max_position_embeddings"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("rope.freq_base", "rope_theta"),
    ("attention.key_length", "head_dim"),
];

/// Projections below `blk.N.` whose biases Hugging Face's two flags stand for.
const BIASED: [(&str, &[&str]); 2] = [
    (
        "attention_bias",
        &["attn_q", "attn_k", "attn_v", "attn_output"],
    ),
    ("mlp_bias", &["ffn_gate", "ffn_up", "ffn_down"]),
];

/// Translates the metadata; `tensors` tell what it leaves open (vocabulary, tied head, biases).
pub(super) fn from_metadata(
    file: &Path,
    architecture: &str,
    metadata: &Metadata,
    tensors: &[TensorEntry],
) -> Result<Config, CheckpointError> {
    let known = ARCHITECTURES.iter().find(|(name, _)| *name == architecture);
    let (_, hf_name) = known.ok_or_else(|| CheckpointError::UnknownArchitecture {
        file: file.to_path_buf(),
        architecture: architecture.to_owned(),
        known: ARCHITECTURES.map(|(name, _)| name).join(", "),
    })?;
    let keys = Keys {
        file,
        architecture,
        metadata,
    };
    refusals::check(&keys)?;
    let mut fields = Map::new();
    fields.insert("architectures".to_owned(), json!([hf_name]));
    for (key, field) in COPIED {
        if let Some(value) = keys.get(key) {
            fields.insert(field.to_owned(), keys.scalar(key, value)?);
        }
    }
    let vocab = tensors
        .iter()
        .find(|entry| entry.name == "token_embd.weight");
    if let Some([rows, _]) = vocab.map(|entry| entry.shape.as_slice()) {
        fields.insert("vocab_size".to_owned(), json!(rows));
    }
    let has = |name: &str| tensors.iter().any(|entry| entry.name == name);
    fields.insert(
        "tie_word_embeddings".to_owned(),
        json!(!has("output.weight")),
    );
    // Any layer's bias switches the flag on; what is then missing is refused by name.
    for (flag, modules) in BIASED {
        let biased = tensors.iter().any(|entry| is_bias_of(&entry.name, modules));
        fields.insert(flag.to_owned(), json!(biased));
    }
    if let Some(scaling) = keys.rope_scaling()? {
        fields.insert("rope_scaling".to_owned(), scaling);
    }
    keys.add_partial_rotary(&mut fields)?;
    keys.add_token_ids(&mut fields);
    Ok(Config::new(file, fields))
}

fn is_bias_of(name: &str, modules: &[&str]) -> bool {
    let mut parts = name.split('.');
    parts.next() == Some("blk")
        && parts.next().is_some()
        && parts.next().is_some_and(|module| modules.contains(&module))
        && parts.eq(["bias"])
}
