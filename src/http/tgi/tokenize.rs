//! `POST /tokenize`: with `inputs` TGI's answer, a bare array with byte offsets. With `prompt` or `messages` it is vLLM's
//! (`openai/tokenize.rs`).

use super::error;
use crate::http::json::{Parsed, parse};
use crate::http::openai::tokenize;
use crate::http::refusal::Refusal;
use crate::http::state::{AppState, Serving};
use crate::http::{body, submit};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use ropeteam_engine::text::OffsetToken;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize)]
struct Request {
    inputs: String,
}

/// Which form a body has.
#[derive(Debug, Deserialize)]
struct Form {
    prompt: Option<IgnoredAny>,
    messages: Option<IgnoredAny>,
}

/// One token and where it stands.
#[derive(Debug, Serialize)]
pub struct Token<'a> {
    id: u32,
    text: &'a str,
    start: usize,
    stop: usize,
}

/// Answers `POST /tokenize`.
pub async fn route(request: HttpRequest, payload: Payload, state: Data<AppState>) -> HttpResponse {
    answer(&request, payload, &state)
        .await
        .unwrap_or_else(|refusal| error::response(&refusal))
}

async fn answer(
    request: &HttpRequest,
    payload: Payload,
    state: &AppState,
) -> Result<HttpResponse, Refusal> {
    state.keys.tenant(request)?;
    let serving = state.serving()?;
    let bytes = body::read_json(request, payload, state).await?;
    let form: Form = parse(&bytes)?.value;
    if form.prompt.is_some() || form.messages.is_some() {
        return Ok(tokenize::answer(&bytes, state, serving).await);
    }
    let Parsed { value, ignored } = parse::<Request>(&bytes)?;
    let mut response = submit::ok(submit::ignored_header(state, &ignored)?);
    Ok(response.json(with_offsets(serving, &value.inputs, true)?))
}

/// Each token with its place in `text`, in bytes. Tokens that are not in it (a begin token) are empty.
///
/// # Errors
/// When the text cannot be tokenised.
pub fn with_offsets<'a>(
    serving: &Serving,
    text: &'a str,
    special: bool,
) -> Result<Vec<Token<'a>>, Refusal> {
    let tokens = serving
        .text
        .encode_with_offsets(text, special)
        .map_err(|error| Refusal::invalid("inputs", error.to_string()))?;
    Ok(tokens
        .into_iter()
        .map(|OffsetToken { id, bytes }| Token {
            id: id.0,
            text: text.get(bytes.clone()).unwrap_or_default(),
            start: bytes.start,
            stop: bytes.end,
        })
        .collect())
}
