//! `POST /generate`, `/generate_stream`, `/` and `/invocations`, with the headers that the original computes. Not here: what the fields
//! mean (`parameters.rs`) and how answers look (`wire.rs`, `frames.rs`).

use super::frames::{DATA, StreamParts, TgiFrames};
use super::parameters::{Caller, Request, check_unknown};
use super::wire::{Generated, Show};
use super::{Version, error};
use crate::http::answer::{self, Answer};
use crate::http::json::parse;
use crate::http::mindie::{self, prompt};
use crate::http::refusal::Refusal;
use crate::http::request_log::LogLine;
use crate::http::state::{AppState, Serving};
use crate::http::{body, request_id, sse, submit};
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::{Bytes, Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use std::time::{Duration, Instant};

/// A constant of the contract, whatever computes.
const COMPUTE_TYPE: &str = "gpu+optimized";

/// Which of the routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// `/generate`.
    Whole,
    /// `/generate_stream`.
    Stream,
    /// `/` and `/invocations`: by the field `stream`, with an array for a whole answer.
    Either,
}

/// Answers `POST /generate`. A body with a `prompt` is MindIE's other form of it.
pub async fn generate(
    request: HttpRequest,
    payload: Payload,
    state: Data<AppState>,
) -> HttpResponse {
    route(Route::Whole, "/generate", request, payload, state).await
}

/// Answers `POST /generate_stream`.
pub async fn generate_stream(
    request: HttpRequest,
    payload: Payload,
    state: Data<AppState>,
) -> HttpResponse {
    route(Route::Stream, "/generate_stream", request, payload, state).await
}

/// Answers `POST /`, and `POST /invocations` with a body of TGI's.
pub async fn compat(request: HttpRequest, payload: Payload, state: Data<AppState>) -> HttpResponse {
    route(Route::Either, "/", request, payload, state).await
}

async fn route(
    route: Route,
    name: &'static str,
    request: HttpRequest,
    payload: Payload,
    state: Data<AppState>,
) -> HttpResponse {
    let id = request_id::of(&request);
    let mut log = LogLine::new(state.request_log.as_ref(), &id, name);
    let answer = match receive(&request, payload, &state).await {
        Ok((tenant, bytes)) if route == Route::Whole && prompt::is_asked_in(&bytes) => {
            return prompt::respond(&request, tenant, bytes, &state, &mut log).await;
        }
        Ok((tenant, bytes)) => answer(route, &request, tenant, &bytes, &state, &mut log).await,
        Err(refusal) => Err(refusal),
    };
    answer.unwrap_or_else(|refusal| {
        log.refused(&refusal);
        match state.limits.tgi_version {
            Version::MindIe => mindie::error::response(&refusal),
            _ => error::response(&refusal),
        }
    })
}

/// Who asks, and the body.
async fn receive(
    request: &HttpRequest,
    payload: Payload,
    state: &AppState,
) -> Result<(String, Bytes), Refusal> {
    let tenant = state.keys.tenant(request)?;
    state.serving()?;
    Ok((tenant, body::read_json(request, payload, state).await?))
}

async fn answer(
    route: Route,
    request: &HttpRequest,
    tenant: String,
    bytes: &[u8],
    state: &AppState,
    log: &mut LogLine,
) -> Result<HttpResponse, Refusal> {
    let serving = state.serving()?;
    let parsed = parse::<Request>(bytes)?;
    let unknown = check_unknown(bytes, parsed.ignored)?;
    let asked = parsed.value;
    log.prompt(|| asked.inputs.clone());
    let call = Call {
        asked,
        caller: Caller {
            id: submit::engine_id(&request_id::of(request)),
            tenant,
        },
        ignored: submit::ignored_header(state, &unknown)?,
        state,
        serving,
    };
    let streamed = match route {
        Route::Whole => false,
        Route::Stream => true,
        Route::Either => call.asked.stream.unwrap_or(false),
    };
    if streamed {
        call.stream(log).await
    } else {
        call.whole(route == Route::Either, log).await
    }
}

/// A checked call.
struct Call<'a> {
    asked: Request,
    caller: Caller,
    ignored: Option<(HeaderName, HeaderValue)>,
    state: &'a AppState,
    serving: &'a Serving,
}

