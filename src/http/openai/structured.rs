//! The fields that say what an answer must obey: OpenAI's `response_format` (TGI's forms of it included), vLLM's `structured_outputs` and its
//! older `guided_*`. A request may use one of them. Not here: compiling (`http/grammar.rs`).

use crate::http::grammar::{Asked, schema_text};
use crate::http::json::object;
use crate::http::refusal::Refusal;
use ropeteam_models::grammar::{GrammarSpec, Whitespace};
use serde::Deserialize;
use serde_json::Value;

/// Who may be asked to enforce a grammar in vLLM. Here there is one way, and it holds whatever any of them promises.
const BACKENDS: &[&str] = &[
    "auto",
    "guidance",
    "lm-format-enforcer",
    "outlines",
    "xgrammar",
];

/// `response_format`.
#[derive(Debug, Deserialize)]
pub struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, deserialize_with = "object")]
    json_schema: Option<NamedSchema>,
    /// TGI's place for a schema or an expression.
    value: Option<Value>,
}

/// `response_format.json_schema`. Its name and description are for people, and every schema is followed strictly.
#[derive(Debug, Deserialize)]
struct NamedSchema {
    schema: Option<Value>,
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(rename = "description")]
    _description: Option<String>,
    #[serde(rename = "strict")]
    _strict: Option<bool>,
}

/// `structured_outputs`.
#[derive(Debug, Deserialize)]
pub struct StructuredOutputs {
    json: Option<Value>,
    json_object: Option<bool>,
    regex: Option<String>,
    choice: Option<Vec<String>>,
    grammar: Option<String>,
    structural_tag: Option<Value>,
    whitespace_pattern: Option<String>,
    disable_any_whitespace: Option<bool>,
    disable_additional_properties: Option<bool>,
    /// There is one way to follow a grammar, and nothing to fall back on.
    #[serde(rename = "disable_fallback")]
    _disable_fallback: Option<bool>,
}

/// The request's fields that may ask for a grammar.
#[derive(Debug, Default)]
pub struct StructuredFields<'a> {
    pub response_format: Option<&'a ResponseFormat>,
    pub structured_outputs: Option<&'a StructuredOutputs>,
    pub guided_json: Option<&'a Value>,
    pub guided_regex: Option<&'a str>,
    pub guided_choice: Option<&'a [String]>,
    pub guided_grammar: Option<&'a str>,
    pub guided_decoding_backend: Option<&'a str>,
    pub guided_whitespace_pattern: Option<&'a str>,
}

impl StructuredFields<'_> {
    /// The one grammar that is asked for, if any is.
    ///
    /// # Errors
    /// A field that is incomplete or not offered; a second one that asks, too.
    pub fn asked(&self) -> Result<Option<Asked>, Refusal> {
        self.check_backend()?;
        let mut found = Vec::new();
        if let Some(format) = self.response_format {
            found.extend(format.asked()?);
        }
        if let Some(outputs) = self.structured_outputs {
            outputs.collect(&mut found)?;
        }
        self.collect_guided(&mut found)?;
        match <[Asked; 2]>::try_from(found.drain(..found.len().min(2)).collect::<Vec<_>>()) {
            Ok([first, second]) => Err(Refusal::invalid(
                second.field.as_str(),
                format!(
                    "{} and {} cannot be used together",
                    first.field, second.field
                ),
            )),
            Err(mut at_most_one) => Ok(at_most_one.pop()),
        }
    }

    fn check_backend(&self) -> Result<(), Refusal> {
        // Options of a backend stand behind a colon.
        let name = self
            .guided_decoding_backend
            .map(|b| b.split(':').next().unwrap_or(b));
        match name.filter(|name| !BACKENDS.contains(name)) {
            None => Ok(()),
            Some(name) => Err(Refusal::invalid(
                "guided_decoding_backend",
                format!("guided_decoding_backend must be one of {BACKENDS:?}, got {name:?}"),
            )),
        }
    }

    fn collect_guided(&self, found: &mut Vec<Asked>) -> Result<(), Refusal> {
        let whitespace = match (self.guided_whitespace_pattern, self.guided_json) {
            (None, _) => Whitespace::default(),
            (Some(pattern), Some(_)) => Whitespace::Pattern(pattern.to_owned()),
            (Some(_), None) => {
                let message = "guided_whitespace_pattern needs guided_json";
                return Err(Refusal::invalid("guided_whitespace_pattern", message));
            }
        };
        if let Some(schema) = self.guided_json {
            found.push(json("guided_json", schema, whitespace)?);
        }
        let others = [
            ("guided_regex", self.guided_regex.map(regex)),
            ("guided_choice", self.guided_choice.map(choice)),
            ("guided_grammar", self.guided_grammar.map(grammar)),
        ];
        found.extend(
            others
                .into_iter()
                .filter_map(|(field, spec)| asked(field, spec)),
        );
        Ok(())
    }
}

