//! The APIs that are driven: what a request's body looks like, and what an event of its answer says.

mod openai;
mod text;
mod tgi;

use super::dataset::{Prompt, Sample};
use super::record::Usage;
use serde_json::Value;
use std::borrow::Cow;

/// A way to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Api {
    /// OpenAI's /v1/completions
    #[value(name = "openai")]
    Completions,
    /// OpenAI's /v1/chat/completions
    #[value(name = "openai-chat")]
    Chat,
    /// TGI's /generate_stream and /generate
    Tgi,
}

/// Whether the answer is streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Task {
    /// Token by token, as they come
    Stream,
    /// The whole answer at once
    Text,
}

/// What all requests of a run have in common.
#[derive(Clone, Debug)]
pub struct Manner {
    /// The way to ask.
    pub api: Api,
    /// Streamed or not.
    pub task: Task,
    /// The model's name; TGI has none.
    pub model: String,
    /// Sampling temperature; 0 takes the likeliest token.
    pub temperature: f64,
    /// Go on after the token that ends an answer.
    pub ignore_eos: bool,
}

/// What one event, or a whole answer, says.
#[derive(Debug, Default)]
pub struct Said<'a> {
    /// The text in it.
    pub text: Cow<'a, str>,
    /// Whether it brings a token. A token may have no text of its own, when a character is not complete yet.
    pub token: bool,
    /// Counts, where it tells them.
    pub usage: Option<Usage>,
    /// Whether nothing follows.
    pub last: bool,
    /// The error that it tells.
    pub error: Option<String>,
}

impl Api {
    /// Name as the flag has it.
    pub fn name(self) -> &'static str {
        match self {
            Api::Completions => "openai",
            Api::Chat => "openai-chat",
            Api::Tgi => "tgi",
        }
    }

    /// Reads one event of a stream.
    ///
    /// # Errors
    /// When it is not what this API sends.
    pub fn read_event(self, data: &[u8]) -> Result<Said<'_>, serde_json::Error> {
        match self {
            Api::Completions | Api::Chat => openai::read_event(data, self == Api::Completions),
            Api::Tgi => tgi::read_event(data),
        }
    }

    /// Reads a whole answer.
    ///
    /// # Errors
    /// When it is not what this API sends.
    pub fn read_whole(self, body: &[u8]) -> Result<Said<'_>, serde_json::Error> {
        match self {
            Api::Completions | Api::Chat => openai::read_whole(body),
            Api::Tgi => tgi::read_whole(body),
        }
    }

    /// Why this prompt cannot be asked this way, if so.
    pub fn refusal(self, prompt: &Prompt) -> Option<&'static str> {
        match (self, prompt) {
            (Api::Chat | Api::Tgi, Prompt::Ids(_)) => {
                Some("prompts of token ids need --api openai")
            }
            (Api::Completions | Api::Tgi, Prompt::Messages(_)) => {
                Some("prompts of chat messages need --api openai-chat")
            }
            _ => None,
        }
    }
}

impl Manner {
    /// Where requests go, below the server's address.
    pub fn path(&self) -> &'static str {
        match (self.api, self.task) {
            (Api::Completions, _) => "/v1/completions",
            (Api::Chat, _) => "/v1/chat/completions",
            (Api::Tgi, Task::Stream) => "/generate_stream",
            (Api::Tgi, Task::Text) => "/generate",
        }
    }

    /// The body that asks for this sample.
    pub fn body(&self, sample: &Sample) -> Value {
        match self.api {
            Api::Completions | Api::Chat => openai::body(self, sample),
            Api::Tgi => tgi::body(self, sample),
        }
    }
}

/// The message in what a server tells as its error, whatever its shape; `None` for nothing.
fn error_text(error: &Value) -> Option<String> {
    match error {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) => Some(text.clone()),
        other => Some(match other.get("message").and_then(Value::as_str) {
            Some(message) => message.to_owned(),
            None => other.to_string(),
        }),
    }
}

/// The message of a refusal's body, shortened; the body itself when it has no known shape.
pub fn refusal_text(body: &[u8]) -> String {
    let message = serde_json::from_slice::<Value>(body)
        .ok()
        .and_then(|body| error_text(body.get("error").or_else(|| body.get("message"))?));
    let text = message.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    text.trim().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_refusal_is_found_in_every_shape() {
        for (body, text) in [
            (r#"{"error":{"message":"busy","type":"x"}}"#, "busy"),
            (
                r#"{"error":"Model is overloaded","error_type":"overloaded"}"#,
                "Model is overloaded",
            ),
            (r#"{"message":"no such route"}"#, "no such route"),
            ("plain\n", "plain"),
            ("", ""),
        ] {
            assert_eq!(refusal_text(body.as_bytes()), text);
        }
    }
}
