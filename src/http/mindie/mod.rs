//! The routes that MindIE's server has beside TGI's and OpenAI's: `/generate` with a `prompt`, `/infer`, `/infer_token`, `/v1/tokenizer`,
//! the Triton-style `/v2/…`, and on the management port health probes, status and stopping.
//!
//! | file | what |
//! | --- | --- |
//! | `parameters.rs` | the parameters that its own and the Triton-style routes share |
//! | `infer.rs` | `/infer` and `/infer_token` |
//! | `prompt.rs` | `/generate` with a `prompt`, as vLLM 0.2.6 had it |
//! | `triton.rs`, `triton_tokens.rs` | `/v2/models/{model}/generate`, `generate_stream` and `stopInfer`; `infer` |
//! | `models.rs` | what `/v2` tells of the server and its model |
//! | `tokenizer.rs` | `/v1/tokenizer` |
//! | `stop.rs` | running requests that `stopInfer` may end |
//! | `health.rs`, `management.rs`, `stop_service.rs` | the management port: probes, what it tells, the end |
//! | `frames.rs` | streams with one event per token |
//! | `error.rs` | how a refusal looks |
//!
//! What differs from the original: a fault is told as an error, never as the finish reason `stop_sequence`; the text of `/generate` has no
//! blank put between prompt and output; `batch_size` in details is null, because a request does not know its company.

pub mod error;
mod frames;
pub mod health;
pub mod infer;
pub mod management;
pub mod models;
mod parameters;
pub mod prompt;
mod stop;
pub mod stop_service;
pub mod tokenizer;
pub mod triton;
pub mod triton_tokens;

pub use stop::Stoppable;

use super::body;
use super::refusal::Refusal;
use super::state::{AppState, Serving};
use actix_web::HttpRequest;
use actix_web::web::{Bytes, Payload};
use ropeteam_engine::request::FinishReason;

/// A request that may be looked at: its key is good, there is a model, and its body was read.
struct Received<'a> {
    tenant: String,
    serving: &'a Serving,
    bytes: Bytes,
}

async fn receive<'a>(
    request: &HttpRequest,
    payload: Payload,
    state: &'a AppState,
) -> Result<Received<'a>, Refusal> {
    Ok(Received {
        tenant: state.keys.tenant(request)?,
        serving: state.serving()?,
        bytes: body::read_json(request, payload, state).await?,
    })
}

/// The original's three words. Failures never come here.
fn finish_reason(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::EndOfText(_) => "eos_token",
        FinishReason::StopToken(_) | FinishReason::StopString(_) => "stop_sequence",
        _ => "length",
    }
}
