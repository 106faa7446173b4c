//! Parses request bodies. Errors name the field, the value and what was expected; fields that no type knows are collected, so that
//! they can be told to the client. Not here: which fields there are (each dialect's own types).
//!
//! What is refused: anything that is no JSON text (invalid UTF-8, lone surrogate escapes, trailing commas), nesting over 128 levels, a
//! known field twice. A byte order mark before the text is skipped.

use super::refusal::{Kind, Refusal};
use serde::de::{Deserialize, DeserializeOwned};
use serde_json::Value;

/// A parsed body.
#[derive(Debug)]
pub struct Parsed<T> {
    /// The fields that `T` knows.
    pub value: T,
    /// Paths of the others, such as `parameters.frob`.
    pub ignored: Vec<String>,
}

/// Parses `body` as a `T`.
///
/// # Errors
/// `Syntax` when it is no JSON text, `Invalid` with the field's path when it does not fit.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<Parsed<T>, Refusal> {
    let body = without_mark(body);
    let mut ignored = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let mut track = serde_path_to_error::Track::new();
    let value = {
        let mut note = |path: serde_ignored::Path<'_>| ignored.push(field_path(&path.to_string()));
        let tracked = serde_path_to_error::Deserializer::new(&mut reader, &mut track);
        T::deserialize(serde_ignored::Deserializer::new(tracked, &mut note))
    };
    let value = value.map_err(|error| refusal(&error, &track.path().to_string()))?;
    reader.end().map_err(|error| refusal(&error, "."))?;
    Ok(Parsed { value, ignored })
}

/// Parses `body` twice: route-specific fields as `A`, shared ones as `B`. Ignored are those that neither knows.
///
/// # Errors
/// As [`parse`].
pub fn parse_pair<A, B>(body: &[u8]) -> Result<(A, Parsed<B>), Refusal>
where
    A: DeserializeOwned,
    B: DeserializeOwned,
{
    let own: Parsed<A> = parse(body)?;
    let mut shared: Parsed<B> = parse(body)?;
    shared.ignored.retain(|path| own.ignored.contains(path));
    Ok((own.value, shared))
}

/// The value at a path of the body, for fields that no type knows.
pub fn value_at(body: &[u8], path: &str) -> Option<Value> {
    let whole: Value = serde_json::from_slice(without_mark(body)).ok()?;
    path.split('.')
        .try_fold(&whole, |value, key| value.get(key))
        .cloned()
}

fn without_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)
}

/// `serde_ignored` writes `?` for the inside of an `Option`, which is no part of the field's name.
fn field_path(path: &str) -> String {
    path.split('.')
        .filter(|part| *part != "?")
        .collect::<Vec<_>>()
        .join(".")
}

fn refusal(error: &serde_json::Error, path: &str) -> Refusal {
    let message = error.to_string();
    if error.is_data() {
        let field = (path != ".")
            .then(|| path.to_owned())
            .or_else(|| quoted_field(&message));
        let text = match (&field, path) {
            (Some(field), path) if path != "." => format!("{field}: {message}"),
            _ => message,
        };
        return Refusal {
            field,
            ..Refusal::new(Kind::Invalid, text)
        };
    }
    Refusal::new(
        Kind::Syntax,
        format!("the request body is not valid JSON: {message}"),
    )
}

/// The field in serde's "missing field `x`" and "duplicate field `x`".
fn quoted_field(message: &str) -> Option<String> {
    if !message.starts_with("missing field") && !message.starts_with("duplicate field") {
        return None;
    }
    message.split('`').nth(1).map(str::to_owned)
}

