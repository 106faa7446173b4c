//! The OpenAI dialect, with vLLM's extensions: `/v1/completions`, `/v1/chat/completions`, `/v1/models`.
//!
//! | file | what |
//! | --- | --- |
//! | `chat.rs`, `chat_wire.rs`, `chat_message.rs` | `/v1/chat/completions`: request and answer; the shapes of its answers |
//! | `chat_prompt.rs` | from messages to the prompt |
//! | `tools.rs` | the tools that a chat offers or forces |
//! | `completions.rs`, `completions_wire.rs`, `prompts.rs` | `/v1/completions` likewise; the forms a prompt may have |
//! | `embeddings.rs` | `/v1/embeddings` |
//! | `fields.rs`, `sampling.rs`, `checks.rs` | shared request fields; those that steer the sampling; checks of single values |
//! | `unoffered.rs` | known fields that are refused |
//! | `structured.rs` | the fields that ask for an answer of a given form |
//! | `logprobs.rs`, `prompt_logprobs.rs`, `usage.rs`, `error.rs` | parts of answers |
//! | `models.rs`, `tokenize.rs` | `/v1/models`; the tokenizer's routes |

pub mod chat;
mod chat_message;
mod chat_prompt;
mod chat_wire;
mod checks;
pub mod completions;
mod completions_wire;
pub mod embeddings;
pub mod error;
mod fields;
mod logprobs;
pub mod models;
mod prompt_logprobs;
mod prompts;
mod sampling;
mod structured;
pub mod tokenize;
mod tools;
mod unoffered;
mod usage;

use super::refusal::Refusal;
use super::request_log::LogLine;
use super::state::AppState;
use actix_web::HttpResponse;
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::request::FinishReason;
use serde::Serialize;

/// What answers carry as `system_fingerprint`.
const FINGERPRINT: &str = concat!("ropeteam-", env!("CARGO_PKG_VERSION"));

/// `finish_reason` of an end that is no failure.
fn finish_reason(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        _ => "stop",
    }
}

/// vLLM's `stop_reason`: the stop string or stop token id that ended the text; null for the model's own end.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum StopReason {
    /// A stop token id.
    Token(u32),
    /// A stop string.
    Text(String),
}

impl StopReason {
    fn of(reason: &FinishReason) -> Option<Self> {
        match reason {
            FinishReason::StopToken(id) => Some(StopReason::Token(id.0)),
            FinishReason::StopString(text) => Some(StopReason::Text(text.clone())),
            _ => None,
        }
    }
}

/// A key that vLLM writes and that is null here in every answer.
type Never = Option<()>;

/// Token ids as they are written.
fn ids_of(ids: &[TokenId]) -> Vec<u32> {
    ids.iter().map(|id| id.0).collect()
}

/// Refuses alternatives per token that are out of range.
fn top_count(field: &str, value: i64) -> Result<u32, Refusal> {
    Ok(checks::whole(field, value, 0, fields::TOP_LOGPROBS_MAX)? as u32)
}

/// Tells a refusal. One for too many tokens names the limit of the prompt alone; the model's own length is added.
fn told(mut refusal: Refusal, state: &AppState, log: &mut LogLine) -> HttpResponse {
    if let (Some(_), Some(serving)) = (refusal.tokens, state.serving.get()) {
        let length = serving.model.max_model_len;
        let more = format!("; the context length is {length} tokens, prompt and output together");
        refusal.message.push_str(&more);
    }
    log.refused(&refusal);
    error::response(&refusal)
}

/// Where the description has the fields of a request type, and their names.
#[cfg(test)]
pub fn field_names(
    ask: super::openapi::tests::FieldNames,
) -> std::collections::BTreeMap<&'static str, std::collections::BTreeSet<String>> {
    [
        (
            "/ChatRequest/allOf/0/properties",
            ask.of::<chat::ChatFields>(),
        ),
        (
            "/CompletionRequest/allOf/0/properties",
            ask.of::<completions::CompletionFields>(),
        ),
        ("/SharedFields/properties", ask.of::<fields::SharedFields>()),
        (
            "/SharedFields/properties/stream_options/properties",
            ask.of::<fields::StreamOptions>(),
        ),
        (
            "/SharedFields/properties/structured_outputs/properties",
            ask.of::<structured::StructuredOutputs>(),
        ),
        (
            "/SharedFields/properties/response_format/properties",
            ask.of::<structured::ResponseFormat>(),
        ),
        (
            "/EmbeddingRequest/properties",
            ask.of::<embeddings::Fields>(),
        ),
        ("/TokenizeRequest/properties", ask.of::<tokenize::Request>()),
        (
            "/DetokenizeRequest/properties",
            ask.of::<tokenize::DetokenizeRequest>(),
        ),
    ]
    .into()
}
