//! `GET /v1/requests` and `DELETE /v1/requests/{id}`. Ids are those of the `x-request-id` header; a call with several prompts has a
//! request for each in the engine, named `id.N`, and both names may be used.

use super::audit;
use crate::http::openai::error;
use crate::http::refusal::{Kind, Refusal};
use crate::http::state::AppState;
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use ropeteam_actors::SessionView;
use serde::Serialize;

#[derive(Serialize)]
struct List {
    requests: Vec<SessionView>,
}

/// The requests in the engine, oldest first. No texts.
pub async fn list(state: Data<AppState>) -> HttpResponse {
    let Some(serving) = state.serving.get() else {
        return error::response(&Refusal::loading());
    };
    HttpResponse::Ok().json(List {
        requests: serving.engine.requests().await,
    })
}

#[derive(Serialize)]
struct Ended {
    id: String,
    ended: usize,
}

/// Ends a request; its client is told that an operator did.
pub async fn cancel(request: HttpRequest, id: Path<String>, state: Data<AppState>) -> HttpResponse {
    let Some(serving) = state.serving.get() else {
        return error::response(&Refusal::loading());
    };
    audit(&request, "cancel", &id);
    let ended = serving.engine.cancel(|name| is_of(name, &id));
    if ended == 0 {
        let message = format!("There is no request `{id}`.");
        return error::response(&Refusal::new(Kind::NotFound, message));
    }
    HttpResponse::Ok().json(Ended {
        id: id.into_inner(),
        ended,
    })
}

/// Whether the engine's request `name` belongs to the client's request `id`, or is named so itself.
fn is_of(name: &str, id: &str) -> bool {
    let number = name
        .strip_prefix(id)
        .and_then(|rest| rest.strip_prefix('.'));
    let number = number.filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    name == id || number.is_some()
}

#[cfg(test)]
mod tests {
    use super::is_of;

    #[test]
    fn a_request_is_known_by_its_id_and_by_the_engines_name_for_it() {
        assert!(is_of("abc.7", "abc") && is_of("abc.7", "abc.7"));
        for other in ["ab", "abc.", "abc.71", "abc.7.1", ""] {
            assert!(!is_of("abc.7", other), "{other}");
        }
        assert!(!is_of("abc.7.1", "abc"), "another client's id");
    }
}
