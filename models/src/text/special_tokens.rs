//! The named tokens of a model (`bos_token`, `eos_token`, ...), as chat templates see them.
//! Their ids are the tokenizer's business (`codec.rs`).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::TokenizerError;

/// Name to text, `"bos_token"` to `"<s>"`. A token that is null or absent has no entry: templates see it as undefined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    named: BTreeMap<String, String>,
}

impl SpecialTokens {
    /// Reads tokenizer_config.json, and special_tokens_map.json for what is not named there. Both may be absent.
    ///
    /// # Errors
    /// When a file is there but cannot be read or is no JSON object.
    pub fn load(folder: &Path) -> Result<Self, TokenizerError> {
        let mut tokens = Self::default();
        for name in ["special_tokens_map.json", "tokenizer_config.json"] {
            if let Some(config) = read_object(&folder.join(name))? {
                tokens.take(&config);
            }
        }
        Ok(tokens)
    }

    /// The tokens given as (name, text) pairs.
    pub fn from_pairs<N: Into<String>, T: Into<String>>(
        pairs: impl IntoIterator<Item = (N, T)>,
    ) -> Self {
        Self {
            named: pairs
                .into_iter()
                .map(|(n, t)| (n.into(), t.into()))
                .collect(),
        }
    }

    /// The text of a token, by its name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.named.get(name).map(String::as_str)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.named.iter().map(|(n, t)| (n.as_str(), t.as_str()))
    }

    fn take(&mut self, config: &serde_json::Map<String, Value>) {
        let extra = config
            .get("extra_special_tokens")
            .and_then(Value::as_object);
        for (name, value) in config.iter().chain(extra.into_iter().flatten()) {
            if !name.ends_with("_token") {
                continue;
            }
            match token_text(value) {
                Some(text) => self.named.insert(name.clone(), text.to_owned()),
                None if value.is_null() => self.named.remove(name),
                None => None,
            };
        }
    }
}

/// A token is its text, or an object that holds it as `content`. `add_bos_token: true` is neither.
fn token_text(value: &Value) -> Option<&str> {
    value
        .as_str()
        .or_else(|| value.get("content").and_then(Value::as_str))
}

/// The JSON object in a file; `None` if there is no such file.
pub(super) fn read_object(
    file: &Path,
) -> Result<Option<serde_json::Map<String, Value>>, TokenizerError> {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(TokenizerError::Read {
                file: file.to_path_buf(),
                source,
            });
        }
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|e| TokenizerError::Invalid {
            origin: file.display().to_string(),
            detail: e.to_string(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_token_may_be_a_string_an_object_or_null() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, value: Value| {
            fs::write(folder.path().join(name), value.to_string()).unwrap();
        };
        write(
            "special_tokens_map.json",
            json!({"bos_token": "<b>", "unk_token": {"content": "<u>", "lstrip": false}}),
        );
        write(
            "tokenizer_config.json",
            json!({
                "bos_token": null, "eos_token": {"content": "</s>"}, "pad_token": "<p>",
                "add_bos_token": true, "extra_special_tokens": {"image_token": "<img>"},
            }),
        );
        let tokens = SpecialTokens::load(folder.path()).unwrap();
        let found: Vec<_> = tokens.iter().collect();
        assert_eq!(
            found,
            [
                ("eos_token", "</s>"),
                ("image_token", "<img>"),
                ("pad_token", "<p>"),
                ("unk_token", "<u>")
            ]
        );
    }

    #[test]
    fn a_folder_without_the_files_names_no_token() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            SpecialTokens::load(folder.path()).unwrap(),
            SpecialTokens::default()
        );
    }
}
