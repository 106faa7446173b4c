//! `POST /v2/models/{model}/generate`, `generate_stream` and `stopInfer`: Triton's generate extension as MindIE has it.

use super::frames::{self, End, Piece, TokenEvents, TokenFrames, millis};
use super::models::check_model;
use super::parameters::{Parameters, Ranges, or_default, wrong};
use super::{error, finish_reason, receive};
use crate::http::answer;
use crate::http::json::parse;
use crate::http::refusal::{Kind, Refusal};
use crate::http::request_log::LogLine;
use crate::http::sse::frame_after;
use crate::http::state::AppState;
use crate::http::{request_id, sse, submit};
use actix_web::web::{BytesMut, Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use ropeteam_actors::generation::Usage;
use ropeteam_engine::request::{FinishReason, Prompt};
use serde::{Deserialize, Serialize};

/// Longest id that a client may give its request.
const ID_MAX: usize = 256;

#[derive(Debug, Deserialize)]
struct Body {
    id: Option<String>,
    text_input: String,
    #[serde(default, deserialize_with = "or_default")]
    parameters: Parameters,
}

#[derive(Serialize)]
struct Generated<'a> {
    id: &'a str,
    model_name: &'a str,
    model_version: Option<&'static str>,
    text_output: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
}

/// The original's fields; the costs are always null there, and so is here what a request cannot know of the batches it was in.
#[derive(Serialize)]
struct Details {
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<&'static str>,
    generated_tokens: u32,
    first_token_cost: Option<u64>,
    decode_cost: Option<u64>,
    batch_size: Option<u32>,
    /// In µs, `null` while it is not known.
    queue_wait_time: QueueWait,
}

/// One number in a stream, one per step in a whole answer: a sequence that runs waits for no step.
#[derive(Serialize)]
#[serde(untagged)]
enum QueueWait {
    One(Option<u64>),
    PerStep(Vec<u64>),
}

fn queue_micros(usage: &Usage) -> u64 {
    usage.queue_time.as_micros() as u64
}

/// Answers `POST /v2/models/{model}/generate`.
pub async fn generate(
    request: HttpRequest,
    payload: Payload,
    state: Data<AppState>,
) -> HttpResponse {
    route(request, payload, state, false).await
}

/// Answers `POST /v2/models/{model}/generate_stream`.
pub async fn generate_stream(
    request: HttpRequest,
    payload: Payload,
    state: Data<AppState>,
) -> HttpResponse {
    route(request, payload, state, true).await
}

async fn route(
    request: HttpRequest,
    payload: Payload,
    state: Data<AppState>,
    stream: bool,
) -> HttpResponse {
    let id = request_id::of(&request);
    let name = match stream {
        false => "/v2/models/{model}/generate",
        true => "/v2/models/{model}/generate_stream",
    };
    let mut log = LogLine::new(state.request_log.as_ref(), &id, name);
    let answer = answer(&request, payload, &state, stream, &mut log).await;
    answer.unwrap_or_else(|refusal| {
        log.refused(&refusal);
        error::response(&refusal)
    })
}

async fn answer(
    request: &HttpRequest,
    payload: Payload,
    state: &AppState,
    stream: bool,
    log: &mut LogLine,
) -> Result<HttpResponse, Refusal> {
    let received = receive(request, payload, state).await?;
    let serving = received.serving;
    let model = check_model(request, serving)?.to_owned();
    let parsed = parse::<Body>(&received.bytes)?;
    let ignored = submit::ignored_header(state, &parsed.ignored)?;
    let Body {
        id,
        text_input,
        parameters,
    } = parsed.value;
    let id = checked_id(id)?.unwrap_or_else(|| request_id::of(request));
    if text_input.is_empty() {
        return Err(wrong("text_input", "must not be empty"));
    }
    log.prompt(|| text_input.clone());
    let details = parameters.wants_details();
    let prompt = Prompt::Text {
        text: text_input,
        add_special_tokens: true,
    };
    let wish = parameters.wish(Ranges::Triton, prompt)?;
    let most = wish.max_new_tokens.min(serving.model.max_output_len);
    let ticket = state.stoppable.register(&received.tenant, &id);
    let stopped = ticket.stopped();
    let generate = wish.engine_request(request, &received);
    if stream {
        let events = Events { id, model, details };
        let frames = TokenFrames::new(events, most, log.arrived(), Some(ticket));
        let running = submit::start_until(serving, generate, stopped, log.take());
        return sse::respond(running, frames, submit::keep_alive(state, serving), ignored).await;
    }
    let mut answers = tokio::select! {
        biased;
        () = stopped => return Err(frames::stopped()),
        answers = submit::answers(serving, vec![generate], log) => answers?,
    };
    let choice = answers.pop().and_then(|mut answer| answer.choices.pop());
    let choice = choice.ok_or_else(answer::incomplete)?;
    Ok(submit::ok(ignored).json(Generated {
        id: &id,
        model_name: &model,
        model_version: None,
        text_output: &choice.text,
        details: details.then(|| whole_details(&choice.reason, &choice.usage)),
    }))
}

