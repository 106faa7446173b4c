//! `GET /info`, with the fields and their order as 0.9.4, later versions or MindIE have them.

use super::{Version, error};
use crate::http::mindie;
use crate::http::refusal::Refusal;
use crate::http::state::{AppState, Serving};
use actix_web::HttpResponse;
use actix_web::web::Data;
use serde::Serialize;

#[derive(Serialize)]
struct Info<'a> {
    model_id: &'a str,
    model_sha: Option<&'a str>,
    model_dtype: String,
    model_device_type: &'a str,
    /// A model from a folder has none, and so no prompt in front of the text of `/` unless asked for.
    model_pipeline_tag: Option<&'static str>,
    max_concurrent_requests: usize,
    max_best_of: u32,
    max_stop_sequences: usize,
    max_input_length: u32,
    max_total_tokens: u32,
    waiting_served_ratio: f32,
    max_batch_total_tokens: u32,
    max_waiting_tokens: usize,
    validation_workers: usize,
    version: &'static str,
    sha: Option<&'static str>,
    docker_label: Option<&'static str>,
}

/// The fields of later versions.
#[derive(Serialize)]
struct LaterInfo<'a> {
    model_id: &'a str,
    model_sha: Option<&'a str>,
    model_pipeline_tag: Option<&'static str>,
    max_concurrent_requests: usize,
    max_best_of: u32,
    max_stop_sequences: usize,
    max_input_tokens: u32,
    max_total_tokens: u32,
    validation_workers: usize,
    /// Prompts that are too long are refused.
    auto_truncate: bool,
    /// Prompts that one call of `/v1/completions` may hold.
    max_client_batch_size: usize,
    router: &'static str,
    version: &'static str,
    sha: Option<&'static str>,
    docker_label: Option<&'static str>,
}

/// Answers `GET /info`.
pub async fn route(state: Data<AppState>) -> HttpResponse {
    let Some(serving) = state.serving.get() else {
        return error::response(&Refusal::loading());
    };
    match state.limits.tgi_version {
        Version::V0_9_4 => early(&state, serving),
        Version::Later => later(&state, serving),
        Version::MindIe => mindie::management::info(state).await,
    }
}

fn later(state: &AppState, serving: &Serving) -> HttpResponse {
    let (model, limits) = (&serving.model, &state.limits);
    HttpResponse::Ok().json(LaterInfo {
        model_id: model.name(),
        model_sha: model.revision.as_deref(),
        model_pipeline_tag: None,
        max_concurrent_requests: limits.max_concurrent_requests,
        max_best_of: limits.max_best_of,
        max_stop_sequences: limits.max_stop_sequences,
        max_input_tokens: model.max_input_len,
        max_total_tokens: model.max_model_len,
        validation_workers: 1,
        auto_truncate: false,
        max_client_batch_size: serving.engine.config().max_queue,
        router: "ropeteam",
        version: env!("CARGO_PKG_VERSION"),
        sha: None,
        docker_label: None,
    })
}

fn early(state: &AppState, serving: &Serving) -> HttpResponse {
    let (model, limits) = (&serving.model, &state.limits);
    HttpResponse::Ok().json(Info {
        model_id: model.name(),
        model_sha: model.revision.as_deref(),
        model_dtype: format!("torch.{}", model.dtype),
        model_device_type: &model.device_type,
        model_pipeline_tag: None,
        max_concurrent_requests: limits.max_concurrent_requests,
        max_best_of: limits.max_best_of,
        max_stop_sequences: limits.max_stop_sequences,
        max_input_length: model.max_input_len,
        max_total_tokens: model.max_model_len,
        waiting_served_ratio: 1.2,
        max_batch_total_tokens: serving
            .engine
            .limits()
            .map_or(0, |limits| limits.pool_tokens),
        max_waiting_tokens: 20,
        validation_workers: 1,
        version: env!("CARGO_PKG_VERSION"),
        sha: None,
        docker_label: None,
    })
}
