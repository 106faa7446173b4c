//! How the TGI dialect tells a refusal: `{"error","error_type"}` with the original's statuses and texts. Framework errors, which the original
//! sends as plain text, keep their status and get the same shape.

use crate::http::refusal::{Kind, Refusal};
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::RETRY_AFTER;
use serde::Serialize;

/// The body, also sent as an event inside a stream.
#[derive(Debug, Serialize)]
pub struct Body {
    error: String,
    error_type: &'static str,
}

impl Body {
    /// The body of `refusal`.
    pub fn of(refusal: &Refusal) -> Self {
        let text = &refusal.message;
        let (error, error_type) = match refusal.kind {
            Kind::Invalid | Kind::TooLong => {
                (format!("Input validation error: {text}"), "validation")
            }
            Kind::Syntax => (text.clone(), "validation"),
            Kind::Overloaded | Kind::QueueTimeout => {
                ("Model is overloaded".to_owned(), "overloaded")
            }
            Kind::Device | Kind::Deadline | Kind::Cancelled => (
                format!("Request failed during generation: {text}"),
                "generation",
            ),
            Kind::Incomplete => ("Incomplete generation".to_owned(), "incomplete_generation"),
            Kind::Unauthorized => (text.clone(), "unauthorized"),
            Kind::NotFound => (text.clone(), "not_found"),
            Kind::MethodNotAllowed => (text.clone(), "method_not_allowed"),
            Kind::BodyTimeout => (text.clone(), "timeout"),
            Kind::BodyTooLarge => (text.clone(), "payload_too_large"),
            Kind::MediaType => (text.clone(), "unsupported_media_type"),
            Kind::Unavailable => (text.clone(), "unavailable"),
        };
        Body { error, error_type }
    }
}

fn status(kind: Kind) -> StatusCode {
    match kind {
        Kind::Invalid | Kind::TooLong => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::Device | Kind::Deadline | Kind::Cancelled => StatusCode::FAILED_DEPENDENCY,
        Kind::QueueTimeout => StatusCode::TOO_MANY_REQUESTS,
        other => other.status(),
    }
}

/// The whole response.
pub fn response(refusal: &Refusal) -> HttpResponse {
    let mut response = HttpResponse::build(status(refusal.kind));
    if let Some(seconds) = refusal.retry_after_seconds() {
        response.insert_header((RETRY_AFTER, seconds));
    }
    if refusal.kind == Kind::Unavailable {
        // A balancer should look for another server.
        response.force_close();
    }
    response.json(Body::of(refusal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Kind, expected: u16, body: &str) {
        let refusal = Refusal::new(kind, "why");
        assert_eq!(response(&refusal).status(), expected);
        assert_eq!(serde_json::to_string(&Body::of(&refusal)).unwrap(), body);
    }

    #[test]
    fn statuses_and_texts_are_the_originals() {
        check(
            Kind::Invalid,
            422,
            r#"{"error":"Input validation error: why","error_type":"validation"}"#,
        );
        check(
            Kind::Device,
            424,
            r#"{"error":"Request failed during generation: why","error_type":"generation"}"#,
        );
        check(
            Kind::Overloaded,
            429,
            r#"{"error":"Model is overloaded","error_type":"overloaded"}"#,
        );
        check(
            Kind::Incomplete,
            500,
            r#"{"error":"Incomplete generation","error_type":"incomplete_generation"}"#,
        );
        check(
            Kind::Syntax,
            400,
            r#"{"error":"why","error_type":"validation"}"#,
        );
    }
}
