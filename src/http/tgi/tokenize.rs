//! `POST /tokenize`: with `inputs` TGI's answer (a bare array with byte offsets), with `prompt` or `messages` vLLM's (ids and their count).

use super::error;
use crate::http::json::{Parsed, parse};
use crate::http::refusal::Refusal;
use crate::http::state::{AppState, Serving};
use crate::http::{body, submit};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::text::OffsetToken;
use ropeteam_models::text::RenderInput;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Deserialize)]
struct Request {
    inputs: Option<String>,
    prompt: Option<String>,
    messages: Option<Vec<Value>>,
    add_special_tokens: Option<bool>,
    add_generation_prompt: Option<bool>,
    return_token_strs: Option<bool>,
}

/// One token and where it stands.
#[derive(Debug, Serialize)]
pub struct Token<'a> {
    id: u32,
    text: &'a str,
    start: usize,
    stop: usize,
}

#[derive(Debug, Serialize)]
struct Tokens {
    count: usize,
    max_model_len: u32,
    tokens: Vec<u32>,
    token_strs: Option<Vec<String>>,
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
    let Parsed {
        value: asked,
        ignored,
    } = parse::<Request>(&bytes)?;
    let mut response = submit::ok(submit::ignored_header(&ignored));
    if let Some(inputs) = &asked.inputs {
        return Ok(response.json(with_offsets(serving, inputs, true)?));
    }
    let (text, special) = match (&asked.prompt, &asked.messages) {
        (Some(prompt), _) => (prompt.clone(), true),
        (None, Some(messages)) => (render(serving, messages, &asked)?, false),
        (None, None) => {
            return Err(Refusal::invalid(
                "inputs",
                "one of inputs, prompt or messages is missing",
            ));
        }
    };
    let ids = encode(serving, &text, asked.add_special_tokens.unwrap_or(special))?;
    let names = |id: &TokenId| serving.text.token_text(*id).unwrap_or_default();
    Ok(response.json(Tokens {
        count: ids.len(),
        max_model_len: serving.model.max_model_len,
        token_strs: asked
            .return_token_strs
            .unwrap_or(false)
            .then(|| ids.iter().map(names).collect()),
        tokens: ids.into_iter().map(|id| id.0).collect(),
    }))
}

fn encode(serving: &Serving, text: &str, special: bool) -> Result<Vec<TokenId>, Refusal> {
    serving
        .text
        .encode(text, special)
        .map_err(|error| Refusal::invalid("inputs", error.to_string()))
}

fn render(serving: &Serving, messages: &[Value], asked: &Request) -> Result<String, Refusal> {
    let template = serving
        .chat
        .as_ref()
        .map_err(|why| Refusal::invalid("messages", why.clone()))?;
    let input = RenderInput {
        add_generation_prompt: asked.add_generation_prompt.unwrap_or(true),
        ..RenderInput::new(messages)
    };
    template
        .render(&input)
        .map_err(|error| Refusal::invalid("messages", error.to_string()))
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
