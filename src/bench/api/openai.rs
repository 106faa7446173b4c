//! OpenAI's completions and chat completions, with the fields that vLLM, llama.cpp and Ropeteam add. Events are read into borrowed fields
//! and not into trees: the client must be cheaper than any server.

use super::text::Text;
use super::{Manner, Said, Task, error_text};
use crate::bench::dataset::{Prompt, Sample};
use crate::bench::record::Usage;
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// The body that asks for this sample.
pub fn body(manner: &Manner, sample: &Sample) -> Value {
    let mut body = json!({
        "model": manner.model,
        "max_tokens": sample.output_len,
        "temperature": manner.temperature,
    });
    match &sample.prompt {
        Prompt::Text(text) if manner.path().contains("chat") => {
            body["messages"] = json!([{"role": "user", "content": text}]);
        }
        Prompt::Text(text) => body["prompt"] = json!(text),
        Prompt::Ids(ids) => body["prompt"] = json!(ids),
        Prompt::Messages(messages) => body["messages"] = messages.clone(),
    }
    if manner.ignore_eos {
        body["ignore_eos"] = json!(true);
    }
    if manner.task == Task::Stream {
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'a>>,
    usage: Option<Counts>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow)]
    delta: Option<Turn<'a>>,
    #[serde(borrow)]
    message: Option<Turn<'a>>,
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
}

/// A piece of a turn. Servers that let a model think stream that first, under either name.
#[derive(Deserialize)]
struct Turn<'a> {
    #[serde(borrow, default)]
    content: Text<'a>,
    #[serde(borrow, default)]
    reasoning_content: Text<'a>,
    #[serde(borrow, default)]
    reasoning: Text<'a>,
}

#[derive(Deserialize)]
struct Counts {
    #[serde(default)]
    prompt_tokens: u32,
    #[serde(default)]
    completion_tokens: u32,
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u32>,
}

impl From<Counts> for Usage {
    fn from(counts: Counts) -> Self {
        let details = counts.prompt_tokens_details;
        Usage {
            prompt: Some(counts.prompt_tokens),
            output: counts.completion_tokens,
            cached: details.and_then(|d| d.cached_tokens).unwrap_or(0),
        }
    }
}

impl<'a> Turn<'a> {
    fn into_text(self) -> Cow<'a, str> {
        let thought = [self.content.0, self.reasoning_content.0, self.reasoning.0];
        let mut texts = thought.into_iter().filter(|text| !text.is_empty());
        texts.next().unwrap_or_default()
    }
}

/// Reads one event. Completions have no event without a token but the closing one; a chat begins with an event that only tells the role.
///
/// # Errors
/// When it is no such event.
pub fn read_event(data: &[u8], completions: bool) -> Result<Said<'_>, serde_json::Error> {
    if data.trim_ascii() == b"[DONE]" {
        return Ok(Said {
            last: true,
            ..Said::default()
        });
    }
    let mut said = Said::default();
    let chunk: Chunk<'_> = serde_json::from_slice(data)?;
    for choice in chunk.choices {
        let closing = !choice.finish_reason.0.is_empty();
        let text = match choice.delta {
            Some(delta) => delta.into_text(),
            None => choice.text.0,
        };
        said.token |= !text.is_empty() || (completions && !closing);
        said.text = text;
    }
    said.usage = chunk.usage.map(Usage::from);
    said.error = chunk.error.as_ref().and_then(error_text);
    Ok(said)
}

/// Reads a whole answer.
///
/// # Errors
/// When it is no such answer.
pub fn read_whole(body: &[u8]) -> Result<Said<'_>, serde_json::Error> {
    let mut said = Said {
        last: true,
        ..Said::default()
    };
    let whole: Chunk<'_> = serde_json::from_slice(body)?;
    for choice in whole.choices {
        said.token = true;
        said.text = match choice.message {
            Some(message) => message.into_text(),
            None => choice.text.0,
        };
    }
    said.usage = whole.usage.map(Usage::from);
    said.error = whole.error.as_ref().and_then(error_text);
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(data: &str, completions: bool, text: &str, token: bool) {
        let said = read_event(data.as_bytes(), completions).unwrap();
        assert_eq!((&*said.text, said.token), (text, token), "{data}");
    }

    #[test]
    fn events_with_tokens_are_told_from_the_others() {
        let completion = |text: &str, finish: &str| {
            format!(
                r#"{{"id":"c","choices":[{{"index":0,"text":{text},"logprobs":null,"finish_reason":{finish}}}],"usage":null}}"#
            )
        };
        check(&completion(r#"" a\n""#, "null"), true, " a\n", true);
        check(&completion(r#""""#, "null"), true, "", true);
        check(&completion(r#""""#, r#""length""#), true, "", false);
        check(&completion(r#"" z""#, r#""stop""#), true, " z", true);
        let chat =
            |delta: &str| format!(r#"{{"choices":[{{"delta":{delta},"finish_reason":null}}]}}"#);
        check(
            &chat(r#"{"role":"assistant","content":null}"#),
            false,
            "",
            false,
        );
        check(
            &chat(r#"{"role":"assistant","content":""}"#),
            false,
            "",
            false,
        );
        check(&chat(r#"{"content":"hi"}"#), false, "hi", true);
        check(&chat(r#"{"reasoning":"hm"}"#), false, "hm", true);
        check(&chat("{}"), false, "", false);
        check(r#"{"choices":[]}"#, true, "", false);
    }

    #[test]
    fn counts_errors_and_the_end_are_read() {
        let usage = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":8}}}"#;
        let counts = Usage {
            prompt: Some(9),
            output: 4,
            cached: 8,
        };
        assert_eq!(
            read_event(usage.as_bytes(), true).unwrap().usage,
            Some(counts)
        );
        let error = br#"{"error":{"message":"device lost","type":"server_error"}}"#;
        assert_eq!(
            read_event(error, false).unwrap().error.as_deref(),
            Some("device lost")
        );
        assert!(read_event(b" [DONE]", true).unwrap().last);
        assert!(read_event(b"{\"choices\":[{]", true).is_err());
    }

    #[test]
    fn a_token_without_escapes_is_not_copied() {
        let data = br#"{"choices":[{"text":" plain","finish_reason":null}]}"#;
        let said = read_event(data, true).unwrap();
        assert!(matches!(said.text, Cow::Borrowed(" plain")));
    }

    #[test]
    fn whole_answers_of_both_routes_are_read() {
        let usage = r#""usage":{"prompt_tokens":1,"completion_tokens":2}"#;
        for answer in [
            format!(r#"{{"choices":[{{"text":"ok","finish_reason":"stop"}}],{usage}}}"#),
            format!(
                r#"{{"choices":[{{"message":{{"role":"assistant","content":"ok"}}}}],{usage}}}"#
            ),
        ] {
            let said = read_whole(answer.as_bytes()).unwrap();
            assert_eq!((&*said.text, said.token, said.last), ("ok", true, true));
            assert_eq!(said.usage.map(|usage| usage.output), Some(2));
        }
    }
}
