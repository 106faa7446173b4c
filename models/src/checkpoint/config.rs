//! A model's configuration as typed fields: the keys of a Hugging Face `config.json`, whatever file they came from.
//! Both generations of keys are understood where a reader asks for them (`torch_dtype` and `dtype`, and so on).
//! Which fields a family reads, and which it refuses, is the families' business.

use super::error::CheckpointError;
use ropeteam_device::Dtype;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// No dimension of a model is larger; keeps arithmetic on sizes from overflowing.
const MAX_SIZE: usize = 1 << 28;

/// A model's configuration and where it came from.
#[derive(Clone, Debug)]
pub struct Config {
    file: PathBuf,
    values: Map<String, Value>,
    rope_factors: Option<Vec<f32>>,
}

impl Config {
    /// Wraps the top-level object of a configuration.
    pub(crate) fn new(file: &Path, values: Map<String, Value>) -> Self {
        Self {
            file: file.to_path_buf(),
            values,
            rope_factors: None,
        }
    }

    /// Parses `text` as a JSON object.
    pub(crate) fn parse(file: &Path, text: &str) -> Result<Self, CheckpointError> {
        let values = serde_json::from_str(text)
            .map_err(|error| CheckpointError::malformed(file, error.to_string()))?;
        Ok(Self::new(file, values))
    }

    /// Adds the factors that a GGUF file's `rope_freqs.weight` holds.
    pub(crate) fn with_rope_factors(mut self, factors: Option<Vec<f32>>) -> Self {
        self.rope_factors = factors;
        self
    }

    /// The file it came from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// All of it.
    pub(crate) fn values(&self) -> &Map<String, Value> {
        &self.values
    }

    /// Its fields.
    pub fn fields(&self) -> Fields<'_> {
        Fields {
            file: &self.file,
            prefix: String::new(),
            values: &self.values,
        }
    }

    /// Divisors of the rotary frequencies, one per pair, that stand in place of a scaling rule.
    pub fn rope_factors(&self) -> Option<&[f32]> {
        self.rope_factors.as_deref()
    }
}

/// The fields of one object of a configuration. A field that is `null` counts as absent.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    file: &'a Path,
    prefix: String,
    values: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The raw value, if there is one.
    pub fn value(&self, field: &str) -> Option<&'a Value> {
        self.values.get(field).filter(|value| !value.is_null())
    }

    /// Whether the key stands there, even with `null`.
    pub fn has_key(&self, field: &str) -> bool {
        self.values.contains_key(field)
    }

    /// All keys, those with `null` too.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.values.keys().map(String::as_str)
    }

    /// Whether `field` has the same value in `other`, or none in both.
    pub fn agrees(&self, other: &Fields<'_>, field: &str) -> bool {
        match (self.value(field), other.value(field)) {
            (Some(here), Some(there)) => same(here, there),
            (here, there) => here.is_none() && there.is_none(),
        }
    }

    /// The object below `field`.
    pub fn section(&self, field: &str) -> Result<Option<Fields<'a>>, CheckpointError> {
        match self.value(field) {
            None => Ok(None),
            Some(Value::Object(values)) => {
                let prefix = format!("{}{field}.", self.prefix);
                Ok(Some(Fields {
                    file: self.file,
                    prefix,
                    values,
                }))
            }
            Some(other) => Err(self.wrong(field, "an object", other)),
        }
    }

    /// A size of at least 1 that has to be there.
    pub fn size(&self, field: &str) -> Result<usize, CheckpointError> {
        self.size_if(field)?.ok_or_else(|| CheckpointError::Field {
            file: self.file.to_path_buf(),
            field: format!("{}{field}", self.prefix),
            expected: "an integer".to_owned(),
            found: "nothing".to_owned(),
        })
    }

    /// A size of at least 1, if it is there.
    pub fn size_if(&self, field: &str) -> Result<Option<usize>, CheckpointError> {
        let Some(value) = self.value(field) else {
            return Ok(None);
        };
        match value.as_u64().map(usize::try_from) {
            Some(Ok(size)) if (1..=MAX_SIZE).contains(&size) => Ok(Some(size)),
            _ => Err(self.wrong(field, &format!("an integer from 1 to {MAX_SIZE}"), value)),
        }
    }

    /// A size that may be 0, if it is there.
    pub fn count_if(&self, field: &str) -> Result<Option<usize>, CheckpointError> {
        match self.value(field) {
            Some(value) if value.as_u64() == Some(0) => Ok(Some(0)),
            _ => self.size_if(field),
        }
    }

    /// A finite number, if it is there.
    pub fn number(&self, field: &str) -> Result<Option<f64>, CheckpointError> {
        let Some(value) = self.value(field) else {
            return Ok(None);
        };
        match value.as_f64() {
            Some(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(self.wrong(field, "a number", value)),
        }
    }

    /// A finite number above 0, if it is there.
    pub fn positive(&self, field: &str) -> Result<Option<f64>, CheckpointError> {
        match self.number(field)? {
            Some(number) if number <= 0.0 => {
                Err(self.wrong(field, "above 0", &Value::from(number)))
            }
            number => Ok(number),
        }
    }

    /// A flag, if it is there.
    pub fn flag(&self, field: &str) -> Result<Option<bool>, CheckpointError> {
        let Some(value) = self.value(field) else {
            return Ok(None);
        };
        value
            .as_bool()
            .map(Some)
            .ok_or_else(|| self.wrong(field, "true or false", value))
    }

    /// A string, if it is there.
    pub fn text(&self, field: &str) -> Result<Option<&'a str>, CheckpointError> {
        let Some(value) = self.value(field) else {
            return Ok(None);
        };
        value
            .as_str()
            .map(Some)
            .ok_or_else(|| self.wrong(field, "a string", value))
    }

    /// A list of strings, if it is there.
    pub fn texts(&self, field: &str) -> Result<Option<Vec<&'a str>>, CheckpointError> {
        let Some(value) = self.value(field) else {
            return Ok(None);
        };
        let texts = value
            .as_array()
            .and_then(|items| items.iter().map(Value::as_str).collect());
        texts
            .map(Some)
            .ok_or_else(|| self.wrong(field, "a list of strings", value))
    }

    /// Token ids: one number or a list of them; empty when absent.
    pub fn token_ids(&self, field: &str) -> Result<Vec<u32>, CheckpointError> {
        let Some(value) = self.value(field) else {
            return Ok(Vec::new());
        };
        let id = |item: &Value| item.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids = match value {
            Value::Array(items) => items.iter().map(id).collect(),
            one => id(one).map(|id| vec![id]),
        };
        ids.ok_or_else(|| self.wrong(field, "a token id or a list of them", value))
    }

    /// The element format the checkpoint says it has, by either generation's key and with or without `torch.`.
    pub fn dtype(&self) -> Result<Option<Dtype>, CheckpointError> {
        let field = if self.value("dtype").is_some() {
            "dtype"
        } else {
            "torch_dtype"
        };
        let Some(name) = self.text(field)? else {
            return Ok(None);
        };
        match name.strip_prefix("torch.").unwrap_or(name) {
            "float32" => Ok(Some(Dtype::F32)),
            "float16" => Ok(Some(Dtype::F16)),
            "bfloat16" => Ok(Some(Dtype::BF16)),
            _ => Err(self.unsupported(field, "float32, float16, bfloat16")),
        }
    }

    /// A `Field` error about a value that is there.
    pub fn wrong(&self, field: &str, expected: &str, found: &Value) -> CheckpointError {
        CheckpointError::Field {
            file: self.file.to_path_buf(),
            field: format!("{}{field}", self.prefix),
            expected: expected.to_owned(),
            found: shortened(found),
        }
    }

    /// An `Unsupported` error about a field.
    pub fn unsupported(&self, field: &str, supported: &str) -> CheckpointError {
        CheckpointError::Unsupported {
            file: self.file.to_path_buf(),
            field: format!("{}{field}", self.prefix),
            found: self
                .values
                .get(field)
                .map_or_else(|| "absent".to_owned(), shortened),
            supported: supported.to_owned(),
        }
    }
}

