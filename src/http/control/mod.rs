//! What operators change while the server runs: devices, requests, limits, the end of it all; and who may. Every change is logged with
//! the address it came from, and told on the bus by the engine. Not here: what operators read (`http/management.rs`).

pub mod config;
pub mod devices;
pub mod events;
pub mod requests;

use super::body;
use super::json::parse;
use super::openai::error;
use super::refusal::{Kind, Refusal};
use super::request_id;
use super::state::{AppState, StopMode};
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{HOST, ORIGIN};
use actix_web::middleware::Next;
use actix_web::web::{Data, Payload};
use actix_web::{Error, HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Beginnings of paths that need no key: what orchestrators probe and collectors read.
const OPEN: &[&str] = &["/health", "/metrics", "/info", "/v2/health/", "/v2/models/"];

/// Middleware: lets only operators through.
///
/// # Errors
/// Those of the handler.
pub async fn guard(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let refusal = match request.app_data::<Data<AppState>>() {
        Some(state) if !is_open(&request) => check(request.request(), state).err(),
        _ => None,
    };
    match refusal {
        Some(refusal) => Ok(request.into_response(error::response(&refusal))),
        None => Ok(next.call(request).await?.map_into_boxed_body()),
    }
}

fn is_open(request: &ServiceRequest) -> bool {
    let reads = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    );
    reads && OPEN.iter().any(|open| request.path().starts_with(open))
}

fn check(request: &HttpRequest, state: &AppState) -> Result<(), Refusal> {
    let access = &state.management;
    for keys in [&access.keys, &state.keys] {
        if !keys.is_empty() {
            return keys.tenant(request).map(drop);
        }
    }
    if access.exposed {
        return Err(Refusal::new(
            Kind::Unauthorized,
            "Unauthorized: other machines can reach this port, so this route is served only with a management_key_file",
        ));
    }
    // No key protects the port but its address. A web page in the operator's browser can reach that too: it sends its origin with
    // what changes something, and another host's name when that name was bent to this address.
    if request.headers().contains_key(ORIGIN) || !names_this_machine(request) {
        return Err(Refusal::new(
            Kind::Unauthorized,
            "Unauthorized: without a management_key_file this route is served to programs on this machine, not to web pages",
        ));
    }
    Ok(())
}

fn names_this_machine(request: &HttpRequest) -> bool {
    let Some(host) = request.headers().get(HOST) else {
        return true;
    };
    let host = host.to_str().unwrap_or("?");
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    };
    let name = name.unwrap_or_default();
    let address: Option<std::net::IpAddr> = name.parse().ok();
    name == "localhost" || address.is_some_and(|address| address.is_loopback())
}

/// Logs what an operator asked for.
fn audit(request: &HttpRequest, call: &str, subject: &str) {
    let peer = request.peer_addr().map(|peer| peer.to_string());
    let id = request_id::of(request);
    tracing::info!(call, subject, peer, %id, "management call");
}

#[derive(Debug, Default, Deserialize)]
struct DrainBody {
    /// In ms; the server's own time otherwise.
    within_ms: Option<u64>,
    /// End the process when all is done.
    #[serde(default)]
    exit: bool,
}

#[derive(Serialize)]
struct Draining {
    status: &'static str,
    within_ms: u64,
    requests: usize,
    exit: bool,
}

/// Answers `POST /v1/drain`: nothing new is admitted, what runs goes on for `within_ms`. With `exit` the process then ends as it does
/// after SIGTERM.
pub async fn drain(request: HttpRequest, payload: Payload, state: Data<AppState>) -> HttpResponse {
    let asked = match read::<DrainBody>(&request, payload, &state).await {
        Ok(asked) => asked,
        Err(refusal) => return error::response(&refusal),
    };
    let Some(serving) = state.serving.get() else {
        return error::response(&Refusal::loading());
    };
    if asked.exit && asked.within_ms.is_some() {
        let message =
            "within_ms cannot be combined with exit: the process ends within its drain_timeout_ms";
        return error::response(&Refusal::invalid("within_ms", message));
    }
    let within = asked
        .within_ms
        .map_or(state.drain_within, Duration::from_millis);
    audit(
        &request,
        "drain",
        &format!("{within:?}, exit {}", asked.exit),
    );
    let requests = serving.engine.requests().await.len();
    state.start_draining();
    match asked.exit {
        true => {
            state.stop(StopMode::Graceful);
        }
        false => {
            let engine = serving.engine.clone();
            actix_web::rt::spawn(async move { engine.drain(within).await });
        }
    }
    HttpResponse::Accepted().json(Draining {
        status: "draining",
        within_ms: within.as_millis() as u64,
        requests,
        exit: asked.exit,
    })
}

/// Reads a body whose fields must all be known; an empty one is an empty object.
async fn read<T>(request: &HttpRequest, payload: Payload, state: &AppState) -> Result<T, Refusal>
where
    T: serde::de::DeserializeOwned,
{
    let body = body::read(request, payload, state).await?;
    let body = if body.is_empty() { b"{}" } else { &body[..] };
    let parsed = parse::<T>(body)?;
    match parsed.ignored.first() {
        None => Ok(parsed.value),
        Some(unknown) => Err(Refusal::invalid(
            unknown,
            format!("unknown field `{unknown}`"),
        )),
    }
}
