//! Why a request gets no (further) result, before a dialect gives it its shape: status, kind, message, field.
//! This is the one place that maps the engine's errors and finish reasons to HTTP. Not here: bodies (each dialect's `error.rs`).
//!
//! A request whose deadline passed is told as 504, one that a device failed as 500, one that waited too long in the queue as 503
//! with `Retry-After`: never as a `stop` or `length` that the model did not reach.

use actix_web::http::StatusCode;
use ropeteam_actors::generation::RequestError;
use ropeteam_engine::request::FinishReason;
use std::time::Duration;

/// A refusal or failure on its way to the client.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// What kind, from which each dialect takes its words and its status.
    pub kind: Kind,
    /// For people.
    pub message: String,
    /// The request's field that is at fault, if one is.
    pub field: Option<String>,
    /// When it is worth trying again.
    pub retry_after: Option<Duration>,
    /// The counts of a `TooLong`, for dialects with words of their own.
    pub tokens: Option<TokenCount>,
}

/// Tokens asked for and tokens possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenCount {
    /// Asked for.
    pub given: usize,
    /// Possible.
    pub limit: usize,
    /// Whether the wanted output is counted in, or the prompt alone is too long.
    pub with_output: bool,
}

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The body is no JSON.
    Syntax,
    /// The body is JSON, but a field is missing, ill-typed, out of range, or asks for what is not offered.
    Invalid,
    /// Prompt (and output) are over a limit in tokens.
    TooLong,
    /// No or a wrong API key.
    Unauthorized,
    /// No such route or model.
    NotFound,
    /// The route exists, but not for this method.
    MethodNotAllowed,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The body is over the limit in bytes.
    BodyTooLarge,
    /// The body's type or coding is not understood.
    MediaType,
    /// The waiting queue is full.
    Overloaded,
    /// It waited in the queue longer than allowed.
    QueueTimeout,
    /// Loading, shutting down, or no device.
    Unavailable,
    /// The request's deadline passed while it ran.
    Deadline,
    /// Ended from outside while it ran.
    Cancelled,
    /// A device failed.
    Device,
    /// The engine ended the request without an end.
    Incomplete,
}

impl Kind {
    /// Its HTTP status, where a dialect has no other.
    pub fn status(self) -> StatusCode {
        match self {
            Kind::Syntax | Kind::Invalid | Kind::TooLong => StatusCode::BAD_REQUEST,
            Kind::Unauthorized => StatusCode::UNAUTHORIZED,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Kind::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Kind::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Kind::Overloaded => StatusCode::TOO_MANY_REQUESTS,
            Kind::QueueTimeout | Kind::Unavailable | Kind::Cancelled => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Kind::Deadline => StatusCode::GATEWAY_TIMEOUT,
            Kind::Device | Kind::Incomplete => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The word for the request log.
    pub fn outcome(self) -> &'static str {
        match self {
            Kind::Syntax | Kind::Invalid | Kind::TooLong | Kind::NotFound => "invalid",
            Kind::MethodNotAllowed | Kind::MediaType | Kind::BodyTooLarge => "invalid",
            Kind::Unauthorized => "unauthorized",
            Kind::BodyTimeout => "body_timeout",
            Kind::Overloaded => "queue_full",
            Kind::QueueTimeout => "queue_timeout",
            Kind::Unavailable => "unavailable",
            Kind::Deadline => "timeout",
            Kind::Cancelled => "cancelled",
            Kind::Device => "device_error",
            Kind::Incomplete => "incomplete",
        }
    }
}

impl Refusal {
    /// A refusal of `kind` that says `message`.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Refusal {
            kind,
            message: message.into(),
            field: None,
            retry_after: None,
            tokens: None,
        }
    }

    /// `field` is wrong; `message` names the value and what was expected.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Refusal {
            field: Some(field.into()),
            ..Self::new(Kind::Invalid, message)
        }
    }

    /// `field` asks for something that this server does not do.
    pub fn not_offered(field: &str) -> Self {
        Self::invalid(field, format!("`{field}` is not supported by this server"))
    }

    /// The model is not there yet.
    pub fn loading() -> Self {
        Refusal {
            retry_after: Some(Duration::from_secs(1)),
            ..Self::new(Kind::Unavailable, "the model is loading")
        }
    }

    /// The server is shutting down.
    pub fn draining() -> Self {
        RequestError::Draining.into()
    }

    /// No model of that name is served.
    pub fn no_such_model(name: &str) -> Self {
        Refusal {
            field: Some("model".into()),
            ..Self::new(
                Kind::NotFound,
                format!("The model `{name}` does not exist."),
            )
        }
    }

    /// What a finish reason means when it is a failure; `None` for an end that the request itself brought about.
    pub fn of_finish(reason: &FinishReason) -> Option<Self> {
        let (kind, message) = match reason {
            FinishReason::EndOfText(_)
            | FinishReason::StopToken(_)
            | FinishReason::StopString(_)
            | FinishReason::Length
            | FinishReason::Pooled => return None,
            FinishReason::Cancelled => (
                Kind::Cancelled,
                "the request was cancelled: its client does not read fast enough",
            ),
            FinishReason::Timeout => (
                Kind::Deadline,
                "the request did not finish within its time limit",
            ),
            FinishReason::ConstraintFailed => (
                Kind::Invalid,
                "the grammar or schema that the output must obey became too complex to follow",
            ),
            FinishReason::DeviceError => (
                Kind::Device,
                "the device failed and the request could not go on",
            ),
        };
        Some(Self::new(kind, message))
    }

    /// The value of the `Retry-After` header: whole seconds, at least 1.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after
            .map(|span| (span.as_millis().div_ceil(1000) as u64).max(1))
    }
}

impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Self {
        let message = error.to_string();
        match error {
            RequestError::QueueFull { retry_after, .. } => Refusal {
                retry_after: Some(retry_after),
                ..Self::new(Kind::Overloaded, message)
            },
            RequestError::TooBusy {
                forecast,
                allowed,
                retry_after,
            } => Refusal {
                retry_after: Some(retry_after),
                ..Self::new(
                    Kind::Overloaded,
                    format!(
                        "the queue is expected to take {:.0} ms, and the request may wait {:.0} ms",
                        forecast.as_secs_f64() * 1e3,
                        allowed.as_secs_f64() * 1e3
                    ),
                )
            },
            RequestError::QueueTimeout { waited } => Refusal {
                retry_after: Some(Duration::from_secs(1)),
                ..Self::new(
                    Kind::QueueTimeout,
                    format!(
                        "the request waited {:.0} ms in the queue, longer than allowed",
                        waited.as_secs_f64() * 1e3
                    ),
                )
            },
            RequestError::Draining | RequestError::NoDevice => Refusal {
                retry_after: Some(Duration::from_secs(5)),
                ..Self::new(Kind::Unavailable, message)
            },
            RequestError::TooLong {
                which,
                what,
                given,
                limit,
            } => Refusal {
                tokens: Some(TokenCount {
                    given,
                    limit,
                    with_output: what != "prompt",
                }),
                ..Self::new(Kind::TooLong, format!("{message} ({which})"))
            },
            RequestError::Invalid { field, .. } => Self::invalid(field, message),
            RequestError::Cancelled => Self::new(Kind::Cancelled, message),
            RequestError::Device(_) => Self::new(Kind::Device, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeteam_engine::ids::TokenId;

    #[test]
    fn a_fault_is_never_an_end() {
        for reason in [
            FinishReason::DeviceError,
            FinishReason::Timeout,
            FinishReason::Cancelled,
        ] {
            assert!(Refusal::of_finish(&reason).is_some_and(|r| r.kind.status().is_server_error()));
        }
        assert_eq!(
            Refusal::of_finish(&FinishReason::EndOfText(TokenId(2))),
            None
        );
        assert_eq!(Refusal::of_finish(&FinishReason::Length), None);
    }

    #[test]
    fn the_time_in_the_queue_is_told_in_milliseconds() {
        let waited = Duration::from_nanos(501_901_491);
        let refusal = Refusal::from(RequestError::QueueTimeout { waited });
        assert!(
            refusal.message.contains("waited 502 ms"),
            "{}",
            refusal.message
        );
    }

    #[test]
    fn a_full_queue_tells_when_to_come_back() {
        let refusal: Refusal = RequestError::QueueFull {
            limit: 4,
            retry_after: Duration::from_millis(1200),
        }
        .into();
        assert_eq!(refusal.kind.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(refusal.retry_after_seconds(), Some(2));
    }
}
