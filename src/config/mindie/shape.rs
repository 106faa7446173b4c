//! What values a field of MindIE's configuration takes.

use serde_json::Value;
use std::fmt;
use std::net::IpAddr;

/// The values that a field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A whole number from .. to, both included.
    Int(i64, i64),
    /// `true` or `false`.
    Bool,
    /// The same, or 0 or 1.
    Truth,
    /// A text, which may be empty.
    Text,
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// An address.
    Ip,
    /// A list of texts.
    Texts,
    /// Lists of device numbers.
    Devices,
    /// Anything: what is in it does not matter here.
    Any,
}

impl Shape {
    /// Checks a value.
    ///
    /// # Errors
    /// What was found and what is expected.
    pub fn check(self, value: &Value) -> Result<(), String> {
        let all = |value: &Value, fits: fn(&Value) -> bool| {
            value.as_array().is_some_and(|list| list.iter().all(fits))
        };
        let fits = match self {
            Shape::Int(from, to) => value
                .as_i64()
                .is_some_and(|number| (from..=to).contains(&number)),
            Shape::Bool => value.is_boolean(),
            Shape::Truth => value.is_boolean() || matches!(value.as_i64(), Some(0 | 1)),
            Shape::Text => value.is_string(),
            Shape::Choice(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Shape::Ip => value
                .as_str()
                .is_some_and(|text| text.parse::<IpAddr>().is_ok()),
            Shape::Texts => all(value, Value::is_string),
            Shape::Devices => all(value, |list| {
                list.as_array()
                    .is_some_and(|ids| ids.iter().all(Value::is_u64))
            }),
            Shape::Any => true,
        };
        match fits {
            true => Ok(()),
            false => Err(format!("{value} is not {self}")),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Int(from, to) => write!(f, "a whole number from {from} to {to}"),
            Shape::Bool => f.write_str("true or false"),
            Shape::Truth => f.write_str("true, false, 0 or 1"),
            Shape::Text => f.write_str("a text"),
            Shape::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Shape::Ip => f.write_str("an IP address"),
            Shape::Texts => f.write_str("a list of texts"),
            Shape::Devices => f.write_str("a list of lists of device numbers"),
            Shape::Any => f.write_str("a value"),
        }
    }
}
