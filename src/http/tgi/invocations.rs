//! `POST /invocations`, SageMaker's one route: a body with `messages` is a chat, one with `prompt` a completion, any other is TGI's own.

use super::{error, generate};
use crate::http::body::{self, AlreadyRead};
use crate::http::openai;
use crate::http::state::AppState;
use actix_web::dev::Payload as AnyPayload;
use actix_web::web::{Data, Payload};
use actix_web::{FromRequest, HttpMessage, HttpRequest, HttpResponse};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The fields that tell the bodies apart.
#[derive(Deserialize)]
struct Kind {
    messages: Option<IgnoredAny>,
    prompt: Option<IgnoredAny>,
}

/// Answers `POST /invocations`.
pub async fn route(request: HttpRequest, payload: Payload, state: Data<AppState>) -> HttpResponse {
    if let Err(refusal) = state.keys.tenant(&request) {
        return error::response(&refusal);
    }
    let bytes = match body::read_json(&request, payload, &state).await {
        Ok(bytes) => bytes,
        Err(refusal) => return error::response(&refusal),
    };
    let kind = serde_json::from_slice::<Kind>(&bytes);
    request.extensions_mut().insert(AlreadyRead(bytes));
    let nothing = Payload::from_request(&request, &mut AnyPayload::None).await;
    let Ok(nothing) = nothing else {
        return HttpResponse::InternalServerError().finish();
    };
    match kind {
        Ok(kind) if kind.messages.is_some() => openai::chat::route(request, nothing, state).await,
        Ok(kind) if kind.prompt.is_some() => {
            openai::completions::route(request, nothing, state).await
        }
        _ => generate::compat(request, nothing, state).await,
    }
}
