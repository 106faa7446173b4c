//! What `/v2` tells of the server and its model, and whether a path names that model.

use super::error;
use crate::http::refusal::{Kind, Refusal};
use crate::http::state::{AppState, Serving};
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use serde_json::{Value, json};

/// The only version of a model.
const VERSION: &str = "1";

/// The name of the model that the path of `request` means.
///
/// # Errors
/// A refusal (404) when no such model, or no such version of it, is served.
pub fn check_model<'a>(request: &'a HttpRequest, serving: &Serving) -> Result<&'a str, Refusal> {
    let path = request.match_info();
    let name = path.get("model").unwrap_or("");
    if !serving.model.names.iter().any(|known| known == name) {
        let message = format!("Model {name} not found.");
        return Err(Refusal::new(Kind::NotFound, message));
    }
    match path.get("version") {
        Some(version) if version != VERSION => {
            let message = format!("Model {name} has no version {version}, only {VERSION}.");
            Err(Refusal::new(Kind::NotFound, message))
        }
        _ => Ok(name),
    }
}

#[derive(Serialize)]
struct Server {
    name: &'static str,
    version: &'static str,
    extensions: Value,
}

/// Answers `GET /v2`.
pub async fn server(state: Data<AppState>) -> HttpResponse {
    let limits = &state.limits;
    HttpResponse::Ok().json(Server {
        name: "Ropeteam",
        version: env!("CARGO_PKG_VERSION"),
        extensions: json!({
            "max_iter_times": state.serving.get().map(|serving| serving.model.max_output_len),
            "prefill_policy_type": 0,
            "decode_policy_type": 0,
            "max_prefill_batch_size": limits.max_prefill_batch_size,
            "max_prefill_tokens": limits.max_prefill_tokens,
        }),
    })
}

/// Answers `GET /v2/models/{model}`.
pub async fn model(request: HttpRequest, state: Data<AppState>) -> HttpResponse {
    about(&request, &state, |name, _| {
        let tensor = |name: &str| json!([{"name": name, "shape": [-1], "datatype": "UINT32"}]);
        json!({
            "name": name,
            "platform": "Ropeteam",
            "inputs": tensor("input0"),
            "outputs": tensor("output0"),
        })
    })
}

/// Answers `GET /v2/models/{model}/config`.
pub async fn config(request: HttpRequest, state: Data<AppState>) -> HttpResponse {
    about(&request, &state, |name, serving| {
        json!({
            "model_name": name,
            "input_datatype": "UINT32",
            "output_datatype": "UINT32",
            "max_seq_len": serving.model.max_model_len,
            "npu_mem_size": -1,
            "cpu_mem_size": 0,
            "world_size": serving.engine.state().devices,
            "model_weight_path": serving.model.root,
            "model_instance_type": "Standard",
        })
    })
}

/// Answers `GET /v2/models/{model}/ready`, without a body, as soon as a request would be served.
pub async fn ready(request: HttpRequest, state: Data<AppState>) -> HttpResponse {
    let known = state
        .serving()
        .and_then(|serving| check_model(&request, serving).map(|_| serving));
    match known {
        Ok(serving) if serving.engine.is_ready() => HttpResponse::Ok().finish(),
        Ok(_) => HttpResponse::ServiceUnavailable().finish(),
        Err(refusal) => error::response(&refusal),
    }
}

fn about(
    request: &HttpRequest,
    state: &AppState,
    tell: impl Fn(&str, &Serving) -> Value,
) -> HttpResponse {
    let Some(serving) = state.serving.get() else {
        return error::response(&Refusal::loading());
    };
    match check_model(request, serving) {
        Ok(name) => HttpResponse::Ok().json(tell(name, serving)),
        Err(refusal) => error::response(&refusal),
    }
}
