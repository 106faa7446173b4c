//! The key-value part of a GGUF file: typed values, asked for by key.

use super::cursor::Cursor;
use std::collections::BTreeMap;

/// A value. Integers of all widths become `Int`.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any integer.
    Int(i64),
    /// Either float.
    Float(f64),
    /// A flag.
    Bool(bool),
    /// A string.
    Text(String),
    /// An array of integers.
    Ints(Vec<i64>),
    /// An array of floats.
    Floats(Vec<f32>),
    /// An array of flags.
    Bools(Vec<bool>),
    /// An array of strings.
    Texts(Vec<String>),
}

/// All key-value pairs of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    values: BTreeMap<String, Value>,
}

impl Metadata {
    /// Reads `count` pairs.
    pub(super) fn read(cursor: &mut Cursor<'_>, count: usize) -> Result<Self, String> {
        let mut values = BTreeMap::new();
        for _ in 0..count {
            let key = cursor.text()?.to_owned();
            let value = read_value(cursor).map_err(|error| format!("{key}: {error}"))?;
            if values.contains_key(&key) {
                return Err(format!("the key {key} stands there twice"));
            }
            values.insert(key, value);
        }
        Ok(Self { values })
    }

    /// The value under `key`.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// All keys, in alphabetical order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// A string; `None` when absent or of another type, as for all that follow.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.value(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// An integer.
    pub fn int(&self, key: &str) -> Option<i64> {
        match self.value(key)? {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// A float; integers are taken too.
    pub fn float(&self, key: &str) -> Option<f64> {
        match self.value(key)? {
            Value::Float(number) => Some(*number),
            Value::Int(number) => Some(*number as f64),
            _ => None,
        }
    }

    /// A flag.
    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.value(key)? {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// An array of strings.
    pub fn texts(&self, key: &str) -> Option<&[String]> {
        match self.value(key)? {
            Value::Texts(texts) => Some(texts),
            _ => None,
        }
    }

    /// An array of integers.
    pub fn ints(&self, key: &str) -> Option<&[i64]> {
        match self.value(key)? {
            Value::Ints(numbers) => Some(numbers),
            _ => None,
        }
    }

    /// An array of floats.
    pub fn floats(&self, key: &str) -> Option<&[f32]> {
        match self.value(key)? {
            Value::Floats(numbers) => Some(numbers),
            _ => None,
        }
    }
}

impl FromIterator<(String, Value)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(pairs: I) -> Self {
        Self {
            values: pairs.into_iter().collect(),
        }
    }
}

/// Type numbers of the format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
const U8: u32 = 0;
const I8: u32 = 1;
const U16: u32 = 2;
const I16: u32 = 3;
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;
const U64: u32 = 10;
const I64: u32 = 11;
const F64: u32 = 12;

fn read_value(cursor: &mut Cursor<'_>) -> Result<Value, String> {
    match cursor.u32()? {
        BOOL => read_bool(cursor).map(Value::Bool),
        STRING => cursor.text().map(|text| Value::Text(text.to_owned())),
        ARRAY => read_array(cursor),
        kind @ (F32 | F64) => read_float(cursor, kind).map(Value::Float),
        kind => read_int(cursor, kind).map(Value::Int),
    }
}

fn read_array(cursor: &mut Cursor<'_>) -> Result<Value, String> {
    let kind = cursor.u32()?;
    let count = cursor.count(width(kind)?)?;
    match kind {
        BOOL => (0..count)
            .map(|_| read_bool(cursor))
            .collect::<Result<_, _>>()
            .map(Value::Bools),
        STRING => (0..count)
            .map(|_| cursor.text().map(str::to_owned))
            .collect::<Result<_, _>>()
            .map(Value::Texts),
        F32 | F64 => (0..count)
            .map(|_| read_float(cursor, kind).map(|number| number as f32))
            .collect::<Result<_, _>>()
            .map(Value::Floats),
        _ => (0..count)
            .map(|_| read_int(cursor, kind))
            .collect::<Result<_, _>>()
            .map(Value::Ints),
    }
}

/// Fewest bytes that a value of the type takes.
fn width(kind: u32) -> Result<usize, String> {
    match kind {
        U8 | I8 | BOOL => Ok(1),
        U16 | I16 => Ok(2),
        U32 | I32 | F32 => Ok(4),
        U64 | I64 | F64 | STRING => Ok(8),
        ARRAY => Err("arrays of arrays are not supported".to_owned()),
        _ => Err(format!("type {kind} is none of the format's")),
    }
}

fn read_bool(cursor: &mut Cursor<'_>) -> Result<bool, String> {
    match cursor.array::<1>()? {
        [0] => Ok(false),
        [1] => Ok(true),
        [other] => Err(format!("{other} is neither true nor false")),
    }
}

fn read_float(cursor: &mut Cursor<'_>, kind: u32) -> Result<f64, String> {
    if kind == F32 {
        cursor
            .array()
            .map(|bytes| f64::from(f32::from_le_bytes(bytes)))
    } else {
        cursor.array().map(f64::from_le_bytes)
    }
}

fn read_int(cursor: &mut Cursor<'_>, kind: u32) -> Result<i64, String> {
    Ok(match kind {
        U8 => i64::from(u8::from_le_bytes(cursor.array()?)),
        I8 => i64::from(i8::from_le_bytes(cursor.array()?)),
        U16 => i64::from(u16::from_le_bytes(cursor.array()?)),
        I16 => i64::from(i16::from_le_bytes(cursor.array()?)),
        U32 => i64::from(u32::from_le_bytes(cursor.array()?)),
        I32 => i64::from(i32::from_le_bytes(cursor.array()?)),
        I64 => i64::from_le_bytes(cursor.array()?),
        U64 => i64::try_from(cursor.u64()?).map_err(|_| "an integer above 2^63".to_owned())?,
        _ => return Err(format!("type {kind} is none of the format's")),
    })
}
