//! The metadata below one architecture's prefix, as the configuration wants it.

use super::metadata::{Metadata, Value as MetaValue};
use crate::checkpoint::error::CheckpointError;
use serde_json::{Map, Value, json};
use std::path::Path;

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
    pub fn scalar(&self, key: &str, value: &MetaValue) -> Result<Value, CheckpointError> {
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

    pub fn rope_scaling(&self) -> Result<Option<Value>, CheckpointError> {
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

    pub fn add_partial_rotary(
        &self,
        fields: &mut Map<String, Value>,
    ) -> Result<(), CheckpointError> {
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

    pub fn add_token_ids(&self, fields: &mut Map<String, Value>) {
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
