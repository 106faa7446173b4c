//! The routes that the two articles show: `POST /v1/generate`, `GET /v1/stream?prompt=` and `POST /v1/chat/completions?prompt=&max_tokens=`.
//!
//! Two things differ from the articles' own code, which could not have worked: `/v1/generate` streams real events (`?raw=1` gives the bare text
//! chunks that the article sends), and `/v1/stream` sends clean TGI events, not events inside events. Errors have the OpenAI shape.

use super::json::{Parsed, finite, parse};
use super::openai::error::{self, Envelope};
use super::refusal::Refusal;
use super::request_log::LogLine;
use super::sse::{self, FrameWriter, KeepAlive, frame_after};
use super::state::{AppState, Serving};
use super::tgi::{Generated, StreamParts, TgiFrames, Version};
use super::{body, request_id, submit};
use actix_web::guard::GuardContext;
use actix_web::web::{BytesMut, Data, Payload, Query};
use actix_web::{HttpRequest, HttpResponse};
use ropeteam_actors::generation::GenerateEvent;
use ropeteam_engine::request::{GenerateRequest, Prompt, StopRules};
use ropeteam_engine::sampling::SamplingParams;
use serde::{Deserialize, Serialize};

/// Defaults of the first article's `InferenceRequest`.
const GENERATE_MAX_NEW_TOKENS: u32 = 256;
const GENERATE_TEMPERATURE: f32 = 0.7;
/// What the second article sends on for a chat.
const CHAT_MAX_TOKENS: u32 = 512;
const CHAT_TEMPERATURE: f32 = 0.7;
const CHAT_TOP_P: f32 = 0.9;
/// TGI's default, which the second article's stream leaves as it is.
const STREAM_MAX_TOKENS: u32 = 20;

#[derive(Debug, Deserialize)]
struct InferenceRequest {
    prompt: String,
    max_new_tokens: Option<u32>,
    #[serde(default, deserialize_with = "finite")]
    temperature: Option<f32>,
    stream: Option<bool>,
}

#[derive(Debug, Serialize)]
struct InferenceAnswer<'a> {
    prompt: &'a str,
    result: &'a str,
}

/// `?raw=1`.
#[derive(Debug, Default, Deserialize)]
struct RawQuery {
    #[serde(default)]
    raw: String,
}

/// `?prompt=&max_tokens=&temperature=`; TGI's name for the number is taken as well.
#[derive(Debug, Deserialize)]
struct PromptQuery {
    prompt: String,
    #[serde(alias = "max_new_tokens")]
    max_tokens: Option<u32>,
    #[serde(default, deserialize_with = "finite")]
    temperature: Option<f32>,
}

/// The names in [`PromptQuery`].
const QUERY_NAMES: &[&str] = &["prompt", "max_tokens", "max_new_tokens", "temperature"];

/// Answers `POST /v1/generate`. The body is JSON whatever its type says.
pub async fn generate(
    request: HttpRequest,
    payload: Payload,
    state: Data<AppState>,
) -> HttpResponse {
    let id = request_id::of(&request);
    let mut log = LogLine::new(state.request_log.as_ref(), &id, "/v1/generate");
    told(
        inference(&request, payload, &state, &mut log).await,
        &mut log,
    )
}

/// Answers `GET /v1/stream?prompt=`.
pub async fn stream(request: HttpRequest, state: Data<AppState>) -> HttpResponse {
    let id = request_id::of(&request);
    let mut log = LogLine::new(state.request_log.as_ref(), &id, "/v1/stream");
    told(stream_by_query(&request, &state, &mut log).await, &mut log)
}

/// Whether a call of the chat route is the second article's: it has its prompt in the query.
pub fn has_prompt_in_query(context: &GuardContext<'_>) -> bool {
    let query = context.head().uri.query().unwrap_or("");
    pairs(query).iter().any(|(name, _)| name == "prompt")
}

/// Answers `POST /v1/chat/completions?prompt=` with TGI's JSON, as the second article does.
pub async fn chat_by_query(request: HttpRequest, state: Data<AppState>) -> HttpResponse {
    let id = request_id::of(&request);
    let mut log = LogLine::new(
        state.request_log.as_ref(),
        &id,
        "/v1/chat/completions?prompt=",
    );
    told(whole_by_query(&request, &state, &mut log).await, &mut log)
}

fn told(result: Result<HttpResponse, Refusal>, log: &mut LogLine) -> HttpResponse {
    result.unwrap_or_else(|refusal| {
        log.refused(&refusal);
        error::response(&refusal)
    })
}

