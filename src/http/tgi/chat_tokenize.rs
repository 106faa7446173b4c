//! `POST /chat_tokenize`: the prompt that a chat becomes, and its tokens.

use super::error;
use super::tokenize::{Token, with_offsets};
use crate::http::body;
use crate::http::json::parse;
use crate::http::refusal::Refusal;
use crate::http::state::AppState;
use crate::http::submit;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use ropeteam_models::text::RenderInput;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What of a chat decides its prompt. The other fields of a chat are taken for what they are: of no meaning here.
#[derive(Debug, Deserialize)]
struct Chat {
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    add_generation_prompt: Option<bool>,
    chat_template_kwargs: Option<Map<String, Value>>,
}

#[derive(Serialize)]
struct Tokenized<'a> {
    tokenize_response: Vec<Token<'a>>,
    templated_text: &'a str,
}

/// Answers `POST /chat_tokenize`.
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
    let parsed = parse::<Chat>(&bytes)?;
    let chat = parsed.value;
    let template = serving
        .chat
        .as_ref()
        .map_err(|why| Refusal::invalid("messages", why.clone()))?;
    let input = RenderInput {
        messages: &chat.messages,
        tools: chat.tools.as_deref().unwrap_or(&[]),
        add_generation_prompt: chat.add_generation_prompt.unwrap_or(true),
        variables: chat.chat_template_kwargs.as_ref(),
    };
    let text = template
        .render(&input)
        .map_err(|error| Refusal::invalid("messages", error.to_string()))?;
    let ignored = submit::ignored_header(state, &parsed.ignored)?;
    Ok(submit::ok(ignored).json(Tokenized {
        // The template writes the special tokens itself.
        tokenize_response: with_offsets(serving, &text, false)?,
        templated_text: &text,
    }))
}
