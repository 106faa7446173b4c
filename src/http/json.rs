//! Parses request bodies. Errors name the field, the value and what was expected; fields that no type knows are collected, so that
//! they can be told to the client. Not here: which fields there are (each dialect's own types).
//!
//! What is refused: anything that is no JSON text (invalid UTF-8, lone surrogate escapes, trailing commas), nesting over 128 levels, a
//! known field twice. A byte order mark before the text is skipped.

use super::json_text;
use super::refusal::{Kind, Refusal};
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess,
    Unexpected, Visitor,
};
use serde_json::Value;
use std::fmt;
use std::marker::PhantomData;

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
    json_text::check(body).map_err(|why| no_json(&why))?;
    let mut ignored = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let mut track = serde_path_to_error::Track::new();
    let value = {
        let mut note = |path: serde_ignored::Path<'_>| ignored.push(field_path(&path.to_string()));
        let tracked = serde_path_to_error::Deserializer::new(&mut reader, &mut track);
        object(serde_ignored::Deserializer::new(tracked, &mut note)).and_then(|value| {
            value.ok_or_else(|| Error::invalid_type(Unexpected::Unit, &"an object"))
        })
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
    let of_shared = std::mem::take(&mut shared.ignored);
    let ignored_in = |list: &[String], path: &str| list.iter().any(|outer| covers(outer, path));
    let inside_own = own
        .ignored
        .iter()
        .filter(|path| !of_shared.contains(path) && ignored_in(&of_shared, path));
    shared.ignored = of_shared
        .iter()
        .filter(|path| ignored_in(&own.ignored, path))
        .chain(inside_own)
        .cloned()
        .collect();
    Ok((own.value, shared))
}

/// Whether `outer` is the field at `path` or one around it.
fn covers(outer: &str, path: &str) -> bool {
    path.strip_prefix(outer)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether every value that stands at `path` of the body is `null` or `neutral`, for fields that no type knows. A value that cannot be
/// read (a number too large, half a surrogate pair, nesting too deep) is neither.
pub fn asks_for_nothing(body: &[u8], path: &str, neutral: impl Fn(&Value) -> bool) -> bool {
    let mut reader = serde_json::Deserializer::from_slice(without_mark(body));
    let seed = NeutralAt {
        path,
        neutral: &neutral,
    };
    seed.deserialize(&mut reader).unwrap_or(false)
}

/// Walks to a path, past everything else unread. A field may stand there several times.
struct NeutralAt<'a, F> {
    path: &'a str,
    neutral: &'a F,
}

impl<'de, F: Fn(&Value) -> bool> DeserializeSeed<'de> for NeutralAt<'_, F> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<bool, D::Error> {
        if self.path.is_empty() {
            let value = Value::deserialize(source)?;
            return Ok(value.is_null() || (self.neutral)(&value));
        }
        source.deserialize_map(self)
    }
}

impl<'de, F: Fn(&Value) -> bool> Visitor<'de> for NeutralAt<'_, F> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let (key, path) = self.path.split_once('.').unwrap_or((self.path, ""));
        let mut all = true;
        while let Some(found) = map.next_key::<String>()? {
            if found == key {
                let neutral = self.neutral;
                all &= map.next_value_seed(NeutralAt { path, neutral })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(all)
    }
}

/// Takes a `T` from an object only: what serde derives for a struct would take an array of its fields, too.
struct ObjectOnly<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectOnly<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }
}

/// Deserialises a struct inside a body: an object or `null`, never an array.
///
/// # Errors
/// When the value is something else, or does not fit.
pub fn object<'de, D, T>(source: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    source.deserialize_any(ObjectOnly(PhantomData))
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
    no_json(&message)
}

fn no_json(why: &str) -> Refusal {
    let message = format!("the request body is not valid JSON: {why}");
    Refusal::new(Kind::Syntax, message)
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
        #[serde(default, deserialize_with = "object")]
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
            // In fields that nobody reads, too.
            b"{\"prompt\":\"a\",\"x\":\"\xff\"}",
            br#"{"prompt":"a","x":["\ud83d"]}"#,
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

    #[test]
    fn a_value_that_cannot_be_read_never_asks_for_nothing() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for value in ["1e400", r#""\ud83d""#, &deep] {
            let body = format!(r#"{{"a":1e400,"g":{value},"p":{{"g":{value}}}}}"#);
            for path in ["g", "p.g"] {
                assert!(!asks_for_nothing(body.as_bytes(), path, |_| true), "{body}");
            }
        }
        let body = br#"{"a":1e400,"g":null,"p":{"g":false}}"#;
        assert!(asks_for_nothing(body, "g", |_| false));
        assert!(asks_for_nothing(body, "p.g", |v| v == false));
        let twice = br#"{"g":{"type":"object"},"g":null}"#;
        assert!(!asks_for_nothing(twice, "g", |_| false));
    }

    #[test]
    fn an_array_is_no_object() {
        check(br#"["a",1]"#, Kind::Invalid, None, "expected an object");
        check(b"null", Kind::Invalid, None, "expected an object");
        check(b"7", Kind::Invalid, None, "expected an object");
        check(
            br#"{"prompt":"a","parameters":[1.0]}"#,
            Kind::Invalid,
            Some("parameters"),
            "expected an object",
        );
    }

    #[test]
    fn of_a_pair_the_unknown_fields_inside_known_ones_are_collected() {
        #[derive(Debug, serde::Deserialize)]
        struct Own {
            prompt: String,
        }
        #[derive(Debug, serde::Deserialize)]
        struct Shared {
            #[serde(default, deserialize_with = "object")]
            parameters: Option<Inner>,
        }
        let body = br#"{"prompt":"a","parameters":{"temperature":1,"y":2},"x":1}"#;
        let (own, shared) = parse_pair::<Own, Shared>(body).unwrap();
        assert_eq!(
            (own.prompt.as_str(), shared.value.parameters.is_some()),
            ("a", true)
        );
        assert_eq!(shared.ignored, ["parameters.y", "x"]);
        let (shared, own) = parse_pair::<Shared, Own>(body).unwrap();
        assert_eq!(
            (own.value.prompt.as_str(), shared.parameters.is_some()),
            ("a", true)
        );
        assert_eq!(own.ignored, ["x", "parameters.y"]);
    }
}
