//! Reads a request's body: unpacked, bounded in bytes and time, of a type that may be JSON. Not here: what is in it (`json.rs`).

use super::refusal::{Kind, Refusal};
use super::state::AppState;
use actix_web::dev::Decompress;
use actix_web::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use actix_web::web::{Bytes, BytesMut, Payload};
use actix_web::{HttpMessage, HttpRequest};
use futures_util::StreamExt;
use std::time::Duration;

/// A request's body that a route has read before it handed the request on, left with the request.
pub struct AlreadyRead(pub Bytes);

/// Longer than it takes to write a refusal.
const HELD: Duration = Duration::from_secs(1);

/// Reads the whole body of a request whose type is, or may be, JSON.
///
/// # Errors
/// A refusal: 413 over the limit (declared or real, packed or unpacked), 408 when it does not arrive in time, 415 for another type
/// or coding, 400 when it breaks off.
pub async fn read_json(
    request: &HttpRequest,
    payload: Payload,
    state: &AppState,
) -> Result<Bytes, Refusal> {
    check_type(request)?;
    read(request, payload, state).await
}

/// Reads the whole body whatever its type says, for routes whose documented calls do not set it.
///
/// # Errors
/// As [`read_json`], without the type.
pub async fn read(
    request: &HttpRequest,
    payload: Payload,
    state: &AppState,
) -> Result<Bytes, Refusal> {
    if let Some(AlreadyRead(bytes)) = request.extensions_mut().remove::<AlreadyRead>() {
        return Ok(bytes);
    }
    let limit = state.limits.max_body_bytes;
    check_coding(request)?;
    check_length(request, limit)?;
    let mut chunks = Decompress::from_headers(payload, request.headers());
    let body = collect(&mut chunks, limit);
    let read = match tokio::time::timeout(state.timeouts.body, body).await {
        Ok(read) => read,
        Err(_) => Err(Refusal::new(
            Kind::BodyTimeout,
            format!(
                "the request body did not arrive within {:?}",
                state.timeouts.body
            ),
        )),
    };
    if read.is_err() {
        close_after_answer(chunks);
    }
    read
}

async fn collect(chunks: &mut Decompress<Payload>, limit: usize) -> Result<Bytes, Refusal> {
    let mut body = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| {
            let message = format!("the request body cannot be read: {error}");
            Refusal::new(Kind::Syntax, message)
        })?;
        if body.len() + chunk.len() > limit {
            return Err(too_large(limit));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// Keeps the rest of a body while its refusal is written: actix closes a connection whose body somebody still holds, but would
/// wait without end for the rest of a chunked body that nobody does.
fn close_after_answer(rest: Decompress<Payload>) {
    actix_web::rt::spawn(async move {
        tokio::time::sleep(HELD).await;
        drop(rest);
    });
}

fn check_length(request: &HttpRequest, limit: usize) -> Result<(), Refusal> {
    let declared = request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    match declared.map(str::parse::<u64>) {
        Some(Ok(length)) if length > limit as u64 => Err(too_large(limit)),
        _ => Ok(()),
    }
}

fn too_large(limit: usize) -> Refusal {
    Refusal::new(
        Kind::BodyTooLarge,
        format!("the request body is over the limit of {limit} bytes"),
    )
}

fn check_coding(request: &HttpRequest) -> Result<(), Refusal> {
    let Some(value) = request.headers().get(CONTENT_ENCODING) else {
        return Ok(());
    };
    let coding = value.to_str().unwrap_or("?").trim().to_ascii_lowercase();
    if matches!(coding.as_str(), "" | "identity" | "gzip" | "deflate") {
        return Ok(());
    }
    Err(Refusal::new(
        Kind::MediaType,
        format!("content coding {coding:?} is not understood, expected gzip, deflate or none"),
    ))
}

fn check_type(request: &HttpRequest) -> Result<(), Refusal> {
    let Some(value) = request.headers().get(CONTENT_TYPE) else {
        return Ok(());
    };
    let text = value.to_str().unwrap_or("?");
    let essence = text
        .split(';')
        .next()
        .unwrap_or("")
        .trim()
        .to_ascii_lowercase();
    if essence.is_empty() || essence.ends_with("/json") || essence.ends_with("+json") {
        return Ok(());
    }
    Err(Refusal::new(
        Kind::MediaType,
        format!(
            "content type {essence:?} is not understood, send `Content-Type: application/json`"
        ),
    ))
}
