//! From requests in the engine's terms to running generations, the same for all dialects. Not here: parsing and answers.

use super::answer::{Answer, collect};
use super::deadline;
use super::refusal::Refusal;
use super::request_log::LogLine;
use super::sse::{KeepAlive, Running, TaggedEvents};
use super::state::{AppState, Serving};
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::{HttpResponse, HttpResponseBuilder};
use futures_util::{StreamExt, TryStreamExt, stream};
use ropeteam_actors::generation::GenerateEvent;
use ropeteam_engine::request::GenerateRequest;
use std::sync::atomic::{AtomicU64, Ordering};

/// Response header that names request fields which were not understood.
pub const IGNORED_FIELDS: HeaderName = HeaderName::from_static("x-ropeteam-ignored-fields");

/// Longest list of names in a header.
const HEADER_BYTES_MAX: usize = 1024;

/// Refuses a call that asks for more sequences at once than could ever wait: it would be told to try again for ever.
///
/// # Errors
/// Names the field that multiplies them, with the numbers.
pub fn check_count(serving: &Serving, requests: &[GenerateRequest]) -> Result<(), Refusal> {
    let field = if requests.len() > 1 { "prompt" } else { "n" };
    let limit = serving.engine.live().max_queue;
    let asked: usize = requests.iter().map(|r| r.choices as usize).sum();
    if asked <= limit {
        return Ok(());
    }
    let message = format!("{field} asks for {asked} sequences; this server takes {limit} at once");
    Err(Refusal::invalid(field, message))
}

/// Runs all requests to their ends, side by side. One failure fails (and cancels) all.
///
/// # Errors
/// The first refusal or failure.
pub async fn answers(
    serving: &Serving,
    requests: Vec<GenerateRequest>,
    log: &mut LogLine,
) -> Result<Vec<Answer>, Refusal> {
    let at_once = requests.len();
    answers_in_turn(serving, requests, at_once, log).await
}

/// The same, of which only so many run or wait `at_once`.
///
/// # Errors
/// The first refusal or failure.
pub async fn answers_in_turn(
    serving: &Serving,
    requests: Vec<GenerateRequest>,
    at_once: usize,
    log: &mut LogLine,
) -> Result<Vec<Answer>, Refusal> {
    let running = requests.into_iter().enumerate().map(|(prompt, request)| {
        let choices = request.choices;
        let events = deadline::generate(serving, request);
        async move {
            collect(events, choices)
                .await
                .map(|answer| (prompt, answer))
        }
    });
    // Unordered, so that a failure is heard at once, whichever prompt it hits.
    let running = stream::iter(running).buffer_unordered(at_once.max(1));
    let mut answers: Vec<(usize, Answer)> = running.try_collect().await?;
    answers.sort_by_key(|(prompt, _)| *prompt);
    let answers: Vec<Answer> = answers.into_iter().map(|(_, answer)| answer).collect();
    for answer in &answers {
        log.answer(answer);
    }
    log.finished();
    Ok(answers)
}

/// Starts all requests, to be streamed. They have the same number of choices.
pub fn start(serving: &Serving, requests: Vec<GenerateRequest>, log: LogLine) -> Running {
    let choices = requests.first().map_or(0, |request| request.choices);
    let prompts = requests.into_iter().enumerate().map(|(prompt, request)| {
        let events = deadline::generate(serving, request);
        Box::pin(events.map(move |event: GenerateEvent| (prompt, event))) as TaggedEvents
    });
    Running::new(prompts.collect(), choices, log)
}

/// Starts one request, to be streamed until `stop` comes about.
pub fn start_until(
    serving: &Serving,
    request: GenerateRequest,
    stop: impl Future<Output = ()> + 'static,
    log: LogLine,
) -> Running {
    let choices = request.choices;
    let events = deadline::generate(serving, request).take_until(Box::pin(stop));
    let tagged: TaggedEvents = Box::pin(events.map(|event| (0, event)));
    Running::new(vec![tagged], choices, log)
}

/// How streams of this server are kept alive.
pub fn keep_alive(state: &AppState, serving: &Serving) -> KeepAlive {
    let engine = serving.engine.clone();
    KeepAlive {
        interval: state.timeouts.sse_keepalive,
        progress: Box::new(move || engine.state().devices_up > 0),
    }
}

/// A name for an engine request that no other of this process has, made from the client's request id.
pub fn engine_id(request_id: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{request_id}.{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A header of an answer.
pub type Header = (HeaderName, HeaderValue);

/// The response header that names request fields which nobody knows; none when there are none.
///
/// # Errors
/// Where the server is strict: the first of those fields.
pub fn ignored_header(state: &AppState, unknown: &[String]) -> Result<Option<Header>, Refusal> {
    let Some(first) = unknown.first() else {
        return Ok(None);
    };
    if state.limits.strict {
        return Err(Refusal::invalid(
            first.as_str(),
            format!("`{first}` is no field that this server knows, and it is set to be strict"),
        ));
    }
    tracing::debug!(fields = ?unknown, "request fields that are not understood");
    let value = header_list(unknown).and_then(|list| HeaderValue::from_str(&list).ok());
    Ok(value.map(|value| (IGNORED_FIELDS, value)))
}

/// The beginning of a whole answer: 200, and the header that names what was ignored.
pub fn ok(ignored: Option<Header>) -> HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    if let Some(pair) = ignored {
        response.insert_header(pair);
    }
    response
}

/// Names as one header value; `None` when there are none. What is no plain name is left out: nothing from a body reaches a
/// header as it is.
fn header_list(names: &[String]) -> Option<String> {
    let plain = |name: &&String| {
        let harmless = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        !name.is_empty() && name.bytes().all(harmless)
    };
    let mut list = String::new();
    for name in names.iter().filter(plain) {
        if list.len() + name.len() > HEADER_BYTES_MAX {
            break;
        }
        if !list.is_empty() {
            list.push_str(", ");
        }
        list.push_str(name);
    }
    (!list.is_empty()).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_reach_a_header() {
        let names = ["a_b", "x\r\nEvil: 1", "parameters.c", ""].map(str::to_owned);
        assert_eq!(header_list(&names).as_deref(), Some("a_b, parameters.c"));
        assert_eq!(header_list(&[]), None);
    }
}
