//! `PATCH /v1/config`: changes limits while the server runs. The body is an object of options by key, as in a flat configuration file;
//! either all changes are made or none.

use super::{audit, read};
use crate::http::openai::error;
use crate::http::refusal::Refusal;
use crate::http::state::AppState;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use serde_json::{Map, Value};

#[derive(Serialize)]
struct Changed {
    changed: Map<String, Value>,
}

/// Makes the changes and says what each option was and is.
pub async fn change(request: HttpRequest, payload: Payload, state: Data<AppState>) -> HttpResponse {
    let patch = match read::<Map<String, Value>>(&request, payload, &state).await {
        Ok(patch) => patch,
        Err(refusal) => return error::response(&refusal),
    };
    let Some(live) = state.live.get() else {
        return error::response(&Refusal::loading());
    };
    match live.change(&patch) {
        Ok(changed) => {
            audit(
                &request,
                "config",
                &Value::Object(changed.clone()).to_string(),
            );
            HttpResponse::Ok().json(Changed { changed })
        }
        Err(refusal) => error::response(&refusal),
    }
}