fn whole_details(reason: &FinishReason, usage: &Usage) -> Details {
    let later = usage.completion_tokens.saturating_sub(1) as usize;
    let mut waits = vec![queue_micros(usage)];
    waits.resize(1 + later, 0);
    Details {
        finish_reason: Some(finish_reason(reason)),
        generated_tokens: usage.completion_tokens,
        first_token_cost: None,
        decode_cost: None,
        batch_size: None,
        queue_wait_time: QueueWait::PerStep(waits),
    }
}

/// The id that a client gave, if it is one.
///
/// # Errors
/// When it holds other characters, or too many.
pub fn checked_id(id: Option<String>) -> Result<Option<String>, Refusal> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    match id {
        Some(id) if id.is_empty() || id.len() > ID_MAX || !id.bytes().all(plain) => {
            let message = format!(
                "The id can contain only digits, letters, underscores(_), hyphens(-) and no more than {ID_MAX} of them"
            );
            Err(Refusal::invalid("id", message))
        }
        id => Ok(id),
    }
}

struct Events {
    id: String,
    model: String,
    details: bool,
}

#[derive(Serialize)]
struct Event<'a> {
    #[serde(flatten)]
    generated: Generated<'a>,
    /// Both there when details are wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefill_time: Option<Option<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decode_time: Option<Option<f64>>,
}

impl TokenEvents for Events {
    const DATA: &'static str = "data:";

    fn token(&self, piece: &Piece, end: Option<&End<'_>>, out: &mut BytesMut) {
        let text = format!("{}{}", piece.text, end.map_or("", |end| end.rest));
        let details = || Details {
            finish_reason: end.map(|end| finish_reason(&end.done.reason)),
            generated_tokens: piece.count,
            first_token_cost: None,
            decode_cost: None,
            batch_size: None,
            queue_wait_time: QueueWait::One(end.map(|end| queue_micros(&end.done.usage))),
        };
        let event = Event {
            generated: Generated {
                id: &self.id,
                model_name: &self.model,
                model_version: None,
                text_output: &text,
                details: self.details.then(details),
            },
            prefill_time: self.details.then(|| piece.prefill.map(millis)),
            decode_time: self.details.then(|| piece.decode.map(millis)),
        };
        frame_after(Self::DATA, &event, out);
    }
}

#[derive(Debug, Deserialize, Serialize)]
struct Stop {
    id: String,
}

/// Answers `POST /v2/models/{model}/stopInfer` by repeating the id of what was ended.
pub async fn stop(request: HttpRequest, payload: Payload, state: Data<AppState>) -> HttpResponse {
    stopped(&request, payload, &state)
        .await
        .unwrap_or_else(|refusal| error::response(&refusal))
}

async fn stopped(
    request: &HttpRequest,
    payload: Payload,
    state: &AppState,
) -> Result<HttpResponse, Refusal> {
    let received = receive(request, payload, state).await?;
    check_model(request, received.serving)?;
    let parsed = parse::<Stop>(&received.bytes)?;
    let asked = parsed.value;
    checked_id(Some(asked.id.clone()))?;
    if !state.stoppable.stop(&received.tenant, &asked.id) {
        let message = format!("RequestId is {} not found.", asked.id);
        return Err(Refusal::new(Kind::NotFound, message));
    }
    Ok(submit::ok(submit::ignored_header(state, &parsed.ignored)?).json(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_plain_words() {
        let check = |id: &str, good| assert_eq!(checked_id(Some(id.into())).is_ok(), good, "{id}");
        check("a_B-9", true);
        check(&"x".repeat(256), true);
        check(&"x".repeat(257), false);
        check("", false);
        check("a b", false);
        check("ä", false);
        assert_eq!(checked_id(None), Ok(None));
    }
}
