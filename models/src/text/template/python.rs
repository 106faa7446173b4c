//! Values as Python prints them: `str()` for what a template outputs, `repr()` inside lists and mappings.
//! Not here: JSON (`tojson.rs`).

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Values nested deeper than this are refused, since each level takes room on the stack.
const MAX_DEPTH: usize = 200;

/// Text that grows by what a template prints, paid for with the template's fuel: a small value that contains another
/// many times can print without end.
pub(super) struct PaidText<'a> {
    text: String,
    depth: usize,
    pay: &'a dyn Fn(u64) -> Result<(), Error>,
}

impl PaidText<'_> {
    /// Lets `write` fill a text that the template of `state` pays for.
    pub fn written(
        state: &State<'_, '_>,
        write: impl FnOnce(&mut PaidText<'_>) -> Result<(), Error>,
    ) -> Result<String, Error> {
        let mut out = PaidText {
            text: String::new(),
            depth: 0,
            pay: &|fuel| state.consume_fuel(fuel),
        };
        write(&mut out)?;
        Ok(out.text)
    }

    /// Appends text.
    pub fn push(&mut self, text: &str) -> Result<(), Error> {
        (self.pay)(1 + text.len() as u64 / 64)?;
        self.text.push_str(text);
        Ok(())
    }

    /// Writes something one level deeper.
    pub fn nested(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.depth == MAX_DEPTH {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "a value is nested too deep",
            ));
        }
        self.depth += 1;
        write(self)?;
        self.depth -= 1;
        Ok(())
    }

    /// How many levels deep it is.
    pub fn depth(&self) -> usize {
        self.depth
    }
}

/// `str(value)`; undefined is empty.
pub(super) fn write_str(value: &Value, out: &mut PaidText<'_>) -> Result<(), Error> {
    match (value.kind(), value.as_str()) {
        (ValueKind::Undefined, _) => Ok(()),
        (_, Some(text)) => out.push(text),
        _ => write_repr(value, out),
    }
}

/// `repr(value)`.
fn write_repr(value: &Value, out: &mut PaidText<'_>) -> Result<(), Error> {
    if let Some(tuple) = value.downcast_object_ref::<Tuple>() {
        let close = if tuple.len() == 1 { ",)" } else { ")" };
        return write_items(&mut tuple.iter().cloned(), ["(", close], out);
    }
    match value.kind() {
        ValueKind::String => out.push(&str_repr(value.as_str().unwrap_or_default())),
        ValueKind::Number if !value.is_integer() => match f64::try_from(value.clone()) {
            Ok(number) => out.push(&float_repr(number)),
            Err(_) => out.push(&value.to_string()),
        },
        ValueKind::Seq | ValueKind::Iterable => {
            write_items(&mut value.try_iter()?, ["[", "]"], out)
        }
        ValueKind::Map => out.nested(|out| {
            out.push("{")?;
            for (i, key) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push(", ")?;
                }
                write_repr(&key, out)?;
                out.push(": ")?;
                write_repr(&value.get_item(&key)?, out)?;
            }
            out.push("}")
        }),
        _ => out.push(&value.to_string()),
    }
}

fn write_items(
    items: &mut dyn Iterator<Item = Value>,
    [open, close]: [&str; 2],
    out: &mut PaidText<'_>,
) -> Result<(), Error> {
    out.nested(|out| {
        out.push(open)?;
        for (i, item) in items.enumerate() {
            if i > 0 {
                out.push(", ")?;
            }
            write_repr(&item, out)?;
        }
        out.push(close)
    })
}

/// `repr` of a float: the shortest text that reads back as the same number.
pub(super) fn float_repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    let text = format!("{number:?}");
    match text.split_once('e') {
        // Python writes the exponent with a sign and at least two digits.
        Some((mantissa, exponent)) => {
            let (sign, digits) = match exponent.strip_prefix('-') {
                Some(digits) => ('-', digits),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}

/// `repr` of a string: in single quotes unless it holds those and no double ones.
fn str_repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if c == quote => out.extend(['\\', c]),
            _ if is_printable(c) => out.push(c),
            '\0'..='\u{FF}' => out.push_str(&format!("\\x{:02x}", c as u32)),
            '\u{100}'..='\u{FFFF}' => out.push_str(&format!("\\u{:04x}", c as u32)),
            _ => out.push_str(&format!("\\U{:08x}", c as u32)),
        }
    }
    out.push(quote);
    out
}

/// Python and Rust agree on which characters are printable; Rust tells for a character inside a text, by escaping it.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    let mut text = [0; 5];
    text[0] = b'a';
    let len = 1 + c.encode_utf8(&mut text[1..]).len();
    std::str::from_utf8(&text[..len]).is_ok_and(|t| t.escape_debug().eq(t.chars()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        for (number, expected) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(float_repr(number), expected);
        }
    }

    #[test]
    fn strings_print_as_in_python() {
        for (text, expected) in [
            ("a", "'a'"),
            ("it's", "\"it's\""),
            ("it's \"x\"", "'it\\'s \"x\"'"),
            ("\n\t\\", "'\\n\\t\\\\'"),
            ("\0\x7f\u{a0}\u{ad}", "'\\x00\\x7f\\xa0\\xad'"),
            ("二é\u{301}🦜", "'二é\u{301}🦜'"),
            ("\u{200b}\u{e0001}", "'\\u200b\\U000e0001'"),
        ] {
            assert_eq!(str_repr(text), expected);
        }
    }
}
