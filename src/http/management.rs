//! Health and the devices: what operators and orchestrators ask. Health is read from the engine's own progress, not from the HTTP side
//! being alive: 200 only when a request would be served now.

use super::mindie::management::StatusView;
use super::openai::error;
use super::refusal::Refusal;
use super::state::AppState;
use actix_web::HttpResponse;
use actix_web::web::Data;
use ropeteam_actors::EngineView;
use serde::Serialize;

#[derive(Serialize)]
struct Healthy {
    status: &'static str,
}

/// TGI's words for an unhealthy server, and why.
#[derive(Serialize)]
struct Unhealthy {
    error: &'static str,
    error_type: &'static str,
    status: &'static str,
}

/// Answers `GET /health`, `/ping` and `/` from cached state.
pub async fn health(state: Data<AppState>) -> HttpResponse {
    let status = match state.serving.get() {
        _ if state.is_draining() => "draining",
        None => "loading",
        Some(serving) if serving.engine.is_ready() => {
            return HttpResponse::Ok().json(Healthy { status: "ok" });
        }
        Some(serving) if serving.engine.state().is_hopeless() => "no device left",
        Some(_) => "no device is up",
    };
    HttpResponse::ServiceUnavailable().json(Unhealthy {
        error: "unhealthy",
        error_type: "healthcheck",
        status,
    })
}

#[derive(Serialize)]
struct Alive {
    status: &'static str,
}

/// Answers `GET /health/live`: 503 only when nothing but a restart of the process can help.
pub async fn live(state: Data<AppState>) -> HttpResponse {
    match state.serving.get() {
        Some(serving) if serving.engine.state().is_hopeless() => HttpResponse::ServiceUnavailable()
            .json(Alive {
                status: "no device left",
            }),
        _ => HttpResponse::Ok().json(Alive { status: "alive" }),
    }
}

#[derive(Serialize)]
struct Version {
    version: &'static str,
}

/// Answers `GET /version`.
pub async fn version() -> HttpResponse {
    HttpResponse::Ok().json(Version {
        version: env!("CARGO_PKG_VERSION"),
    })
}

#[derive(Serialize)]
struct ServerLoad {
    server_load: usize,
}

/// Answers `GET /load`, as vLLM does: how many requests run or wait.
pub async fn load(state: Data<AppState>) -> HttpResponse {
    let serving = state.serving.get();
    HttpResponse::Ok().json(ServerLoad {
        server_load: serving.map_or(0, |serving| serving.engine.sessions()),
    })
}

#[derive(Serialize)]
struct Devices<T> {
    devices: Vec<T>,
}

/// Answers `GET /v1/devices`.
pub async fn devices(state: Data<AppState>) -> HttpResponse {
    let Some(serving) = state.serving.get() else {
        return error::response(&Refusal::loading());
    };
    HttpResponse::Ok().json(Devices {
        devices: serving.engine.devices().await,
    })
}

/// Everything the engine shows of itself, and what MindIE's clients look for beside it.
#[derive(Serialize)]
struct Status {
    #[serde(flatten)]
    mindie: Option<StatusView>,
    #[serde(flatten)]
    engine: EngineView,
}

/// Answers `GET /v1/status`.
pub async fn status(state: Data<AppState>) -> HttpResponse {
    let Some(serving) = state.serving.get() else {
        return error::response(&Refusal::loading());
    };
    let engine = serving.engine.snapshot().await;
    let queue = engine.scheduler.as_ref();
    HttpResponse::Ok().json(Status {
        mindie: queue.map(|queue| StatusView::of(queue, state.limits.max_running)),
        engine,
    })
}
