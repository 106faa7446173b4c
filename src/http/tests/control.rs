//! What operators change, and who may.

use super::{MODEL, Reply, call_port, post, serving_state};
use crate::http::auth::ApiKeys;
use crate::http::management_routes;
use crate::http::state::AppState;
use actix_web::http::Method;
use actix_web::test::TestRequest;
use actix_web::web::Data;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Every route that needs the operator's key.
const GUARDED: &[(Method, &str)] = &[
    (Method::GET, "/v1/devices"),
    (Method::GET, "/v1/requests"),
    (Method::GET, "/v1/status"),
    (Method::POST, "/v1/devices/0/restart"),
    (Method::POST, "/v1/devices/0/drain"),
    (Method::POST, "/v1/devices/0/resume"),
    (Method::DELETE, "/v1/requests/none"),
    (Method::PATCH, "/v1/config"),
    (Method::GET, "/v1/events?names=nosuch"),
];

async fn with(change: impl FnOnce(&mut AppState)) -> Data<AppState> {
    let state = serving_state(Duration::ZERO).await.into_inner();
    let mut state = Arc::try_unwrap(state).ok().expect("nobody else holds it");
    change(&mut state);
    Data::new(state)
}

async fn manage(state: &Data<AppState>, method: &Method, path: &str) -> Reply {
    let request = TestRequest::default().method(method.clone()).uri(path);
    call_port(state, request, management_routes).await
}

async fn with_key(state: &Data<AppState>, method: &Method, path: &str, key: &str) -> Reply {
    let request = TestRequest::default().method(method.clone()).uri(path);
    let request = request.insert_header(("authorization", format!("Bearer {key}")));
    call_port(state, request, management_routes).await
}

#[actix_web::test]
async fn a_management_key_guards_all_but_health_and_metrics_and_is_not_the_clients_key() {
    let state = with(|state| {
        state.keys = ApiKeys::parse("client").unwrap();
        state.management.keys = ApiKeys::parse("operator").unwrap();
    })
    .await;
    for (method, path) in GUARDED {
        assert_eq!(manage(&state, method, path).await.status, 401, "{path}");
        let client = with_key(&state, method, path, "client").await;
        assert_eq!(client.status, 401, "{path}");
        let operator = with_key(&state, method, path, "operator").await;
        assert_ne!(operator.status, 401, "{path}");
    }
    for open in ["/health", "/health/live", "/metrics"] {
        assert_ne!(manage(&state, &Method::GET, open).await.status, 401);
    }
}

#[actix_web::test]
async fn without_any_key_other_machines_may_only_probe() {
    let state = with(|state| state.management.exposed = true).await;
    for (method, path) in GUARDED {
        assert_eq!(manage(&state, method, path).await.status, 401, "{path}");
    }
    assert_eq!(manage(&state, &Method::GET, "/health").await.status, 200);
}

#[actix_web::test]
async fn without_a_key_web_pages_are_kept_out() {
    let state = serving_state(Duration::ZERO).await;
    let asked = async |name: &'static str, value: &'static str| {
        let request = TestRequest::post().uri("/v1/devices/0/drain");
        let request = request.insert_header((name, value));
        call_port(&state, request, management_routes).await.status
    };
    assert_eq!(asked("origin", "http://evil.example").await, 401);
    assert_eq!(asked("host", "evil.example:1026").await, 401);
    for host in [
        "localhost:1026",
        "127.0.0.1:1026",
        "[::1]:1026",
        "127.0.0.1",
    ] {
        assert_eq!(asked("host", host).await, 202, "{host}");
    }
}

#[actix_web::test]
async fn a_device_is_drained_and_resumed() {
    let state = serving_state(Duration::ZERO).await;
    let held_back = async || {
        let devices = manage(&state, &Method::GET, "/v1/devices").await.json();
        devices["devices"][0]["held_back"].clone()
    };
    assert_eq!(held_back().await, false);
    let reply = manage(&state, &Method::POST, "/v1/devices/0/drain").await;
    assert_eq!(reply.status, 202);
    assert_eq!(reply.json(), json!({"device": 0, "status": "draining"}));
    assert_eq!(held_back().await, true);
    assert_eq!(manage(&state, &Method::GET, "/health").await.status, 503);
    let reply = manage(&state, &Method::POST, "/v1/devices/0/resume").await;
    assert_eq!(reply.status, 202);
    assert_eq!(held_back().await, false);
    for wrong in ["/v1/devices/7/drain", "/v1/devices/x/resume"] {
        assert_eq!(manage(&state, &Method::POST, wrong).await.status, 404);
    }
}

#[actix_web::test]
async fn requests_are_listed_and_ended_by_their_ids() {
    let state = serving_state(Duration::from_millis(30)).await;
    let body = json!({"model": MODEL, "prompt": "abc", "max_tokens": 100, "ignore_eos": true});
    let asking = async {
        let request = TestRequest::post().uri("/v1/completions").set_json(&body);
        let request = request.insert_header(("x-request-id", "long-one"));
        super::call(&state, request).await
    };
    let ending = async {
        loop {
            let list = manage(&state, &Method::GET, "/v1/requests").await.json();
            if list["requests"][0]["state"] == "running" {
                assert_eq!(list["requests"][0]["prompt_tokens"], 3);
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let missing = manage(&state, &Method::DELETE, "/v1/requests/long").await;
        assert_eq!(missing.status, 404);
        let reply = manage(&state, &Method::DELETE, "/v1/requests/long-one").await;
        assert_eq!(reply.json(), json!({"id": "long-one", "ended": 1}));
    };
    let (reply, ()) = tokio::join!(asking, ending);
    assert_eq!(reply.status, 503);
    let message = reply.json()["error"]["message"].clone();
    assert!(
        message.as_str().is_some_and(|m| m.contains("operator")),
        "{message}"
    );
}

#[actix_web::test]
async fn a_drain_refuses_what_comes_and_its_body_is_checked() {
    let state = serving_state(Duration::ZERO).await;
    let drain = async |body: Value| {
        let request = TestRequest::post().uri("/v1/drain").set_json(body);
        call_port(&state, request, management_routes).await
    };
    for (wrong, field) in [
        (json!({"within": 5}), "within"),
        (json!({"within_ms": "soon"}), "within_ms"),
        (json!({"within_ms": 5, "exit": true}), "within_ms"),
    ] {
        let reply = drain(wrong).await;
        assert_eq!(reply.status, 400);
        assert_eq!(reply.json()["error"]["param"], field);
    }
    let reply = drain(json!({"within_ms": 1000})).await;
    assert_eq!(reply.status, 202);
    assert_eq!(reply.json()["within_ms"], 1000);
    let refused = post(&state, "/v1/completions", json!({"prompt": "abc"})).await;
    assert_eq!(refused.status, 503);
    assert!(!refused.header("retry-after").is_empty());
}

#[actix_web::test]
async fn unknown_event_names_are_refused_with_the_known_ones() {
    let state = serving_state(Duration::ZERO).await;
    let reply = manage(&state, &Method::GET, "/v1/events?names=finished,nosuch").await;
    assert_eq!(reply.status, 400);
    let message = reply.json()["error"]["message"].clone();
    let message = message.as_str().expect("a message");
    assert!(
        message.contains("`nosuch`") && message.contains("device_died"),
        "{message}"
    );
}
