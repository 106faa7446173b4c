//! JSON lines of one's own: `{"prompt": "text"}` or `{"prompt": [ids]}` or `{"messages": [turns]}`, with `max_tokens` if wanted.

use super::{Entry, Prompt};
use serde_json::Value;

/// Reads one line.
///
/// # Errors
/// When it has none of these.
pub fn entry(value: &Value) -> Result<Entry, String> {
    let prompt = match (value.get("prompt"), value.get("messages")) {
        (Some(Value::String(text)), None) => Prompt::Text(text.clone()),
        (Some(Value::Array(ids)), None) => Prompt::Ids(token_ids(ids)?),
        (None, Some(turns @ Value::Array(_))) => Prompt::Messages(turns.clone()),
        _ => return Err("expected \"prompt\" (a text or token ids) or \"messages\"".to_owned()),
    };
    let output_len = match value.get("max_tokens") {
        None | Some(Value::Null) => None,
        Some(number) => Some(
            whole(number)
                .filter(|n| *n > 0)
                .ok_or("max_tokens is no count")?,
        ),
    };
    Ok(Entry { prompt, output_len })
}

fn token_ids(ids: &[Value]) -> Result<Vec<u32>, String> {
    let id = |id| whole(id).ok_or_else(|| format!("{id} is no token id"));
    ids.iter().map(id).collect()
}

fn whole(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}
