//! Health as MindIE tells it: `/v2/health/live`, `/v2/health/ready`, and `/health/timed[-SECONDS]`, which runs a real request.

use super::error;
use crate::http::deep_health;
use crate::http::refusal::{Kind, Refusal};
use crate::http::state::AppState;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use std::time::Duration;

/// How long a probe may take, in seconds, and what the path may ask for.
const PROBE_SECONDS: u64 = 10;
const PROBE_SECONDS_MAX: u64 = 600;

/// How the service fares, with the numbers that the original has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "u32")]
pub enum Status {
    /// Requests are served.
    Normal = 1,
    /// No request can be served.
    Abnormal = 2,
    /// The model is loading.
    Init = 4,
    /// The queue is full: the next request would be refused.
    Busy = 5,
}

impl From<Status> for u32 {
    fn from(status: Status) -> u32 {
        status as u32
    }
}

#[derive(Serialize)]
struct Message {
    message: &'static str,
}

/// How the service fares now.
pub async fn status(state: &AppState) -> Status {
    let Some(serving) = state.serving.get() else {
        return Status::Init;
    };
    if !serving.engine.is_ready() {
        return Status::Abnormal;
    }
    match serving.engine.queue().await {
        Some(queue) if queue.waiting >= queue.max_queue => Status::Busy,
        Some(_) => Status::Normal,
        None => Status::Abnormal,
    }
}

/// Answers `GET /v2/health/live`.
pub async fn live(state: Data<AppState>) -> HttpResponse {
    told(&state, HttpResponse::Ok(), "Service is alive but busy").await
}

/// Answers `GET /v2/health/ready`.
pub async fn ready(state: Data<AppState>) -> HttpResponse {
    let busy = "Service is alive but busy. Consider reducing request frequency";
    told(&state, HttpResponse::ServiceUnavailable(), busy).await
}

async fn told(
    state: &AppState,
    mut when_busy: actix_web::HttpResponseBuilder,
    busy: &'static str,
) -> HttpResponse {
    if state.is_draining() {
        return error::response(&stopped());
    }
    match status(state).await {
        Status::Normal => HttpResponse::Ok().finish(),
        Status::Busy => when_busy.json(Message { message: busy }),
        Status::Init => HttpResponse::ServiceUnavailable().finish(),
        Status::Abnormal => HttpResponse::InternalServerError().json(Message {
            message: "Service is abnormal",
        }),
    }
}

/// The server shuts down.
pub fn stopped() -> Refusal {
    Refusal::new(Kind::Unavailable, "The service has been stopped.")
}

#[derive(Serialize)]
struct Healthy {
    status: &'static str,
}

/// Answers `GET /health/timed` and `/health/timed-SECONDS`: 200 when one token was generated in that time, or when the server is only
/// busy.
pub async fn timed(request: HttpRequest, state: Data<AppState>) -> HttpResponse {
    if let Err(refusal) = state.keys.tenant(&request) {
        return error::response(&refusal);
    }
    let healthy = match probed(&request, &state).await {
        Err(refusal) if refusal.kind == Kind::Overloaded => Ok(()),
        result => result,
    };
    match healthy {
        Ok(()) => HttpResponse::Ok().json(Healthy { status: "healthy" }),
        Err(refusal) => error::response(&refusal),
    }
}

async fn probed(request: &HttpRequest, state: &AppState) -> Result<(), Refusal> {
    let seconds = seconds(request.match_info().get("seconds"))?;
    let serving = state.serving()?;
    deep_health::one_token(serving, Duration::from_secs(seconds)).await
}

fn seconds(asked: Option<&str>) -> Result<u64, Refusal> {
    let Some(text) = asked else {
        return Ok(PROBE_SECONDS);
    };
    match text.parse() {
        Ok(seconds @ 1..=PROBE_SECONDS_MAX) => Ok(seconds),
        _ => Err(Refusal::new(
            Kind::NotFound,
            format!("Wait time should be in range of [1, {PROBE_SECONDS_MAX}], got {text}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_probe_is_bounded() {
        assert_eq!(seconds(None), Ok(10));
        assert_eq!(seconds(Some("600")), Ok(600));
        for wrong in ["0", "601", "", "x", "99999999999999999999"] {
            assert_eq!(seconds(Some(wrong)).unwrap_err().kind, Kind::NotFound);
        }
    }
}