/// What the articles' routes ask of the engine.
struct Wish {
    prompt: String,
    max_tokens: u32,
    sampling: SamplingParams,
    logprobs: Option<u32>,
}

fn engine_request(
    request: &HttpRequest,
    tenant: String,
    wish: Wish,
) -> Result<GenerateRequest, Refusal> {
    if wish.max_tokens == 0 {
        return Err(Refusal::invalid(
            "max_new_tokens",
            "max_new_tokens must be at least 1, got 0",
        ));
    }
    Ok(GenerateRequest {
        id: submit::engine_id(&request_id::of(request)),
        prompt: Prompt::Text {
            text: wish.prompt,
            add_special_tokens: true,
        },
        truncate: None,
        choices: 1,
        sampling: wish.sampling,
        constraint: None,
        stop: StopRules::default(),
        max_tokens: Some(wish.max_tokens),
        logprobs: wish.logprobs,
        prompt_logprobs: None,
        pooling: None,
        skip_special_tokens: true,
        cache_salt: String::new(),
        tenant,
        priority: 0,
        timeout: None,
    })
}

async fn inference(
    request: &HttpRequest,
    payload: Payload,
    state: &AppState,
    log: &mut LogLine,
) -> Result<HttpResponse, Refusal> {
    let tenant = state.keys.tenant(request)?;
    let serving = state.serving()?;
    let bytes = body::read(request, payload, state).await?;
    let Parsed {
        value: asked,
        ignored,
    } = parse::<InferenceRequest>(&bytes)?;
    log.prompt(|| asked.prompt.clone());
    let temperature = checked_temperature(asked.temperature, GENERATE_TEMPERATURE)?;
    let ignored = submit::ignored_header(state, &ignored)?;
    let wish = Wish {
        prompt: asked.prompt.clone(),
        max_tokens: asked.max_new_tokens.unwrap_or(GENERATE_MAX_NEW_TOKENS),
        sampling: SamplingParams {
            temperature,
            seed: rand::random(),
            ..SamplingParams::default()
        },
        logprobs: None,
    };
    let generate = engine_request(request, tenant, wish)?;
    if asked.stream.unwrap_or(false) {
        let raw = Query::<RawQuery>::from_query(request.query_string()).is_ok_and(|q| q.raw == "1");
        let running = submit::start(serving, vec![generate], log.take());
        let keep_alive = text_keep_alive(raw, state, serving);
        return sse::respond(running, TextFrames { raw }, keep_alive, ignored).await;
    }
    let answers = submit::answers(serving, vec![generate], log).await?;
    let result = answers.first().and_then(|answer| answer.choices.first());
    let result = result.map_or("", |choice| &choice.text);
    let answer = InferenceAnswer {
        prompt: &asked.prompt,
        result,
    };
    Ok(submit::ok(ignored).json(answer))
}

fn checked_temperature(given: Option<f32>, default: f32) -> Result<f32, Refusal> {
    let temperature = given.unwrap_or(default);
    if !(0.0..=2.0).contains(&temperature) {
        let message = format!("temperature must be from 0 to 2, got {temperature}");
        return Err(Refusal::invalid("temperature", message));
    }
    Ok(temperature)
}

/// How text chunks are kept alive: bare ones are not, because a comment would be taken for text.
fn text_keep_alive(raw: bool, state: &AppState, serving: &Serving) -> KeepAlive {
    let mut keep_alive = submit::keep_alive(state, serving);
    if raw {
        keep_alive.progress = Box::new(|| false);
    }
    keep_alive
}

async fn stream_by_query(
    request: &HttpRequest,
    state: &AppState,
    log: &mut LogLine,
) -> Result<HttpResponse, Refusal> {
    let tenant = state.keys.tenant(request)?;
    let serving = state.serving()?;
    let query = prompt_query(request)?;
    let ignored = unknown_in_query(request, state)?;
    log.prompt(|| query.prompt.clone());
    let max_tokens = query.max_tokens.unwrap_or(STREAM_MAX_TOKENS);
    let temperature = checked_temperature(query.temperature, 0.0)?;
    let frames = TgiFrames::new(StreamParts {
        prefix: String::new(),
        details: false,
        sampled: temperature > 0.0,
        max_new_tokens: Some(max_tokens),
        max_total_tokens: serving.model.max_model_len,
        max_output_tokens: serving.model.max_output_len,
        top_n: 0,
        version: Version::V0_9_4,
        stops: Vec::new(),
        text: serving.text.clone(),
        data: "data: ",
    });
    let wish = Wish {
        prompt: query.prompt,
        max_tokens,
        sampling: SamplingParams {
            temperature,
            seed: rand::random(),
            ..SamplingParams::default()
        },
        logprobs: Some(0),
    };
    let generate = engine_request(request, tenant, wish)?;
    let running = submit::start(serving, vec![generate], log.take());
    let keep_alive = submit::keep_alive(state, serving);
    sse::respond(running, frames, keep_alive, ignored).await
}

