//! `POST /v1/tokenizer`: how many tokens a text has, and which.

use super::parameters::wrong;
use super::{error, receive};
use crate::http::json::parse;
use crate::http::refusal::Refusal;
use crate::http::state::AppState;
use crate::http::submit;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize)]
struct Body {
    inputs: String,
    do_decode: Option<bool>,
}

#[derive(Serialize)]
struct Tokens {
    token_number: usize,
    tokens: Vec<String>,
}

/// Answers `POST /v1/tokenizer`.
pub async fn route(request: HttpRequest, payload: Payload, state: Data<AppState>) -> HttpResponse {
    answer(&request, payload, &state)
        .await
        .unwrap_or_else(|refusal| error::response(&refusal))
}

/// With `do_decode` (the default) tokens are pieces of the text, else the tokenizer's own names for them.
async fn answer(
    request: &HttpRequest,
    payload: Payload,
    state: &AppState,
) -> Result<HttpResponse, Refusal> {
    let received = receive(request, payload, state).await?;
    let parsed = parse::<Body>(&received.bytes)?;
    let asked = parsed.value;
    if asked.inputs.is_empty() {
        return Err(wrong("inputs", "must not be empty"));
    }
    let text = &received.serving.text;
    let tokens = text
        .encode_with_offsets(&asked.inputs, true)
        .map_err(|error| Refusal::invalid("inputs", error.to_string()))?;
    let pieces = asked.do_decode.unwrap_or(true);
    let piece = |token: &ropeteam_engine::text::OffsetToken| {
        let own = || text.token_text(token.id).unwrap_or_default();
        match asked.inputs.get(token.bytes.clone()) {
            Some(piece) if pieces && !piece.is_empty() => piece.to_owned(),
            _ => own(),
        }
    };
    Ok(
        submit::ok(submit::ignored_header(state, &parsed.ignored)?).json(Tokens {
            token_number: tokens.len(),
            tokens: tokens.iter().map(piece).collect(),
        }),
    )
}
