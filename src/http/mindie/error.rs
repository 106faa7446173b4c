//! How MindIE's routes tell a refusal: `{"error","error_type"}` with its statuses and words. What it has no word for is a "Bad Request".

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
        let error = match refusal.kind {
            Kind::Deadline => "Engine callback timeout".to_owned(),
            _ => refusal.message.clone(),
        };
        Body {
            error,
            error_type: words(refusal.kind).1,
        }
    }
}

fn words(kind: Kind) -> (StatusCode, &'static str) {
    match kind {
        Kind::Syntax | Kind::Invalid | Kind::TooLong => {
            (StatusCode::UNPROCESSABLE_ENTITY, "Input Validation Error")
        }
        Kind::Device | Kind::Cancelled => (StatusCode::FAILED_DEPENDENCY, "Generation Error"),
        Kind::Deadline | Kind::Incomplete => {
            (StatusCode::INTERNAL_SERVER_ERROR, "Incomplete Generation")
        }
        Kind::NotFound => (StatusCode::NOT_FOUND, "NotFoundError"),
        Kind::Overloaded | Kind::QueueTimeout | Kind::Unavailable => {
            (StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable")
        }
        Kind::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized"),
        Kind::MethodNotAllowed | Kind::BodyTimeout | Kind::BodyTooLarge | Kind::MediaType => {
            (kind.status(), "Bad Request")
        }
    }
}

/// The whole response.
pub fn response(refusal: &Refusal) -> HttpResponse {
    let mut response = HttpResponse::build(words(refusal.kind).0);
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

    #[test]
    fn statuses_and_words_are_the_originals() {
        for (kind, status, body) in [
            (Kind::Syntax, 422, "why,Input Validation Error"),
            (Kind::Invalid, 422, "why,Input Validation Error"),
            (Kind::Device, 424, "why,Generation Error"),
            (Kind::Incomplete, 500, "why,Incomplete Generation"),
            (
                Kind::Deadline,
                500,
                "Engine callback timeout,Incomplete Generation",
            ),
            (Kind::NotFound, 404, "why,NotFoundError"),
            (Kind::Overloaded, 503, "why,Service Unavailable"),
            (Kind::BodyTooLarge, 413, "why,Bad Request"),
        ] {
            let refusal = Refusal::new(kind, "why");
            assert_eq!(response(&refusal).status(), status, "{kind:?}");
            let found = Body::of(&refusal);
            assert_eq!(format!("{},{}", found.error, found.error_type), body);
        }
    }
}
