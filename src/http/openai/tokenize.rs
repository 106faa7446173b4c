//! vLLM's routes about the tokenizer: `/tokenize` with `prompt` or `messages`, `/detokenize`, `/tokenizer_info`. Not here: TGI's form of
//! `/tokenize` (`tgi/tokenize.rs`, which asks this file for the other one).

use super::chat_prompt::ChatPrompt;
use super::checks::token_id;
use super::{error, fields};
use crate::http::json::{Parsed, parse};
use crate::http::refusal::{Kind, Refusal};
use crate::http::state::{AppState, Serving};
use crate::http::{body, submit};
use actix_web::web::{self, Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use ropeteam_engine::ids::TokenId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
pub(super) struct Request {
    model: Option<String>,
    prompt: Option<String>,
    messages: Option<Vec<Value>>,
    tools: Option<Vec<Value>>,
    add_special_tokens: Option<bool>,
    return_token_strs: Option<bool>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
    chat_template: Option<String>,
    chat_template_kwargs: Option<Map<String, Value>>,
}

#[derive(Debug, Serialize)]
struct Tokens {
    count: usize,
    max_model_len: u32,
    tokens: Vec<u32>,
    token_strs: Option<Vec<String>>,
}

/// Answers `POST /tokenize` with a body in vLLM's form.
pub async fn answer(bytes: &[u8], state: &AppState, serving: &Serving) -> HttpResponse {
    let answer = tokens(bytes, state, serving).await;
    answer.unwrap_or_else(|refusal| error::response(&refusal))
}

async fn tokens(
    bytes: &[u8],
    state: &AppState,
    serving: &Serving,
) -> Result<HttpResponse, Refusal> {
    let Parsed { value, ignored } = parse::<Request>(bytes)?;
    let mut response = submit::ok(submit::ignored_header(state, &ignored)?);
    fields::check_model(value.model.as_deref(), serving)?;
    let (text, special) = match (&value.prompt, &value.messages) {
        (Some(_), Some(_)) => {
            let message = "prompt and messages cannot both be given";
            return Err(Refusal::invalid("prompt", message));
        }
        (Some(prompt), None) => (prompt.clone(), true),
        (None, _) => (value.chat().render(serving, &state.limits)?, false),
    };
    let special = value.add_special_tokens.unwrap_or(special);
    let ids = encoded(serving, text, special).await?;
    let names = |id: &TokenId| serving.text.token_entry(*id).unwrap_or_default();
    let named = value.return_token_strs.unwrap_or(false);
    Ok(response.json(Tokens {
        count: ids.len(),
        max_model_len: serving.model.max_model_len,
        token_strs: named.then(|| ids.iter().map(names).collect()),
        tokens: super::ids_of(&ids),
    }))
}

impl Request {
    fn chat(&self) -> ChatPrompt<'_> {
        ChatPrompt {
            messages: self.messages.as_deref().unwrap_or(&[]),
            tools: self.tools.as_deref().unwrap_or(&[]),
            add_generation_prompt: self.add_generation_prompt,
            continue_final_message: self.continue_final_message,
            chat_template: self.chat_template.as_deref(),
            chat_template_kwargs: self.chat_template_kwargs.as_ref(),
            documents: None,
            reasoning_effort: None,
        }
    }
}

/// Tokenises on a blocking thread: a long text takes its time.
async fn encoded(serving: &Serving, text: String, special: bool) -> Result<Vec<TokenId>, Refusal> {
    let codec = serving.text.clone();
    let encoded = web::block(move || codec.encode(&text, special)).await;
    match encoded {
        Ok(Ok(ids)) => Ok(ids),
        Ok(Err(error)) => Err(Refusal::invalid("prompt", error.to_string())),
        Err(_) => Err(Refusal::new(Kind::Incomplete, "the tokenizer failed on it")),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct DetokenizeRequest {
    model: Option<String>,
    tokens: Vec<i64>,
}

#[derive(Debug, Serialize)]
struct Text {
    prompt: String,
}

/// Answers `POST /detokenize`.
pub async fn detokenize(
    request: HttpRequest,
    payload: Payload,
    state: Data<AppState>,
) -> HttpResponse {
    let answer = text(&request, payload, &state).await;
    answer.unwrap_or_else(|refusal| error::response(&refusal))
}

async fn text(
    request: &HttpRequest,
    payload: Payload,
    state: &AppState,
) -> Result<HttpResponse, Refusal> {
    state.keys.tenant(request)?;
    let serving = state.serving()?;
    let bytes = body::read_json(request, payload, state).await?;
    let Parsed { value, ignored } = parse::<DetokenizeRequest>(&bytes)?;
    let mut response = submit::ok(submit::ignored_header(state, &ignored)?);
    fields::check_model(value.model.as_deref(), serving)?;
    let ids = value.tokens.into_iter();
    let ids: Vec<TokenId> = ids
        .map(|id| token_id("tokens", id, serving))
        .collect::<Result<_, _>>()?;
    let mut decoder = serving.text.decoder(&[], false);
    let mut prompt: String = ids.into_iter().map(|id| decoder.push(id)).collect();
    prompt.push_str(&decoder.finish());
    Ok(response.json(Text { prompt }))
}

#[derive(Debug, Serialize)]
struct TokenizerInfo<'a> {
    tokenizer_class: &'static str,
    model_max_length: u32,
    vocab_size: u32,
    /// `eos_token` and its like.
    #[serde(flatten)]
    special: BTreeMap<&'a str, &'a str>,
    chat_template: Option<&'a str>,
}

/// Answers `GET /tokenizer_info`.
pub async fn info(request: HttpRequest, state: Data<AppState>) -> HttpResponse {
    let serving = state.keys.tenant(&request).and_then(|_| state.serving());
    let serving = match serving {
        Ok(serving) => serving,
        Err(refusal) => return error::response(&refusal),
    };
    let template = serving.chat.as_ref().ok();
    HttpResponse::Ok().json(TokenizerInfo {
        tokenizer_class: "PreTrainedTokenizerFast",
        model_max_length: serving.model.max_model_len,
        vocab_size: serving.text.vocab_size(),
        special: serving.special.iter().collect(),
        chat_template: template.and_then(|template| template.source()),
    })
}
