//! The `grammar` parameter: `{"type": "json" | "regex" | "json_schema", "value": …}`. Not here: compiling (`http/grammar.rs`).

use crate::http::grammar::{Asked, schema_text};
use crate::http::refusal::Refusal;
use ropeteam_models::grammar::{GrammarSpec, Whitespace};
use serde::Deserialize;
use serde_json::Value;

/// `parameters.grammar`.
#[derive(Debug, Deserialize)]
pub struct Grammar {
    #[serde(rename = "type")]
    kind: String,
    value: Value,
}

impl Grammar {
    /// What it asks for. A value of type `json_schema` holds the schema beside its name; one of type `json` is the schema.
    ///
    /// # Errors
    /// An unknown type, or a value that does not fit it.
    pub fn asked(&self) -> Result<Asked, Refusal> {
        let value = &self.value;
        let spec = match (self.kind.as_str(), value.as_str()) {
            ("json" | "json_object", _) => json(value)?,
            ("json_schema", _) => json(value.get("schema").unwrap_or(value))?,
            ("regex", Some(expression)) => GrammarSpec::Regex(expression.to_owned()),
            ("regex", None) => return Err(wrong(&format!("must be a string, got {value}"))),
            (kind, _) => {
                let message =
                    format!("`grammar` must be of type json, regex or json_schema. Given: {kind}");
                return Err(Refusal::invalid("grammar", message));
            }
        };
        Ok(Asked {
            field: "grammar".to_owned(),
            spec,
        })
    }
}

fn json(schema: &Value) -> Result<GrammarSpec, Refusal> {
    Ok(GrammarSpec::Json {
        schema: schema_text("grammar", schema)?,
        whitespace: Whitespace::default(),
    })
}

fn wrong(what: &str) -> Refusal {
    Refusal::invalid("grammar", format!("the value of `grammar` {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(grammar: &str) -> Result<GrammarSpec, String> {
        let grammar: Grammar = serde_json::from_str(grammar).map_err(|e| e.to_string())?;
        grammar
            .asked()
            .map(|asked| asked.spec)
            .map_err(|r| r.message)
    }

    #[test]
    fn the_originals_types_and_alias_are_understood() {
        let schema = Ok(GrammarSpec::Json {
            schema: r#"{"type":"null"}"#.to_owned(),
            whitespace: Whitespace::Short,
        });
        for grammar in [
            r#"{"type":"json","value":{"type":"null"}}"#,
            r#"{"type":"json_object","value":"{\"type\":\"null\"}"}"#,
            r#"{"type":"json_schema","value":{"name":"n","schema":{"type":"null"}}}"#,
            r#"{"type":"json_schema","value":{"type":"null"}}"#,
        ] {
            assert_eq!(asked(grammar), schema, "{grammar}");
        }
        let regex = asked(r#"{"type":"regex","value":"a+"}"#);
        assert_eq!(regex, Ok(GrammarSpec::Regex("a+".into())));
    }

    #[test]
    fn what_does_not_fit_is_told() {
        for (grammar, words) in [
            (r#"{"type":"bnf","value":"a"}"#, "Given: bnf"),
            (r#"{"type":"regex","value":7}"#, "must be a string, got 7"),
            (r#"{"type":"json","value":[]}"#, "must be a JSON schema"),
            (r#"{"type":"json"}"#, "value"),
        ] {
            let error = asked(grammar).expect_err(grammar);
            assert!(error.contains(words), "{error}");
        }
    }
}
