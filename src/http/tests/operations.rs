//! Health, methods, keys, ids and the management port.

use super::{call, call_port, get, manage, post, serving_state};
use crate::http::auth::ApiKeys;
use crate::http::management_routes;
use crate::http::request_log::RequestLog;
use crate::http::state::{AppState, Limits, Timeouts};
use actix_web::http::Method;
use actix_web::test::TestRequest;
use actix_web::web::Data;
use serde_json::{Value, json};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn generation() -> Value {
    json!({"prompt": "abc", "max_tokens": 2})
}

#[actix_web::test]
async fn health_is_200_only_when_a_request_would_be_served() {
    let loading = Data::new(AppState::new(Limits::default(), Timeouts::default()));
    let reply = get(&loading, "/health").await;
    assert_eq!(reply.status, 503);
    assert_eq!(
        reply.json(),
        json!({"error": "unhealthy", "error_type": "healthcheck", "status": "loading"})
    );
    let reply = post(&loading, "/v1/completions", generation()).await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.header("retry-after"), "1");

    let state = serving_state(Duration::ZERO).await;
    for path in ["/health", "/ping", "/", "/health/live"] {
        assert_eq!(get(&state, path).await.status, 200, "{path}");
        assert_eq!(
            call(
                &state,
                TestRequest::default().method(Method::HEAD).uri(path)
            )
            .await
            .status,
            200
        );
    }
    state.start_draining();
    assert_eq!(get(&state, "/health").await.status, 503);
    assert_eq!(
        post(&state, "/generate", json!({"inputs": "abc"}))
            .await
            .status,
        503
    );
}

#[actix_web::test]
async fn wrong_routes_and_methods_are_told_in_json() {
    let state = serving_state(Duration::ZERO).await;
    let reply = get(&state, "/v1/completions").await;
    assert_eq!(reply.status, 405);
    assert_eq!(reply.header("allow"), "POST");
    assert_eq!(reply.json()["error"]["code"], 405);
    let reply = post(&state, "/v1/nosuch", json!({})).await;
    assert_eq!(reply.status, 404);
    assert!(
        reply.json()["error"]["message"]
            .as_str()
            .unwrap()
            .contains("/v1/nosuch")
    );
    assert_eq!(
        get(&state, "/nosuch").await.json()["error_type"],
        "not_found"
    );
    let options = TestRequest::default()
        .method(Method::OPTIONS)
        .uri("/generate");
    assert_eq!(call(&state, options).await.status, 204);
}

#[actix_web::test]
async fn with_keys_only_generation_needs_one() {
    let state = serving_state(Duration::ZERO).await.into_inner();
    let mut state = Arc::try_unwrap(state).ok().expect("nobody else holds it");
    state.keys = ApiKeys::parse("secret").unwrap();
    let state = Data::new(state);
    assert_eq!(get(&state, "/health").await.status, 200);
    assert_eq!(get(&state, "/info").await.status, 200);
    let refused = post(&state, "/v1/completions", generation()).await;
    assert_eq!(refused.status, 401);
    assert_eq!(refused.json()["error"]["type"], "AuthenticationError");
    assert_eq!(
        post(&state, "/generate", json!({"inputs": "abc"}))
            .await
            .json()["error_type"],
        "unauthorized"
    );
    let request = TestRequest::post()
        .uri("/v1/completions")
        .set_json(generation());
    let allowed = call(
        &state,
        request.insert_header(("authorization", "Bearer secret")),
    )
    .await;
    assert_eq!(allowed.status, 200);
}

#[actix_web::test]
async fn with_keys_a_restart_needs_one() {
    let state = serving_state(Duration::ZERO).await.into_inner();
    let mut state = Arc::try_unwrap(state).ok().expect("nobody else holds it");
    state.keys = ApiKeys::parse("secret").unwrap();
    let state = Data::new(state);
    let restart = || TestRequest::post().uri("/v1/devices/0/restart");
    let refused = call_port(&state, restart(), management_routes).await;
    assert_eq!(refused.status, 401);
    let request = restart().insert_header(("authorization", "Bearer secret"));
    let allowed = call_port(&state, request, management_routes).await;
    assert_eq!(allowed.status, 202);
    for open in ["/health", "/metrics"] {
        assert_ne!(manage(&state, Method::GET, open).await.status, 401);
    }
}

