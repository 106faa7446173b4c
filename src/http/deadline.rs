//! Deadlines that a request carries in its headers, whatever its dialect: `x-request-deadline-ms`, the time from arrival to the end, and
//! `x-slo-ttft-ms` of the inference gateways, the time within which a device must begin with it. What cannot be met at the queue's
//! speed is refused at once. Not here: fields of bodies (each dialect's own), and the server's own limits.

use super::records::{Records, Taped};
use super::refusal::Refusal;
use super::state::Serving;
use super::told;
use actix_web::Error;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::HeaderMap;
use actix_web::middleware::Next;
use ropeteam_actors::Engine;
use ropeteam_actors::generation::Generation;
use ropeteam_engine::request::GenerateRequest;
use std::time::{Duration, Instant};

const WHOLE: &str = "x-request-deadline-ms";
const FIRST_TOKEN: &str = "x-slo-ttft-ms";
/// A day, as for the server's own limits.
const MS_MAX: u64 = 24 * 60 * 60 * 1000;

tokio::task_local! {
    /// What the request that is being handled allows.
    static TERMS: Terms;
}

/// What a request allows.
#[derive(Clone, Copy, Debug)]
struct Terms {
    arrived: Instant,
    whole: Option<Duration>,
    first_token: Option<Duration>,
}

/// Middleware: reads the headers, for [`generate`] further in.
///
/// # Errors
/// Those of the handler.
pub async fn with_deadline(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    match terms(request.headers()) {
        Ok(terms) => {
            let response = TERMS.scope(terms, next.call(request)).await?;
            Ok(response.map_into_boxed_body())
        }
        Err(refusal) => {
            let response = told(request.request(), &refusal);
            Ok(request.into_response(response))
        }
    }
}

/// Begins a request within the terms of the call that asked for it, recorded where that is wanted.
pub fn generate(serving: &Serving, request: GenerateRequest) -> Taped {
    let records: Option<&Records> = serving.records.as_ref();
    let tape = records.map(|records| records.tape(&request));
    Taped::new(within_terms(&serving.engine, request), tape)
}

fn within_terms(engine: &Engine, mut request: GenerateRequest) -> Generation {
    let Ok(terms) = TERMS.try_with(|terms| *terms) else {
        return engine.generate(request);
    };
    let passed = terms.arrived.elapsed();
    let left = |allowed: Duration| allowed.saturating_sub(passed);
    if let Some(whole) = terms.whole {
        let own = request.timeout.unwrap_or(engine.live().request_timeout);
        request.timeout = Some(left(whole).min(own));
    }
    engine.generate_soon(request, terms.first_token.map(left))
}

fn terms(headers: &HeaderMap) -> Result<Terms, Refusal> {
    Ok(Terms {
        arrived: Instant::now(),
        whole: milliseconds(headers, WHOLE)?,
        first_token: milliseconds(headers, FIRST_TOKEN)?,
    })
}

fn milliseconds(headers: &HeaderMap, name: &str) -> Result<Option<Duration>, Refusal> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or("?").trim();
    match text.parse::<u64>() {
        Ok(ms) if (1..=MS_MAX).contains(&ms) => Ok(Some(Duration::from_millis(ms))),
        _ => {
            let message =
                format!("{name}: {text:?} is not a whole number of ms from 1 to {MS_MAX}");
            Err(Refusal::invalid(name, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::{HeaderName, HeaderValue};

    #[test]
    fn only_whole_milliseconds_are_a_deadline() {
        let read = |value: &'static str| {
            let mut headers = HeaderMap::new();
            let name = HeaderName::from_static(WHOLE);
            headers.insert(name, HeaderValue::from_static(value));
            terms(&headers).map(|terms| terms.whole)
        };
        assert_eq!(read("1500"), Ok(Some(Duration::from_millis(1500))));
        for wrong in ["", "0", "-1", "1.5", "soon", "99999999999"] {
            let refusal = read(wrong).unwrap_err();
            assert_eq!(refusal.field.as_deref(), Some(WHOLE), "{wrong}");
            assert!(refusal.message.contains("is not a whole number of ms"));
        }
    }
}
