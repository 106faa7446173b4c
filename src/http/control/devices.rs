//! `POST /v1/devices/{id}/restart`, `/drain` and `/resume`.

use super::audit;
use crate::http::openai::error;
use crate::http::refusal::{Kind, Refusal};
use crate::http::state::AppState;
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use ropeteam_actors::Engine;
use ropeteam_engine::ids::DeviceId;
use serde::Serialize;

#[derive(Serialize)]
struct Asked {
    device: u16,
    status: &'static str,
}

/// The device starts anew. What it runs goes on by replay.
pub async fn restart(
    request: HttpRequest,
    id: Path<String>,
    state: Data<AppState>,
) -> HttpResponse {
    let call = async |engine: &Engine, device| engine.restart(device).await;
    ask(&request, &id, &state, ("restart", "restarting"), call).await
}

/// The device gets no new work; what it runs goes on.
pub async fn drain(request: HttpRequest, id: Path<String>, state: Data<AppState>) -> HttpResponse {
    let call = async |engine: &Engine, device| engine.drain_device(device).await;
    ask(&request, &id, &state, ("drain device", "draining"), call).await
}

/// The device gets work again.
pub async fn resume(request: HttpRequest, id: Path<String>, state: Data<AppState>) -> HttpResponse {
    let call = async |engine: &Engine, device| engine.resume_device(device).await;
    ask(&request, &id, &state, ("resume device", "resumed"), call).await
}

async fn ask(
    request: &HttpRequest,
    id: &str,
    state: &AppState,
    (call, status): (&'static str, &'static str),
    perform: impl AsyncFn(&Engine, DeviceId) -> bool,
) -> HttpResponse {
    let Some(serving) = state.serving.get() else {
        return error::response(&Refusal::loading());
    };
    let no_such = || Refusal::new(Kind::NotFound, format!("There is no device `{id}`."));
    let Ok(device) = id.parse::<u16>() else {
        return error::response(&no_such());
    };
    audit(request, call, id);
    match perform(&serving.engine, DeviceId(device)).await {
        true => HttpResponse::Accepted().json(Asked { device, status }),
        false => error::response(&no_such()),
    }
}
