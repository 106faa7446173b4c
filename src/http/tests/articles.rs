//! The routes of the two articles.

use super::{call, get, post, serving_state};
use actix_web::test::TestRequest;
use serde_json::json;
use std::time::Duration;

#[actix_web::test]
async fn the_first_articles_call_answers_prompt_and_result() {
    let state = serving_state(Duration::ZERO).await;
    let body = json!({"prompt": "abc", "max_new_tokens": 16, "temperature": 0.7, "stream": false});
    let reply = post(&state, "/v1/generate", body).await;
    let keys: Vec<String> = reply.json().as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["prompt", "result"]);
    assert_eq!(reply.json()["prompt"], "abc");
    let untyped = TestRequest::post()
        .uri("/v1/generate")
        .set_payload(r#"{"prompt":"abc","max_new_tokens":2}"#);
    assert_eq!(
        call(
            &state,
            untyped.insert_header(("content-type", "text/plain"))
        )
        .await
        .status,
        200
    );
    assert_eq!(post(&state, "/v1/generate", json!({})).await.status, 400);
}

#[actix_web::test]
async fn the_first_articles_stream_is_real_events_or_bare_text() {
    let state = serving_state(Duration::ZERO).await;
    let body = json!({"prompt": "abc", "max_new_tokens": 20, "temperature": 0, "stream": true});
    let whole = json!({"prompt": "abc", "max_new_tokens": 20, "temperature": 0});
    let whole = post(&state, "/v1/generate", whole).await.json();
    let events = post(&state, "/v1/generate", body.clone()).await;
    assert_eq!(
        events.header("content-type"),
        "text/event-stream; charset=utf-8"
    );
    let text: String = events
        .text
        .split("\n\n")
        .filter_map(|block| block.strip_prefix("data: "))
        .collect();
    assert_eq!(whole["result"], text);
    let raw = post(&state, "/v1/generate?raw=1", body).await;
    assert_eq!(whole["result"], raw.text);
}

#[actix_web::test]
async fn the_second_articles_stream_is_clean_tgi_events() {
    let state = serving_state(Duration::ZERO).await;
    let reply = get(&state, "/v1/stream?prompt=abc%20d").await;
    assert!(reply.text.starts_with("data: {\"token\""), "{}", reply.text);
    assert!(reply.events().last().unwrap()["generated_text"].is_string());
    assert_eq!(get(&state, "/v1/stream").await.status, 400);
}

#[actix_web::test]
async fn a_query_may_set_the_temperature_and_unknown_names_are_told() {
    let state = serving_state(Duration::ZERO).await;
    let text = async |query: &str| {
        let reply = get(&state, &format!("/v1/stream?prompt=abc&{query}")).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply
            .events()
            .pop()
            .map(|last| last["generated_text"].clone())
    };
    assert_eq!(text("temperature=0").await, text("max_tokens=20").await);
    assert!(text("temperature=1.5").await.is_some());
    for wrong in ["3", "-1", "nan", "hot"] {
        let path = format!("/v1/stream?prompt=abc&temperature={wrong}");
        assert_eq!(get(&state, &path).await.status, 400, "{wrong}");
    }
    let reply = get(&state, "/v1/stream?prompt=abc&bogus=1&max_tokens=2").await;
    assert_eq!(reply.header("x-ropeteam-ignored-fields"), "bogus");
    let body = json!({"prompt": "abc", "max_new_tokens": 2, "bogus": 1});
    let reply = post(&state, "/v1/generate", body).await;
    assert_eq!(reply.header("x-ropeteam-ignored-fields"), "bogus");
}

#[actix_web::test]
async fn the_second_articles_chat_answers_tgis_json() {
    let state = serving_state(Duration::ZERO).await;
    let request = TestRequest::post().uri("/v1/chat/completions?prompt=abc&max_tokens=5");
    let json = call(&state, request).await.json();
    assert!(json["generated_text"].is_string());
}
