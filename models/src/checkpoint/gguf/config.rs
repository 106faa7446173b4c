//! GGUF metadata as the configuration that Hugging Face would write for the same model, so that the families read one kind.
//! Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

use super::TensorEntry;
use super::metadata::{Metadata, Value as MetaValue};
use super::refusals;
use crate::checkpoint::config::Config;
use crate::checkpoint::error::CheckpointError;
use serde_json::{Map, Value, json};
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

/// The metadata below one architecture's prefix.
pub(super) struct Keys<'a> {
    pub file: &'a Path,
    pub architecture: &'a str,
    pub metadata: &'a Metadata,
}

impl<'a> Keys<'a> {
    pub fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    pub fn get(&self, key: &str) -> Option<&'a MetaValue> {
        self.metadata.value(&self.name(key))
    }

    pub fn float(&self, key: &str) -> Option<f64> {
        self.metadata.float(&self.name(key))
    }

    pub fn unsupported(&self, key: &str, found: &str, supported: &str) -> CheckpointError {
        CheckpointError::Unsupported {
            file: self.file.to_path_buf(),
            field: self.name(key),
            found: found.to_owned(),
            supported: supported.to_owned(),
        }
    }

    /// A number as JSON. An array of equal numbers (one per layer) counts as that number.
    fn scalar(&self, key: &str, value: &MetaValue) -> Result<Value, CheckpointError> {
        match value {
            MetaValue::Int(number) => Ok(json!(number)),
            // An f32 of the metadata, in the digits that a config.json would have.
            MetaValue::Float(number) => {
                let shortest = (*number as f32).to_string().parse::<f64>();
                Ok(json!(shortest.unwrap_or(*number)))
            }
            MetaValue::Ints(numbers) if numbers.windows(2).all(|pair| pair[0] == pair[1]) => {
                Ok(json!(numbers.first()))
            }
            other => Err(self.unsupported(key, &format!("{other:?}"), "one number for all layers")),
        }
    }

    fn rope_scaling(&self) -> Result<Option<Value>, CheckpointError> {
        let factor = self
            .float("rope.scaling.factor")
            .or(self.float("rope.scale_linear"));
        let kind = match self.metadata.text(&self.name("rope.scaling.type")) {
            Some("none") => return Ok(None),
            Some(kind) => kind,
            None if factor.is_some_and(|factor| factor != 1.0) => "linear",
            None => return Ok(None),
        };
        let mut scaling = json!({ "rope_type": kind });
        let fields = [
            ("factor", factor),
            (
                "original_max_position_embeddings",
                self.float("rope.scaling.original_context_length"),
            ),
            ("beta_fast", self.float("rope.scaling.yarn_beta_fast")),
            ("beta_slow", self.float("rope.scaling.yarn_beta_slow")),
        ];
        for (field, value) in fields {
            if let Some(value) = value {
                scaling[field] = if value.fract() == 0.0 {
                    json!(value as i64)
                } else {
                    json!(value)
                };
            }
        }
        Ok(Some(scaling))
    }

    fn add_partial_rotary(&self, fields: &mut Map<String, Value>) -> Result<(), CheckpointError> {
        let Some(rotary) = self.float("rope.dimension_count") else {
            return Ok(());
        };
        let number = |field: &str| fields.get(field).and_then(Value::as_f64);
        let head_dim = number("head_dim")
            .or_else(|| Some(number("hidden_size")? / number("num_attention_heads")?));
        if let Some(head_dim) = head_dim.filter(|&head_dim| head_dim > 0.0) {
            fields.insert("partial_rotary_factor".to_owned(), json!(rotary / head_dim));
        }
        Ok(())
    }

    fn add_token_ids(&self, fields: &mut Map<String, Value>) {
        let id = |key: &str| self.metadata.int(&format!("tokenizer.ggml.{key}"));
        if let Some(bos) = id("bos_token_id") {
            fields.insert("bos_token_id".to_owned(), json!(bos));
        }
        let mut ends: Vec<i64> = Vec::new();
        for key in ["eos_token_id", "eot_token_id", "eom_token_id"] {
            match id(key) {
                Some(end) if !ends.contains(&end) => ends.push(end),
                _ => {}
            }
        }
        if !ends.is_empty() {
            fields.insert("eos_token_id".to_owned(), json!(ends));
        }
    }
}
