//! Reads a JSON text strictly: one object at the top, no key twice. serde_json alone would keep the last of two.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// The object at the top of a JSON text; a byte-order mark is skipped.
///
/// # Errors
/// What is wrong, with line and column where known.
pub fn object(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8 text".to_owned())?;
    if text.trim().is_empty() {
        return Err("the file is empty; a JSON object is expected".to_owned());
    }
    let mut source = serde_json::Deserializer::from_str(text);
    let value = Unique {
        path: String::new(),
    }
    .deserialize(&mut source)
    .map_err(|error| error.to_string())?;
    source.end().map_err(|error| error.to_string())?;
    match value {
        Value::Object(object) => Ok(object),
        _ => Err("a JSON object is expected at the top".to_owned()),
    }
}

/// Reads any JSON value but refuses a key that an object holds twice (serde_json would keep the last).
struct Unique {
    path: String,
}

impl<'de> DeserializeSeed<'de> for Unique {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(Unique {
            path: self.path.clone(),
        })? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = if self.path.is_empty() {
                key.clone()
            } else {
                format!("{}.{key}", self.path)
            };
            if object.contains_key(&key) {
                return Err(A::Error::custom(format_args!("{path}: set twice")));
            }
            object.insert(key, entries.next_value_seed(Unique { path })?);
        }
        Ok(Value::Object(object))
    }
}
