//! `POST /infer` and `/infer_token`, MindIE's own routes: text or token ids in, text out, whole or streamed. Both take either prompt.

use super::frames::{End, Piece, TokenEvents, TokenFrames, millis};
use super::parameters::{Parameters, Ranges, or_default, wrong};
use super::{error, finish_reason, receive};
use crate::http::answer;
use crate::http::json::parse;
use crate::http::refusal::Refusal;
use crate::http::request_log::LogLine;
use crate::http::sse::frame_after;
use crate::http::state::AppState;
use crate::http::{request_id, sse, submit};
use actix_web::web::{BytesMut, Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use ropeteam_actors::generation::Usage;
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::request::{FinishReason, Prompt};
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize)]
struct Body {
    inputs: Option<String>,
    input_id: Option<Vec<u32>>,
    #[serde(default, deserialize_with = "or_default")]
    parameters: Parameters,
    stream: Option<bool>,
}

#[derive(Serialize)]
struct Whole<'a> {
    generated_text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
}

#[derive(Serialize)]
struct Details {
    finish_reason: &'static str,
    generated_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    generated_token_ids: Option<Vec<u32>>,
    seed: Option<u64>,
}

impl Details {
    fn of(reason: &FinishReason, usage: &Usage, sampled: bool, ids: Option<Vec<u32>>) -> Self {
        Details {
            finish_reason: finish_reason(reason),
            generated_tokens: usage.completion_tokens,
            generated_token_ids: ids,
            seed: sampled.then_some(usage.seed),
        }
    }
}

/// Answers `POST /infer` and `POST /infer_token`.
pub async fn route(request: HttpRequest, payload: Payload, state: Data<AppState>) -> HttpResponse {
    let id = request_id::of(&request);
    let name = match request.path() {
        "/infer" => "/infer",
        _ => "/infer_token",
    };
    let mut log = LogLine::new(state.request_log.as_ref(), &id, name);
    let answer = answer(&request, payload, &state, &mut log).await;
    answer.unwrap_or_else(|refusal| {
        log.refused(&refusal);
        error::response(&refusal)
    })
}

async fn answer(
    request: &HttpRequest,
    payload: Payload,
    state: &AppState,
    log: &mut LogLine,
) -> Result<HttpResponse, Refusal> {
    let received = receive(request, payload, state).await?;
    let serving = received.serving;
    let parsed = parse::<Body>(&received.bytes)?;
    let ignored = submit::ignored_header(state, &parsed.ignored)?;
    let asked = parsed.value;
    let parameters = asked.parameters;
    let prompt = prompt(asked.inputs, asked.input_id)?;
    if let Prompt::Text { text, .. } = &prompt {
        log.prompt(|| text.clone());
    }
    let (details, sampled) = (parameters.wants_details(), parameters.samples());
    let wish = parameters.wish(Ranges::Own, prompt)?;
    let most = wish.max_new_tokens.min(serving.model.max_output_len);
    let generate = wish.engine_request(request, &received);
    if asked.stream.unwrap_or(false) {
        let events = Events { details, sampled };
        let frames = TokenFrames::new(events, most, log.arrived(), None);
        let running = submit::start(serving, vec![generate], log.take());
        return sse::respond(running, frames, submit::keep_alive(state, serving), ignored).await;
    }
    let mut answers = submit::answers(serving, vec![generate], log).await?;
    let choice = answers.pop().and_then(|mut answer| answer.choices.pop());
    let choice = choice.ok_or_else(answer::incomplete)?;
    let ids = choice.tokens.iter().map(|token| token.id.0).collect();
    Ok(submit::ok(ignored).json(Whole {
        generated_text: &choice.text,
        details: details.then(|| Details::of(&choice.reason, &choice.usage, sampled, Some(ids))),
    }))
}

fn prompt(inputs: Option<String>, ids: Option<Vec<u32>>) -> Result<Prompt, Refusal> {
    match (inputs, ids) {
        (Some(_), Some(_)) => {
            let message = "Input conflict: give either inputs or input_id";
            Err(Refusal::invalid("input_id", message))
        }
        (Some(text), None) if text.is_empty() => Err(wrong("inputs", "must not be empty")),
        (Some(text), None) => Ok(Prompt::Text {
            text,
            add_special_tokens: true,
        }),
        (None, Some(ids)) if ids.is_empty() => Err(wrong("input_id", "must not be empty")),
        (None, Some(ids)) => Ok(Prompt::Ids(ids.into_iter().map(TokenId).collect())),
        (None, None) => Err(Refusal::invalid(
            "inputs",
            "Not found inputs: give inputs (a text) or input_id (token ids)",
        )),
    }
}

struct Events {
    details: bool,
    sampled: bool,
}

#[derive(Serialize)]
struct Event<'a> {
    prefill_time: Option<f64>,
    decode_time: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generated_text: Option<&'a str>,
    /// There in the last event, `null` unless asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Option<Details>>,
    token: Token<'a>,
}

#[derive(Serialize)]
struct Token<'a> {
    id: u32,
    text: Option<&'a str>,
}

impl TokenEvents for Events {
    const DATA: &'static str = "data: ";

    /// The last token's text is only in the whole text.
    fn token(&self, piece: &Piece, end: Option<&End<'_>>, out: &mut BytesMut) {
        let details = |end: &End<'_>| {
            self.details
                .then(|| Details::of(&end.done.reason, &end.done.usage, self.sampled, None))
        };
        let event = Event {
            prefill_time: piece.prefill.map(millis),
            decode_time: piece.decode.map(millis),
            generated_text: end.map(|end| end.text),
            details: end.map(details),
            token: Token {
                id: piece.id.0,
                text: end.is_none().then_some(piece.text.as_str()),
            },
        };
        frame_after(Self::DATA, &event, out);
    }
}
