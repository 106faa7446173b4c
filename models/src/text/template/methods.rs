//! Methods of Python's strings and mappings that the engine's own Python layer lacks and templates call.
//! A method that changes its object (`list.append`) is refused, as in transformers' sandbox.

use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Calls a method of a value that is no object with methods of its own.
pub(super) fn call_method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let own = match value.as_str() {
        Some(text) => string_method(text, method, args),
        None if value.kind() == ValueKind::Map && method == "copy" => {
            let () = from_args(args)?;
            Ok(Some(value.clone()))
        }
        None => Ok(None),
    };
    match own? {
        Some(result) => Ok(result),
        None => unknown_method_callback(state, value, method, args),
    }
}

fn string_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let affix = || from_args::<(&str,)>(args).map(|(affix,)| affix);
    Ok(Some(match method {
        "removeprefix" => Value::from(text.strip_prefix(affix()?).unwrap_or(text)),
        "removesuffix" => Value::from(text.strip_suffix(affix()?).unwrap_or(text)),
        "partition" => {
            let separator = separator(affix()?)?;
            match text.split_once(separator) {
                Some((head, tail)) => triple(head, separator, tail),
                None => triple(text, "", ""),
            }
        }
        "rpartition" => {
            let separator = separator(affix()?)?;
            match text.rsplit_once(separator) {
                Some((head, tail)) => triple(head, separator, tail),
                None => triple("", "", text),
            }
        }
        "rsplit" => rsplit(text, args)?,
        "index" => match text.find(affix()?) {
            Some(at) => Value::from(text[..at].chars().count()),
            None => return Err(invalid("substring not found")),
        },
        "casefold" => Value::from(text.to_lowercase()),
        "ljust" | "rjust" | "center" | "zfill" => padded(text, method, args)?,
        _ => return Ok(None),
    }))
}

/// `rsplit(sep=None, maxsplit=-1)`.
fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator_text, most): (Option<&str>, Option<i64>) = from_args(args)?;
    let most = most.and_then(|n| usize::try_from(n).ok());
    let pieces = most.map_or(usize::MAX, |n| n.saturating_add(1));
    let mut parts: Vec<&str> = match separator_text {
        Some(text_) => text.rsplitn(pieces, separator(text_)?).collect(),
        None => rsplit_blanks(text, pieces),
    };
    parts.reverse();
    Ok(parts.into_iter().map(Value::from).collect())
}

/// The last words of a text, last first, in at most `pieces`; the last piece is the unsplit rest.
fn rsplit_blanks(text: &str, pieces: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        let at = rest.rfind(char::is_whitespace);
        let Some(at) = at.filter(|_| parts.len() + 1 < pieces) else {
            parts.push(rest);
            break;
        };
        let blank = rest[at..].chars().next().map_or(1, char::len_utf8);
        parts.push(&rest[at + blank..]);
        rest = rest[..at].trim_end();
    }
    parts
}

fn separator(text: &str) -> Result<&str, Error> {
    if text.is_empty() {
        return Err(invalid("empty separator"));
    }
    Ok(text)
}

/// Longest text that padding may make.
const MAX_WIDTH: usize = 10_000;

fn padded(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let width = usize::try_from(width).unwrap_or(0);
    if width > MAX_WIDTH {
        return Err(invalid("the width is too large"));
    }
    let missing = width.saturating_sub(text.chars().count());
    let fill = fill.unwrap_or(" ");
    // Python puts the odd one left when the width is odd.
    let left = match method {
        "ljust" => 0,
        "center" => missing / 2 + (missing & width & 1),
        _ => missing,
    };
    let pad = |n: usize| fill.repeat(n);
    Ok(Value::from(match (method, text.strip_prefix(['+', '-'])) {
        ("zfill", Some(digits)) => format!("{}{}{digits}", &text[..1], "0".repeat(missing)),
        ("zfill", None) => format!("{}{text}", "0".repeat(missing)),
        _ => format!("{}{text}{}", pad(left), pad(missing - left)),
    }))
}

fn triple(a: &str, b: &str, c: &str) -> Value {
    Value::from(Tuple::from([a.into(), b.into(), c.into()]))
}

fn invalid(reason: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}
