//! The template engine set up as transformers sets up Jinja, with limits: no file is read, and a template that runs on
//! or grows its data without end is stopped.
//!
//! Source of the set-up: transformers `utils/chat_template_utils.py`, `_compile_jinja_template`.

use std::sync::Arc;

use jiff::Zoned;
use jiff::civil::DateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

use super::dialect::LOOP_FILTER;
use super::methods::call_method;
use super::python::{PaidText, write_str};
use super::tojson::tojson;

/// Local time for `strftime_now`.
pub type Clock = Arc<dyn Fn() -> DateTime + Send + Sync>;

/// Marks an error that the template raised itself.
pub(super) const REFUSAL: &str = "raise_exception: ";

/// Steps, and memory in units of 64 bytes, that one prompt may take. A prompt of a few messages takes some thousands.
pub(super) const FUEL: u64 = 5_000_000;

/// The same while a template is tried out on one short message.
pub(super) const PROBE_FUEL: u64 = 500_000;

/// Nested calls of macros. Each takes room on the stack of the thread that renders.
const MAX_RECURSION: usize = 120;

/// An environment without templates, with fuel for a probe.
pub(super) fn new() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .expect("invariant: the usual delimiters are valid");
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_debug(true);
    environment.set_fuel(Some(PROBE_FUEL));
    environment.set_recursion_limit(MAX_RECURSION);
    environment.set_unknown_method_callback(call_method);
    environment.set_formatter(|out, state, value| {
        if let Some(text) = value.as_str() {
            return out.write_str(text).map_err(Error::from);
        }
        let text = PaidText::written(state, |text| write_str(value, text))?;
        out.write_str(&text).map_err(Error::from)
    });
    environment.add_filter("tojson", tojson);
    environment.add_filter(LOOP_FILTER, loop_items);
    environment.add_test("iterable", is_iterable);
    environment.add_test("callable", |value: &Value| {
        value.kind() == ValueKind::Plain && value.as_object().is_some()
    });
    environment.add_function("raise_exception", raise_exception);
    set_clock(&mut environment, Arc::new(|| Zoned::now().datetime()));
    environment
}

/// Sets what `strftime_now` shows.
pub(super) fn set_clock(environment: &mut Environment<'static>, clock: Clock) {
    environment.add_function("strftime_now", move |format: &str| {
        jiff::fmt::strtime::format(format, clock()).map_err(|e| {
            Error::new(
                ErrorKind::InvalidOperation,
                format!("strftime_now({format:?}): {e}"),
            )
        })
    });
}

fn raise_exception(reason: Rest<Value>) -> Result<Value, Error> {
    let reason = reason.first().map(Value::to_string).unwrap_or_default();
    Err(Error::new(
        ErrorKind::InvalidOperation,
        format!("{REFUSAL}{reason}"),
    ))
}

/// What a `for` runs over: strings as lists of characters (the engine knows no length of a string's loop), and none is
/// an error as in Python.
fn loop_items(value: &Value) -> Result<Value, Error> {
    match (value.kind(), value.as_str()) {
        (_, Some(text)) => Ok(text.chars().map(|c| Value::from(c.to_string())).collect()),
        (ValueKind::None, _) => Err(Error::new(
            ErrorKind::InvalidOperation,
            "none is not iterable",
        )),
        _ => Ok(value.clone()),
    }
}

fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}