/// Deserialises a finite `f32`; larger numbers than it can hold are an error, not infinity.
///
/// # Errors
/// When the value is no number or out of range.
pub fn finite<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Option<f32>, D::Error> {
    let wide = Option::<f64>::deserialize(source)?;
    match wide {
        Some(value) if !(value as f32).is_finite() => Err(serde::de::Error::invalid_value(
            serde::de::Unexpected::Float(value),
            &"a finite number",
        )),
        other => Ok(other.map(|value| value as f32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Inner {
        #[serde(default, deserialize_with = "finite")]
        temperature: Option<f32>,
    }

    #[derive(Debug, serde::Deserialize)]
    struct Outer {
        prompt: String,
        max_tokens: Option<i64>,
        parameters: Option<Inner>,
    }

    fn check(body: &[u8], kind: Kind, field: Option<&str>, words: &str) {
        let refusal = parse::<Outer>(body).expect_err(words);
        assert_eq!(
            (refusal.kind, refusal.field.as_deref()),
            (kind, field),
            "{}",
            refusal.message
        );
        assert!(refusal.message.contains(words), "{}", refusal.message);
    }

    #[test]
    fn errors_name_field_value_and_what_was_expected() {
        check(
            br#"{"prompt":"a","max_tokens":"twenty"}"#,
            Kind::Invalid,
            Some("max_tokens"),
            "\"twenty\"",
        );
        check(
            br#"{"prompt":7}"#,
            Kind::Invalid,
            Some("prompt"),
            "expected a string",
        );
        check(br#"{}"#, Kind::Invalid, Some("prompt"), "missing field");
        check(
            br#"{"prompt":"a","parameters":{"temperature":[]}}"#,
            Kind::Invalid,
            Some("parameters.temperature"),
            "sequence",
        );
        check(
            br#"{"prompt":"a","parameters":{"temperature":1e300}}"#,
            Kind::Invalid,
            Some("parameters.temperature"),
            "finite",
        );
    }

    #[test]
    fn what_is_no_json_text_is_a_syntax_error() {
        for body in [
            &b""[..],
            b"{",
            br#"{"prompt":"a",}"#,
            br#"{"prompt":NaN}"#,
            br#"{"prompt":"x\ud83d"}"#,
            br#"{"prompt":"\ude00C"}"#,
            b"{\"prompt\":\"\xff\xfe\"}",
            br#"{"prompt":"a"} x"#,
        ] {
            let refusal = parse::<Outer>(body).expect_err("no JSON");
            assert_eq!(
                refusal.kind,
                Kind::Syntax,
                "{}",
                String::from_utf8_lossy(body)
            );
        }
    }

    #[test]
    fn a_known_field_twice_is_refused() {
        check(
            br#"{"prompt":"a","max_tokens":1,"max_tokens":2}"#,
            Kind::Invalid,
            Some("max_tokens"),
            "duplicate",
        );
    }

    #[test]
    fn deep_nesting_is_refused_where_it_is_read() {
        let deep = format!(
            r#"{{"prompt":{}"x"{}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert!(parse::<Outer>(deep.as_bytes()).is_err());
        let deep = format!(
            r#"{{"prompt":"a","other":{}{}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        let _ = parse::<Outer>(deep.as_bytes());
    }

    #[test]
    fn unknown_fields_are_collected_by_path() {
        let body =
            br#"{"prompt":"a","max_tokens":4,"x":1,"parameters":{"temperature":1,"y":{"z":2}}}"#;
        let parsed = parse::<Outer>(body).unwrap();
        assert_eq!(parsed.ignored, ["x", "parameters.y"]);
        assert_eq!(
            (parsed.value.prompt.as_str(), parsed.value.max_tokens),
            ("a", Some(4))
        );
        assert_eq!(
            parsed.value.parameters.and_then(|p| p.temperature),
            Some(1.0)
        );
        assert_eq!(
            value_at(br#"{"parameters":{"y":true}}"#, "parameters.y"),
            Some(Value::Bool(true))
        );
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert_eq!(
            parse::<Outer>(b"\xef\xbb\xbf{\"prompt\":\"a\"}")
                .unwrap()
                .value
                .prompt,
            "a"
        );
    }
}