impl ResponseFormat {
    fn asked(&self) -> Result<Option<Asked>, Refusal> {
        let field = "response_format";
        let spec = match (self.kind.as_str(), &self.json_schema, &self.value) {
            ("text", _, _) => return Ok(None),
            ("json_object", _, None) => GrammarSpec::json_object(),
            ("json_object" | "json", _, Some(schema)) => {
                return json("response_format.value", schema, Whitespace::default()).map(Some);
            }
            ("json_schema", Some(named), _) if named.schema.is_some() => {
                let field = "response_format.json_schema.schema";
                let schema = named.schema.as_ref().unwrap_or(&Value::Null);
                return json(field, schema, Whitespace::default()).map(Some);
            }
            ("json_schema", _, _) => {
                let message = "response_format of type json_schema needs json_schema.schema";
                return Err(Refusal::invalid(field, message));
            }
            ("regex", _, Some(Value::String(expression))) => regex(expression),
            ("structural_tag", _, _) => return Err(Refusal::not_offered("response_format.type")),
            (kind, _, _) => {
                let message = format!(
                    "response_format.type must be text, json_object or json_schema, got {kind:?}"
                );
                return Err(Refusal::invalid(field, message));
            }
        };
        Ok(asked(field, Some(spec)))
    }
}

impl StructuredOutputs {
    fn collect(&self, found: &mut Vec<Asked>) -> Result<(), Refusal> {
        if self.structural_tag.is_some() {
            return Err(Refusal::not_offered("structured_outputs.structural_tag"));
        }
        if self.disable_additional_properties == Some(true) {
            return Err(Refusal::not_offered(
                "structured_outputs.disable_additional_properties",
            ));
        }
        let whitespace = match (&self.whitespace_pattern, self.disable_any_whitespace) {
            (Some(pattern), _) => Whitespace::Pattern(pattern.clone()),
            (None, Some(true)) => Whitespace::None,
            (None, _) => Whitespace::default(),
        };
        let before = found.len();
        if let Some(schema) = &self.json {
            found.push(json("structured_outputs.json", schema, whitespace)?);
        }
        let object = self.json_object == Some(true);
        let others = [
            (
                "structured_outputs.json_object",
                object.then(GrammarSpec::json_object),
            ),
            ("structured_outputs.regex", self.regex.as_deref().map(regex)),
            (
                "structured_outputs.choice",
                self.choice.as_deref().map(choice),
            ),
            (
                "structured_outputs.grammar",
                self.grammar.as_deref().map(grammar),
            ),
        ];
        found.extend(
            others
                .into_iter()
                .filter_map(|(field, spec)| asked(field, spec)),
        );
        if found.len() == before {
            let message =
                "structured_outputs needs one of json, regex, choice, grammar, json_object";
            return Err(Refusal::invalid("structured_outputs", message));
        }
        Ok(())
    }
}

fn json(field: &str, schema: &Value, whitespace: Whitespace) -> Result<Asked, Refusal> {
    let schema = schema_text(field, schema)?;
    Ok(Asked {
        field: field.to_owned(),
        spec: GrammarSpec::Json { schema, whitespace },
    })
}

fn asked(field: &str, spec: Option<GrammarSpec>) -> Option<Asked> {
    let field = field.to_owned();
    spec.map(|spec| Asked { field, spec })
}

fn regex(expression: &str) -> GrammarSpec {
    GrammarSpec::Regex(expression.to_owned())
}

fn choice(texts: &[String]) -> GrammarSpec {
    GrammarSpec::Choice(texts.to_vec())
}

