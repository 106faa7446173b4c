//! `GET /v1/models` and `/v1/models/{id}`, with vLLM's extra fields: agents and evaluation suites read `max_model_len`.

use super::error;
use crate::http::refusal::Refusal;
use crate::http::state::{AppState, Serving};
use actix_web::HttpResponse;
use actix_web::web::{Data, Path};
use serde::Serialize;

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Model<'a>>,
}

#[derive(Serialize)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    root: &'a str,
    parent: Option<&'a str>,
    max_model_len: u32,
    permission: [Permission; 1],
}

#[derive(Serialize)]
struct Permission {
    id: String,
    object: &'static str,
    created: u64,
    allow_create_engine: bool,
    allow_sampling: bool,
    allow_logprobs: bool,
    allow_search_indices: bool,
    allow_view: bool,
    allow_fine_tuning: bool,
    organization: &'static str,
    group: Option<&'static str>,
    is_blocking: bool,
}

fn model<'a>(name: &'a str, serving: &'a Serving, created: u64) -> Model<'a> {
    Model {
        id: name,
        object: "model",
        created,
        owned_by: "ropeteam",
        root: &serving.model.root,
        parent: None,
        max_model_len: serving.model.max_model_len,
        permission: [Permission {
            id: format!("modelperm-{name}"),
            object: "model_permission",
            created,
            allow_create_engine: false,
            allow_sampling: true,
            allow_logprobs: true,
            allow_search_indices: false,
            allow_view: true,
            allow_fine_tuning: false,
            organization: "*",
            group: None,
            is_blocking: false,
        }],
    }
}

/// Answers `GET /v1/models`.
pub async fn list(state: Data<AppState>) -> HttpResponse {
    let Some(serving) = state.serving.get() else {
        return error::response(&Refusal::loading());
    };
    let names = serving.model.names.iter();
    let data = names
        .map(|name| model(name, serving, state.created()))
        .collect();
    HttpResponse::Ok().json(List {
        object: "list",
        data,
    })
}

/// Answers `GET /v1/models/{id}`. Names with slashes count as one.
pub async fn one(name: Path<String>, state: Data<AppState>) -> HttpResponse {
    let Some(serving) = state.serving.get() else {
        return error::response(&Refusal::loading());
    };
    if !serving.model.names.contains(&*name) {
        return error::response(&Refusal::no_such_model(&name));
    }
    HttpResponse::Ok().json(model(&name, serving, state.created()))
}
