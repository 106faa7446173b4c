//! The `tojson` filter as transformers defines it: Python's `json.dumps` with `ensure_ascii=False`, keys in their order,
//! nothing escaped for HTML.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::python::{PaidText, float_repr};

/// How to write; the arguments of `json.dumps`.
struct Style {
    ensure_ascii: bool,
    /// What one level is indented by; none writes on one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// `{{ value | tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false) }}`.
pub(super) fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    ensure_ascii: Option<Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    let style = Style::from_arguments(ensure_ascii, &options)?;
    PaidText::written(state, |out| style.write(value, out)).map(Value::from)
}

impl Style {
    fn from_arguments(ensure_ascii: Option<Value>, options: &Kwargs) -> Result<Self, Error> {
        let option = |name| options.get::<Option<Value>>(name);
        let ensure_ascii = ensure_ascii.or(option("ensure_ascii")?);
        let indent = option("indent")?
            .filter(|v| !v.is_none())
            .map(indent_of)
            .transpose()?;
        let separators = option("separators")?
            .filter(|v| !v.is_none())
            .map(separators_of)
            .transpose()?;
        let sort_keys = option("sort_keys")?.is_some_and(|v| v.is_true());
        options.assert_all_used()?;
        let (item_separator, key_separator) = separators.unwrap_or_else(|| {
            let item = if indent.is_some() { "," } else { ", " };
            (item.to_owned(), ": ".to_owned())
        });
        Ok(Self {
            ensure_ascii: ensure_ascii.is_some_and(|v| v.is_true()),
            indent,
            item_separator,
            key_separator,
            sort_keys,
        })
    }

    fn write(&self, value: &Value, out: &mut PaidText<'_>) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => out.push("null"),
            ValueKind::Bool => out.push(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push(&number(value)),
            ValueKind::String => out.push(&self.string(value.as_str().unwrap_or_default())),
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?.map(|item| (None, item)).collect();
                self.write_entries(items, ["[", "]"], out)
            }
            ValueKind::Map => self.write_map(value, out),
            kind => Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("a value of kind {kind} has no JSON form"),
            )),
        }
    }

    fn write_map(&self, value: &Value, out: &mut PaidText<'_>) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        let mut entries = Vec::with_capacity(keys.len());
        for key in keys {
            let item = value.get_item(&key)?;
            entries.push((Some(self.key(&key)?), item));
        }
        self.write_entries(entries, ["{", "}"], out)
    }

    fn write_entries(
        &self,
        entries: Vec<(Option<String>, Value)>,
        [open, close]: [&str; 2],
        out: &mut PaidText<'_>,
    ) -> Result<(), Error> {
        out.push(open)?;
        let empty = entries.is_empty();
        out.nested(|out| {
            for (i, (key, item)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(&self.item_separator)?;
                }
                self.break_line(out)?;
                if let Some(key) = key {
                    out.push(&key)?;
                    out.push(&self.key_separator)?;
                }
                self.write(&item, out)?;
            }
            Ok(())
        })?;
        if !empty {
            self.break_line(out)?;
        }
        out.push(close)
    }

    fn break_line(&self, out: &mut PaidText<'_>) -> Result<(), Error> {
        let Some(indent) = &self.indent else {
            return Ok(());
        };
        out.push("\n")?;
        for _ in 0..out.depth() {
            out.push(indent)?;
        }
        Ok(())
    }

    /// A key in quotes. Python writes numbers, booleans and None as JSON would and puts quotes around.
    fn key(&self, key: &Value) -> Result<String, Error> {
        match key.kind() {
            ValueKind::String => Ok(self.string(key.as_str().unwrap_or_default())),
            ValueKind::Number => Ok(format!("\"{}\"", number(key))),
            ValueKind::Bool => Ok(format!("\"{}\"", key.is_true())),
            ValueKind::None => Ok("\"null\"".to_owned()),
            kind => Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("a key of kind {kind} has no JSON form"),
            )),
        }
    }

    fn string(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + 2);
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                '\0'..='\u{1f}' => push_escape(c, &mut out),
                '\u{7f}'.. if self.ensure_ascii => push_escape(c, &mut out),
                _ => out.push(c),
            }
        }
        out.push('"');
        out
    }
}

/// `\uXXXX`, two of them for a character beyond U+FFFF.
fn push_escape(c: char, out: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        out.push_str(&format!("\\u{unit:04x}"));
    }
}

fn number(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(number) if !value.is_integer() => match float_repr(number).as_str() {
            "nan" => "NaN".to_owned(),
            "inf" => "Infinity".to_owned(),
            "-inf" => "-Infinity".to_owned(),
            text => text.to_owned(),
        },
        _ => value.to_string(),
    }
}

/// Widest indentation of one level; more has no use and only costs memory.
const MAX_INDENT: usize = 64;

fn indent_of(value: Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    let width = i64::try_from(value)?.max(0);
    Ok(" ".repeat((width as usize).min(MAX_INDENT)))
}

fn separators_of(value: Value) -> Result<(String, String), Error> {
    let parts: Vec<Value> = value.try_iter()?.take(3).collect();
    match parts.as_slice() {
        [item, key] => Ok((item.to_string(), key.to_string())),
        _ => Err(Error::new(
            ErrorKind::InvalidOperation,
            "separators must be a pair of strings",
        )),
    }
}
