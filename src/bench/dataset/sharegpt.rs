//! ShareGPT conversations: an array of `{"conversations": [{"from": "human", "value": ..}, {"from": "gpt", "value": ..}, ..]}`. The first
//! question is the prompt; with a tokenizer, the answer's length is how long ours shall be.

use super::file::text;
use super::{Entry, Prompt};
use crate::bench::tokens::Tokens;
use serde_json::Value;

/// Reads all conversations that begin with a question.
///
/// # Errors
/// When the text is no such array.
pub fn entries(json: &str, tokens: Option<&Tokens>) -> Result<Vec<Entry>, String> {
    let conversations: Vec<Value> = serde_json::from_str(json)
        .map_err(|error| format!("no array of conversations: {error}"))?;
    let asked = conversations.iter().filter_map(|conversation| {
        let turns = conversation.get("conversations")?.as_array()?;
        let question = turns
            .first()
            .filter(|turn| is_from(turn, &["human", "user"]))?;
        let answer = turns
            .get(1)
            .filter(|turn| is_from(turn, &["gpt", "chatgpt", "assistant"]));
        let answer = answer.and_then(|turn| text(turn, "value").ok());
        Some(Entry {
            prompt: Prompt::Text(text(question, "value").ok()?.to_owned()),
            output_len: tokens
                .zip(answer)
                .map(|(tokens, answer)| tokens.count(answer, false).max(1)),
        })
    });
    Ok(asked.collect())
}

fn is_from(turn: &Value, names: &[&str]) -> bool {
    text(turn, "from").is_ok_and(|from| names.contains(&from))
}
