//! HumanEval (https://github.com/openai/human-eval, `HumanEval.jsonl`): the head of a Python function, to be completed.

use super::file::text;
use super::{Entry, Prompt};
use serde_json::Value;

/// Reads one problem.
///
/// # Errors
/// When it has no prompt.
pub fn entry(value: &Value) -> Result<Entry, String> {
    Ok(Entry {
        prompt: Prompt::Text(text(value, "prompt")?.to_owned()),
        output_len: None,
    })
}
