//! Gives every request an id: the client's `x-request-id` if it is harmless, else a fresh one. It comes back in the answer's header and
//! names the request in logs. Not here: ids inside answers (`chatcmpl-…`), which are made from it by the dialects.

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
struct RequestId(String);

/// Middleware: notes the id before the handler and writes it after.
///
/// # Errors
/// Those of the handler.
pub async fn with_request_id<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let id = request
        .headers()
        .get(&X_REQUEST_ID)
        .and_then(harmless)
        .unwrap_or_else(fresh);
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = next.call(request).await?;
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
        .map_or_else(fresh, |id| id.0.clone())
}

/// A new id, 32 hexadecimal digits.
pub fn fresh() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// The value, if it is 1 to 128 visible ASCII characters: it can neither split a header nor forge a log line.
fn harmless(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    (visible && (1..=LENGTH_MAX).contains(&text.len())).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &[u8], kept: bool) {
        let value = HeaderValue::from_bytes(value).expect("a header value");
        assert_eq!(harmless(&value).is_some(), kept, "{value:?}");
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
