//! Gives every request an id: the client's `x-request-id` if it is harmless, else a fresh one. It comes back in the answer's header and
//! names the request in logs. Not here: ids inside answers (`chatcmpl-…`), which are made from it by the dialects.

use super::refusal::Refusal;
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpRequest};

/// Longest id taken from a client.
const LENGTH_MAX: usize = 128;

/// The header.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

#[derive(Clone, Debug)]
struct RequestId {
    id: String,
    /// The client's header had it.
    given: bool,
}

/// Middleware: notes the id before the handler and writes it after.
///
/// # Errors
/// Those of the handler.
pub async fn with_request_id<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let header = request.headers().get(&X_REQUEST_ID);
    let sent = header
        .and_then(|value| value.to_str().ok())
        .filter(|id| harmless(id));
    let id = RequestId {
        given: sent.is_some(),
        id: sent.map_or_else(fresh, str::to_owned),
    };
    request.extensions_mut().insert(id);
    let mut response = next.call(request).await?;
    let id = of(response.request());
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(X_REQUEST_ID, value);
    }
    Ok(response)
}

/// The id of `request`.
pub fn of(request: &HttpRequest) -> String {
    request
        .extensions()
        .get::<RequestId>()
        .map_or_else(fresh, |id| id.id.clone())
}

/// The id of `request`: `named`, unless its header gave it one. The answer's header and the log have that one, too.
///
/// # Errors
/// A name that is empty, too long or not visible ASCII.
pub fn or_named(request: &HttpRequest, named: &str) -> Result<String, Refusal> {
    if !harmless(named) {
        let message =
            format!("request_id must be 1 to {LENGTH_MAX} visible ASCII characters, got {named:?}");
        return Err(Refusal::invalid("request_id", message));
    }
    let mut extensions = request.extensions_mut();
    if let Some(known) = extensions.get::<RequestId>().filter(|known| known.given) {
        return Ok(known.id.clone());
    }
    extensions.insert(RequestId {
        id: named.to_owned(),
        given: true,
    });
    Ok(named.to_owned())
}

/// A new id, 32 hexadecimal digits.
pub fn fresh() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Whether it is 1 to 128 visible ASCII characters: it can neither split a header nor forge a log line.
fn harmless(id: &str) -> bool {
    let visible = id.bytes().all(|byte| byte.is_ascii_graphic());
    visible && (1..=LENGTH_MAX).contains(&id.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(id: &[u8], kept: bool) {
        let id = String::from_utf8_lossy(id);
        assert_eq!(harmless(&id), kept, "{id:?}");
    }

    #[test]
    fn only_short_visible_ascii_is_echoed() {
        check(b"abc-123", true);
        check("über→".as_bytes(), false);
        check(b"a\tb", false);
        check(b"a b", false);
        check(b"", false);
        check(&[b'x'; 128], true);
        check(&[b'x'; 129], false);
    }

    #[test]
    fn fresh_ids_differ() {
        assert_ne!(fresh(), fresh());
        assert_eq!(fresh().len(), 32);
    }
}