fn grammar(text: &str) -> GrammarSpec {
    GrammarSpec::Grammar(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::json::parse;
    use crate::http::openai::fields::SharedFields;

    fn asked_by(body: &str) -> Result<Option<(String, GrammarSpec)>, String> {
        let fields = parse::<SharedFields>(body.as_bytes()).map_err(|r| r.message)?;
        let asked = fields.value.structured().asked();
        let asked = asked.map_err(|r| format!("{}: {}", r.field.unwrap_or_default(), r.message))?;
        Ok(asked.map(|asked| (asked.field, asked.spec)))
    }

    fn check(body: &str, field: &str, spec: GrammarSpec) {
        assert_eq!(asked_by(body), Ok(Some((field.to_owned(), spec))), "{body}");
    }

    fn check_error(body: &str, words: &str) {
        let error = asked_by(body).expect_err(body);
        assert!(error.contains(words), "{body}: {error}");
    }

    fn schema(whitespace: Whitespace) -> GrammarSpec {
        let schema = r#"{"type":"null"}"#.to_owned();
        GrammarSpec::Json { schema, whitespace }
    }

    #[test]
    fn every_spelling_asks_for_the_same() {
        let plain = || schema(Whitespace::Short);
        check(
            r#"{"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"null"}}}}"#,
            "response_format.json_schema.schema",
            plain(),
        );
        let object = GrammarSpec::json_object();
        check(
            r#"{"response_format":{"type":"json_object"}}"#,
            "response_format",
            object.clone(),
        );
        let body = r#"{"response_format":{"type":"json","value":{"type":"null"}}}"#;
        check(body, "response_format.value", plain());
        check(r#"{"guided_json":{"type":"null"}}"#, "guided_json", plain());
        check(
            r#"{"guided_json":"{\"type\":\"null\"}"}"#,
            "guided_json",
            plain(),
        );
        let body = r#"{"structured_outputs":{"json":{"type":"null"}}}"#;
        check(body, "structured_outputs.json", plain());
        let body = r#"{"structured_outputs":{"json_object":true}}"#;
        check(body, "structured_outputs.json_object", object);
        check(r#"{"guided_regex":"a+"}"#, "guided_regex", regex("a+"));
        let body = r#"{"structured_outputs":{"regex":"a+"}}"#;
        check(body, "structured_outputs.regex", regex("a+"));
        let texts = choice(&["a".to_owned(), "b".to_owned()]);
        check(r#"{"guided_choice":["a","b"]}"#, "guided_choice", texts);
        check(
            r#"{"guided_grammar":"start: \"a\""}"#,
            "guided_grammar",
            grammar("start: \"a\""),
        );
        for nothing in [
            r#"{"response_format":{"type":"text"}}"#,
            r#"{"response_format":null,"guided_json":null}"#,
            r#"{"guided_decoding_backend":"outlines:no-fallback"}"#,
        ] {
            assert_eq!(asked_by(nothing), Ok(None), "{nothing}");
        }
    }

    #[test]
    fn whitespace_may_be_chosen() {
        let body = r#"{"guided_json":{"type":"null"},"guided_whitespace_pattern":"\\s"}"#;
        check(
            body,
            "guided_json",
            schema(Whitespace::Pattern(r"\s".into())),
        );
        let body =
            r#"{"structured_outputs":{"json":{"type":"null"},"disable_any_whitespace":true}}"#;
        check(body, "structured_outputs.json", schema(Whitespace::None));
        check_error(r#"{"guided_whitespace_pattern":" "}"#, "needs guided_json");
    }

    #[test]
    fn what_is_incomplete_doubled_or_not_offered_is_refused_by_name() {
        for (body, words) in [
            (
                r#"{"response_format":{"type":"json_schema"}}"#,
                "json_schema.schema",
            ),
            (
                r#"{"response_format":{"type":"json_schema","json_schema":{"name":"n"}}}"#,
                "json_schema.schema",
            ),
            (r#"{"response_format":{"type":"xml"}}"#, "\"xml\""),
            (
                r#"{"response_format":{"type":"structural_tag"}}"#,
                "not supported",
            ),
            (r#"{"response_format":7}"#, "response_format"),
            (r#"{"structured_outputs":{}}"#, "needs one of"),
            (
                r#"{"structured_outputs":{"structural_tag":{}}}"#,
                "structural_tag",
            ),
            (
                r#"{"structured_outputs":{"json":{},"regex":"a"}}"#,
                "structured_outputs.json and structured_outputs.regex",
            ),
            (
                r#"{"guided_json":{},"response_format":{"type":"json_object"}}"#,
                "guided_json: response_format and guided_json",
            ),
            (r#"{"guided_json":7}"#, "must be a JSON schema, got 7"),
            (r#"{"guided_choice":"a"}"#, "guided_choice"),
            (r#"{"guided_decoding_backend":"magic"}"#, "\"magic\""),
        ] {
            check_error(body, words);
        }
    }
}
