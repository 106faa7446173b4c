//! `GET /stopService[?mode=Force]`: ends the server, as SIGTERM does. Refuses what a page of another site sends: it is a GET, so a mere
//! image could ask for it. Keys are looked at before (`http/control`).

use super::error;
use crate::http::refusal::{Kind, Refusal};
use crate::http::state::{AppState, StopMode};
use actix_web::web::{Data, Query};
use actix_web::{HttpRequest, HttpResponse};
use std::collections::HashMap;
use std::time::Duration;

/// How often it is looked whether anything still runs.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Answers `GET /stopService` when all that ran has ended, with `mode=Force` at once. Asked again, it answers 500 as the original does.
pub async fn route(request: HttpRequest, state: Data<AppState>) -> HttpResponse {
    if let Err(refusal) = check(&request) {
        return error::response(&refusal);
    }
    let mode = match mode(request.query_string()) {
        Ok(mode) => mode,
        Err(refusal) => return error::response(&refusal),
    };
    if !state.stop(mode) {
        return HttpResponse::InternalServerError().finish();
    }
    if mode == StopMode::Graceful
        && let Some(serving) = state.serving.get()
    {
        while serving.engine.sessions() > 0 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    HttpResponse::Ok().finish()
}

fn check(request: &HttpRequest) -> Result<(), Refusal> {
    let site = request.headers().get("sec-fetch-site");
    let foreign = site.is_some_and(|site| site != "same-origin" && site != "none");
    match foreign {
        true => Err(Refusal::new(
            Kind::Unauthorized,
            "a page of another site may not stop the server",
        )),
        false => Ok(()),
    }
}

fn mode(query: &str) -> Result<StopMode, Refusal> {
    let pairs = Query::<HashMap<String, String>>::from_query(query);
    match pairs.as_ref().map(|pairs| pairs.get("mode")) {
        Ok(None) => Ok(StopMode::Graceful),
        Ok(Some(mode)) if mode == "Force" => Ok(StopMode::Force),
        _ => Err(Refusal::invalid(
            "mode",
            format!("the query must be empty or mode=Force, got {query}"),
        )),
    }
}