#[actix_web::test]
async fn request_ids_come_back_and_name_the_answer() {
    let state = serving_state(Duration::ZERO).await;
    let request = TestRequest::post()
        .uri("/v1/completions")
        .set_json(generation());
    let reply = call(&state, request.insert_header(("x-request-id", "abc-123"))).await;
    assert_eq!(reply.header("x-request-id"), "abc-123");
    assert_eq!(reply.json()["id"], "cmpl-abc-123");
    let request = TestRequest::post()
        .uri("/v1/completions")
        .set_json(generation());
    let reply = call(&state, request.insert_header(("x-request-id", "a\tb"))).await;
    assert_eq!(reply.header("x-request-id").len(), 32);
}

#[actix_web::test]
async fn the_management_port_shows_and_restarts_devices() {
    let state = serving_state(Duration::ZERO).await;
    assert_eq!(manage(&state, Method::GET, "/health").await.status, 200);
    let devices = manage(&state, Method::GET, "/v1/devices").await.json();
    assert_eq!(devices["devices"][0]["device"], 0);
    assert_eq!(devices["devices"][0]["state"], "up");
    assert_eq!(
        manage(&state, Method::POST, "/v1/devices/7/restart")
            .await
            .status,
        404
    );
    assert_eq!(
        manage(&state, Method::POST, "/v1/devices/x/restart")
            .await
            .status,
        404
    );
    assert_eq!(
        manage(&state, Method::POST, "/v1/devices/0/restart")
            .await
            .status,
        202
    );
    assert_eq!(manage(&state, Method::GET, "/v1/status").await.status, 200);
    assert_eq!(manage(&state, Method::POST, "/generate").await.status, 404);
}

/// A writer that others can look into.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[actix_web::test]
async fn every_request_leaves_one_line_in_the_log() {
    let written = Shared::default();
    let state = serving_state(Duration::ZERO).await.into_inner();
    let mut state = Arc::try_unwrap(state).ok().expect("nobody else holds it");
    state.request_log = Some(RequestLog::start(Box::new(written.clone()), true).unwrap());
    let state = Data::new(state);
    post(&state, "/v1/completions", generation()).await;
    post(&state, "/generate_stream", json!({"inputs": "abc"})).await;
    post(&state, "/v1/completions", json!({"prompt": 7})).await;
    let lines = || {
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect::<Vec<Value>>()
    };
    for _ in 0..3000 {
        if lines().len() == 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let lines = lines();
    assert_eq!(lines[0]["outcome"], "ok");
    assert_eq!(lines[0]["prompt_tokens"], 3);
    assert!(lines[0]["prompt"].is_string() && lines[0]["result"].is_string());
    assert_eq!(lines[1]["stream"], true);
    assert_eq!(lines[1]["outcome"], "ok");
    assert_eq!(lines[2]["outcome"], "invalid");
}

#[actix_web::test]
async fn a_deep_probe_generates_one_token_and_remembers_it() {
    let state = serving_state(Duration::ZERO).await;
    let first = get(&state, "/health/deep").await;
    assert_eq!(first.status, 200, "{}", first.text);
    assert_eq!(first.json()["status"], "ok");
    let generated = |status: &Value| status["metrics"]["generated_tokens"].clone();
    let before = manage(&state, Method::GET, "/v1/status").await.json();
    for _ in 0..20 {
        assert_eq!(get(&state, "/health/deep").await.status, 200);
    }
    let after = manage(&state, Method::GET, "/v1/status").await.json();
    assert_eq!(generated(&before), generated(&after));
}