/// Equal, with 1 and 1.0 the same number.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// A value as JSON, cut where a message would become unreadable.
fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("config.json"), text).unwrap()
    }

    #[test]
    fn a_field_of_the_wrong_kind_is_named_with_its_value() {
        let config = config(r#"{"a": {"b": -3}, "c": 1.5, "d": "x"}"#);
        let inner = config.fields().section("a").unwrap().unwrap();
        let message = inner.size("b").unwrap_err().to_string();
        assert!(message.contains("config.json: a.b must be"), "{message}");
        assert!(message.contains("found -3"), "{message}");
        assert!(config.fields().size("c").is_err());
        assert!(config.fields().number("d").is_err());
        assert!(config.fields().section("d").is_err());
        assert!(
            config
                .fields()
                .size("missing")
                .unwrap_err()
                .to_string()
                .contains("missing")
        );
    }

    #[test]
    fn both_spellings_of_the_dtype_are_read_and_unknown_ones_refused() {
        let dtype = |text: &str| config(text).fields().dtype();
        assert_eq!(
            dtype(r#"{"torch_dtype": "torch.float16"}"#).unwrap(),
            Some(Dtype::F16)
        );
        assert_eq!(
            dtype(r#"{"dtype": "bfloat16"}"#).unwrap(),
            Some(Dtype::BF16)
        );
        assert_eq!(dtype("{}").unwrap(), None);
        assert_eq!(dtype(r#"{"torch_dtype": null}"#).unwrap(), None);
        let refused = dtype(r#"{"dtype": "float8_nosuch"}"#)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("float8_nosuch"), "{refused}");
    }

    #[test]
    fn end_ids_may_be_one_number_or_a_list() {
        let ids = |text: &str| config(text).fields().token_ids("eos_token_id");
        assert_eq!(ids(r#"{"eos_token_id": 7}"#).unwrap(), [7]);
        assert_eq!(ids(r#"{"eos_token_id": [7, 9]}"#).unwrap(), [7, 9]);
        assert!(ids(r#"{"eos_token_id": null}"#).unwrap().is_empty());
        assert!(ids(r#"{"eos_token_id": -1}"#).is_err());
        assert!(ids(r#"{"eos_token_id": [7, "x"]}"#).is_err());
    }

    #[test]
    fn nan_is_not_json() {
        assert!(Config::parse(Path::new("config.json"), r#"{"rms_norm_eps": NaN}"#).is_err());
    }
}
