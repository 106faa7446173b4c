//! `GET /metrics`: our own names, then the same samples under the names that other tools look for. Those are made from the rendered text, so
//! nothing is counted twice. Not here: what is counted (`ropeteam_engine::observe`).
//!
//! | file | whose names |
//! | --- | --- |
//! | `vllm.rs` | vLLM's, for dashboards and gateways |
//! | `tgi.rs` | TGI's |
//! | `mindie.rs` | MindIE's, which have no prefix: only on the management and the metrics port |
//! | `samples.rs` | reads and writes lines |

mod mindie;
mod samples;
mod tgi;
mod vllm;

pub use samples::Samples;

use super::openai::error;
use super::refusal::{Kind, Refusal};
use super::state::AppState;
use actix_web::HttpResponse;
use actix_web::web::Data;

/// Prometheus' text format.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers `GET /metrics` on the inference port.
pub async fn route(state: Data<AppState>) -> HttpResponse {
    page(&state, false).await
}

/// Answers `GET /metrics` on the other ports.
pub async fn with_bare_names(state: Data<AppState>) -> HttpResponse {
    page(&state, true).await
}

async fn page(state: &AppState, bare_names: bool) -> HttpResponse {
    let Some(mut page) = rendered(state).await else {
        return error::response(&Refusal::new(
            Kind::NotFound,
            "metrics are switched off (enable_metrics)",
        ));
    };
    let serving = state.serving.get();
    let model = serving.map_or("", |serving| serving.model.name());
    let mut more = String::new();
    {
        let samples = Samples::of(&page);
        vllm::add(&samples, model, &mut more);
        tgi::add(&samples, &mut more);
        if bare_names {
            mindie::add(&samples, model, &mut more);
        }
    }
    if let Some(limits) = serving.and_then(|serving| serving.engine.limits()) {
        vllm::add_cache_config(model, &limits, &mut more);
    }
    page.push_str(&more);
    HttpResponse::Ok()
        .insert_header(("content-type", CONTENT_TYPE))
        .body(page)
}

/// Our own metrics, up to date; `None` when they are switched off.
pub async fn rendered(state: &AppState) -> Option<String> {
    let handle = state.metrics.as_ref()?;
    if let Some(serving) = state.serving.get() {
        // Brings the recorder up to date, which is all that is wanted of it here.
        serving.engine.metrics().await;
    }
    handle.run_upkeep();
    Some(handle.render())
}