async fn whole_by_query(
    request: &HttpRequest,
    state: &AppState,
    log: &mut LogLine,
) -> Result<HttpResponse, Refusal> {
    let tenant = state.keys.tenant(request)?;
    let serving = state.serving()?;
    let query = prompt_query(request)?;
    let ignored = unknown_in_query(request, state)?;
    log.prompt(|| query.prompt.clone());
    let wish = Wish {
        prompt: query.prompt,
        max_tokens: query.max_tokens.unwrap_or(CHAT_MAX_TOKENS),
        sampling: SamplingParams {
            temperature: checked_temperature(query.temperature, CHAT_TEMPERATURE)?,
            top_p: CHAT_TOP_P,
            seed: rand::random(),
            ..SamplingParams::default()
        },
        logprobs: None,
    };
    let generate = engine_request(request, tenant, wish)?;
    let mut answers = submit::answers(serving, vec![generate], log).await?;
    let choice = answers.pop().and_then(|mut answer| answer.choices.pop());
    let choice = choice.ok_or_else(super::answer::incomplete)?;
    Ok(submit::ok(ignored).json(Generated::text(choice.text)))
}

fn prompt_query(request: &HttpRequest) -> Result<PromptQuery, Refusal> {
    match Query::<PromptQuery>::from_query(request.query_string()) {
        Ok(query) => Ok(query.into_inner()),
        Err(error) => Err(Refusal::invalid(
            "prompt",
            format!("the query must be ?prompt=TEXT&max_tokens=N&temperature=T: {error}"),
        )),
    }
}

fn pairs(query: &str) -> Vec<(String, String)> {
    Query::from_query(query).map_or_else(|_| Vec::new(), Query::into_inner)
}

/// The header that names the query's parameters that nobody knows.
fn unknown_in_query(
    request: &HttpRequest,
    state: &AppState,
) -> Result<Option<submit::Header>, Refusal> {
    let names = pairs(request.query_string()).into_iter().map(|pair| pair.0);
    let unknown = names.filter(|name| !QUERY_NAMES.contains(&name.as_str()));
    submit::ignored_header(state, &unknown.collect::<Vec<_>>())
}

/// Text chunks as events, or bare.
struct TextFrames {
    raw: bool,
}

impl TextFrames {
    /// One event; a line break inside the text becomes a further data line, which clients put together again.
    fn text(&self, text: &str, out: &mut BytesMut) {
        if text.is_empty() {
            return;
        }
        if self.raw {
            out.extend_from_slice(text.as_bytes());
            return;
        }
        for line in text.replace("\r\n", "\n").split(['\n', '\r']) {
            out.extend_from_slice(b"data: ");
            out.extend_from_slice(line.as_bytes());
            out.extend_from_slice(b"\n");
        }
        out.extend_from_slice(b"\n");
    }
}

impl FrameWriter for TextFrames {
    fn event(&mut self, _: usize, event: GenerateEvent, out: &mut BytesMut) {
        match event {
            GenerateEvent::Tokens(event) => self.text(&event.text, out),
            GenerateEvent::Done(event) => self.text(&event.text, out),
            GenerateEvent::Started(_) | GenerateEvent::Failed(_) => {}
        }
    }

    fn end(&mut self, _: &mut BytesMut) {}

    fn failure(&mut self, refusal: &Refusal, out: &mut BytesMut) {
        frame_after("event: error\ndata: ", &Envelope::of(refusal), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(raw: bool, text: &str) -> String {
        let mut out = BytesMut::new();
        TextFrames { raw }.text(text, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn text_survives_being_an_event() {
        assert_eq!(framed(false, " hi"), "data:  hi\n\n");
        assert_eq!(framed(false, "a\nb\n"), "data: a\ndata: b\ndata: \n\n");
        assert_eq!(framed(false, "a\r\nb\rc"), "data: a\ndata: b\ndata: c\n\n");
        assert_eq!(framed(false, ""), "");
    }

    #[test]
    fn raw_is_bare_text() {
        assert_eq!(framed(true, "a\nb"), "a\nb");
    }
}
