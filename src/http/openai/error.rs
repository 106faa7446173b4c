//! How the OpenAI dialect tells a refusal: `{"error":{"message","type","param","code"}}` with vLLM's words for `type` and the status as
//! `code`. Not here: which refusals there are (`http/refusal.rs`).

use crate::http::refusal::{Kind, Refusal};
use actix_web::HttpResponse;
use actix_web::http::header::RETRY_AFTER;
use serde::Serialize;

/// The envelope, also sent as an event inside a stream.
#[derive(Debug, Serialize)]
pub struct Envelope<'a> {
    error: Body<'a>,
}

#[derive(Debug, Serialize)]
struct Body<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'a str>,
    code: u16,
}

impl<'a> Envelope<'a> {
    /// The envelope of `refusal`.
    pub fn of(refusal: &'a Refusal) -> Self {
        Envelope {
            error: Body {
                message: &refusal.message,
                kind: word(refusal.kind),
                param: refusal.field.as_deref(),
                code: refusal.kind.status().as_u16(),
            },
        }
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Syntax | Kind::Invalid | Kind::TooLong => "BadRequestError",
        Kind::Unauthorized => "AuthenticationError",
        Kind::NotFound => "NotFoundError",
        Kind::MethodNotAllowed => "MethodNotAllowedError",
        Kind::BodyTimeout | Kind::Deadline => "TimeoutError",
        Kind::BodyTooLarge => "PayloadTooLargeError",
        Kind::MediaType => "UnsupportedMediaTypeError",
        Kind::Overloaded => "RateLimitError",
        Kind::QueueTimeout | Kind::Unavailable | Kind::Cancelled => "ServiceUnavailable",
        Kind::Device | Kind::Incomplete => "InternalServerError",
    }
}

/// The whole response.
pub fn response(refusal: &Refusal) -> HttpResponse {
    let mut response = HttpResponse::build(refusal.kind.status());
    if let Some(seconds) = refusal.retry_after_seconds() {
        response.insert_header((RETRY_AFTER, seconds));
    }
    if refusal.kind == Kind::Unauthorized {
        response.insert_header(("www-authenticate", "Bearer"));
    }
    if refusal.kind == Kind::Unavailable {
        // A balancer should look for another server.
        response.force_close();
    }
    response.json(Envelope::of(refusal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_envelope_has_four_fields_in_order() {
        let refusal = Refusal::invalid("max_tokens", "max_tokens must be at least 1, got -1");
        assert_eq!(
            serde_json::to_string(&Envelope::of(&refusal)).unwrap(),
            r#"{"error":{"message":"max_tokens must be at least 1, got -1","type":"BadRequestError","param":"max_tokens","code":400}}"#
        );
        let refusal = Refusal::no_such_model("x");
        assert_eq!(
            serde_json::to_string(&Envelope::of(&refusal)).unwrap(),
            r#"{"error":{"message":"The model `x` does not exist.","type":"NotFoundError","param":"model","code":404}}"#
        );
    }

    #[test]
    fn overload_says_when_to_come_back() {
        let refusal = Refusal {
            retry_after: Some(Duration::from_secs(3)),
            ..Refusal::new(Kind::Overloaded, "full")
        };
        let response = response(&refusal);
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers().get(RETRY_AFTER).unwrap(), "3");
    }
}
