//! GSM8K (https://github.com/openai/grade-school-math, `test.jsonl`): word problems. The question is asked in the form in which a model
//! that only continues texts answers it too.

use super::file::text;
use super::{Entry, Prompt};
use serde_json::Value;

/// Reads one problem.
///
/// # Errors
/// When it has no question.
pub fn entry(value: &Value) -> Result<Entry, String> {
    let question = text(value, "question")?;
    Ok(Entry {
        prompt: Prompt::Text(format!("Question: {question}\nAnswer:")),
        output_len: None,
    })
}