impl Call<'_> {
    fn prefix(&self) -> &str {
        match self.asked.parameters.return_full_text {
            Some(true) => &self.asked.inputs,
            _ => "",
        }
    }

    async fn stream(self, log: &mut LogLine) -> Result<HttpResponse, Refusal> {
        self.asked.check_streamable()?;
        let version = self.state.limits.tgi_version;
        let frames = TgiFrames::new(StreamParts {
            prefix: self.prefix().to_owned(),
            details: self.asked.wants_details(),
            sampled: self.asked.samples(version),
            max_new_tokens: self.asked.max_new_tokens(version),
            max_total_tokens: self.serving.model.max_model_len,
            max_output_tokens: self.serving.model.max_output_len,
            top_n: self.asked.top_n_tokens(),
            version,
            stops: self.asked.stops().to_vec(),
            text: self.serving.text.clone(),
            data: match version {
                Version::MindIe => "data: ",
                _ => DATA,
            },
        });
        let grammar = self.asked.grammar()?;
        let mut generate =
            self.asked
                .engine_request(self.caller, Some(0), self.state, self.serving)?;
        let one = std::slice::from_mut(&mut generate);
        self.serving.grammars.constrain(grammar, one).await?;
        let running = submit::start(self.serving, vec![generate], log.take());
        let characters = self.asked.inputs.chars().count();
        let headers = [
            pair("x-compute-type", COMPUTE_TYPE),
            pair("x-compute-characters", characters),
        ];
        let headers = headers.into_iter().chain([self.ignored]).flatten();
        let keep_alive = submit::keep_alive(self.state, self.serving);
        let answer = sse::respond(running, frames, keep_alive, headers).await;
        answer.map_err(|refusal| self.asked.in_tgi_words(refusal))
    }

    async fn whole(self, in_array: bool, log: &mut LogLine) -> Result<HttpResponse, Refusal> {
        let arrived = log.arrived();
        let version = self.state.limits.tgi_version;
        let logprobs = self.asked.wants_details().then_some(0);
        let prefix = self.prefix().to_owned();
        let grammar = self.asked.grammar()?;
        let mut generate =
            self.asked
                .engine_request(self.caller, logprobs, self.state, self.serving)?;
        let one = std::slice::from_mut(&mut generate);
        self.serving.grammars.constrain(grammar, one).await?;
        let validated = Instant::now();
        let answers = submit::answers(self.serving, vec![generate], log).await;
        let mut answers = answers.map_err(|refusal| self.asked.in_tgi_words(refusal))?;
        let answer = answers.pop().ok_or_else(answer::incomplete)?;
        let times = Times::of(&answer, arrived, validated);
        let show = Show {
            prefix: &prefix,
            details: self.asked.wants_details(),
            prefill: self.asked.wants_prefill(),
            sampled: self.asked.samples(version),
            top_n: self.asked.top_n_tokens(),
            version,
            text: &*self.serving.text,
        };
        let characters = self.asked.inputs.chars().count();
        let mut response = HttpResponse::Ok();
        for header in times
            .headers(characters)
            .into_iter()
            .chain([self.ignored])
            .flatten()
        {
            response.insert_header(header);
        }
        let generated = Generated::of(answer, &show);
        Ok(if in_array {
            response.json([generated])
        } else {
            response.json(generated)
        })
    }
}

/// How long the parts of a request took.
struct Times {
    total: Duration,
    validation: Duration,
    queue: Duration,
    inference: Duration,
    per_token: Duration,
}

impl Times {
    /// Queue time is the first choice's; what the engine does before it belongs to it.
    fn of(answer: &Answer, arrived: Instant, validated: Instant) -> Self {
        let total = arrived.elapsed();
        let validation = validated.saturating_duration_since(arrived);
        let usage = answer
            .choices
            .first()
            .map(|choice| choice.usage.clone())
            .unwrap_or_default();
        let inference = usage.total_time.saturating_sub(usage.queue_time);
        Times {
            total,
            validation,
            queue: usage.queue_time,
            inference,
            per_token: inference / usage.completion_tokens.max(1),
        }
    }

    fn headers(&self, characters: usize) -> [Option<(HeaderName, HeaderValue)>; 8] {
        [
            pair("x-compute-type", COMPUTE_TYPE),
            pair("x-compute-time", self.total.as_millis()),
            pair("x-compute-characters", characters),
            pair("x-total-time", self.total.as_millis()),
            pair("x-validation-time", self.validation.as_millis()),
            pair("x-queue-time", self.queue.as_millis()),
            pair("x-inference-time", self.inference.as_millis()),
            pair("x-time-per-token", self.per_token.as_millis()),
        ]
    }
}

fn pair(name: &'static str, value: impl ToString) -> Option<(HeaderName, HeaderValue)> {
    let value = HeaderValue::from_str(&value.to_string()).ok()?;
    Some((HeaderName::from_static(name), value))
}
