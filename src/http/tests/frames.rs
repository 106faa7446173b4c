//! Snapshots of what goes over the wire: every shape of an event stream and of an error body, per dialect. After a wanted change:
//! `INSTA_UPDATE=always cargo test -p ropeteam --lib frames`, and read the difference.

use super::openai::chat_state;
use super::{Reply, call};
use crate::http::refusal::{Kind, Refusal, TokenCount};
use crate::http::{openai, tgi};
use actix_web::HttpResponse;
use actix_web::body::{MessageBody, to_bytes};
use actix_web::test::TestRequest;
use serde_json::{Value, json};
use std::time::Duration;

/// What changes from run to run is written in words.
fn settled(reply: &Reply) -> String {
    let mut text = String::new();
    // A busy machine is slow enough for these.
    let without = reply.text.replace(": keep-alive\n\n", "");
    let mut rest = without.as_str();
    while let Some(at) = rest.find("\"created\":") {
        let (before, behind) = rest.split_at(at + "\"created\":".len());
        text.push_str(before);
        text.push_str("TIME");
        rest = behind.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    text.push_str(rest);
    format!(
        "{}\n{}\n\n{text}",
        reply.status,
        reply.header("content-type")
    )
}

async fn stream(path: &str, mut body: Value) -> String {
    let fields = body.as_object_mut().expect("an object");
    let is_tgi = fields.contains_key("inputs");
    if !is_tgi {
        for (name, value) in [
            ("stream", json!(true)),
            ("temperature", json!(0)),
            ("ignore_eos", json!(true)),
        ] {
            fields.entry(name).or_insert(value);
        }
    }
    let request = TestRequest::post()
        .uri(path)
        .insert_header(("x-request-id", "named"));
    let reply = call(&chat_state().await, request.set_json(body)).await;
    settled(&reply)
}

fn messages() -> Value {
    json!([{"role": "user", "content": "abc"}])
}

#[actix_web::test]
async fn completions() {
    let path = "/v1/completions";
    for (name, more) in [
        ("plain", json!({})),
        (
            "usage_at_the_end",
            json!({"stream_options": {"include_usage": true}}),
        ),
        (
            "usage_always",
            json!({"stream_options": {"include_usage": true, "continuous_usage_stats": true}}),
        ),
        ("echo_with_logprobs", json!({"echo": true, "logprobs": 1})),
        ("ids", json!({"return_token_ids": true})),
        ("prompt_only", json!({"echo": true, "max_tokens": 0})),
    ] {
        let mut body = json!({"prompt": "abc", "max_tokens": 2});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        insta::assert_snapshot!(format!("completions_{name}"), stream(path, body).await);
    }
}

#[actix_web::test]
async fn chat() {
    let path = "/v1/chat/completions";
    for (name, more) in [
        ("plain", json!({})),
        (
            "usage_always",
            json!({"stream_options": {"include_usage": true, "continuous_usage_stats": true}}),
        ),
        ("logprobs", json!({"logprobs": true, "top_logprobs": 1})),
        ("ids", json!({"return_token_ids": true})),
        (
            "stop_reason",
            json!({"stop_token_ids": (1..28).collect::<Vec<u32>>()}),
        ),
    ] {
        let mut body = json!({"messages": messages(), "max_tokens": 2});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        insta::assert_snapshot!(format!("chat_{name}"), stream(path, body).await);
    }
}

#[actix_web::test]
async fn tgi_and_the_articles() {
    let parameters = json!({"max_new_tokens": 2, "ignore_eos": true, "details": true});
    let body = json!({"inputs": "abc", "parameters": parameters});
    insta::assert_snapshot!(
        "tgi_generate_stream",
        stream("/generate_stream", body).await
    );
    let body = json!({"prompt": "abc", "max_new_tokens": 2});
    insta::assert_snapshot!(
        "articles_generate",
        stream("/v1/generate", body.clone()).await
    );
    insta::assert_snapshot!(
        "articles_generate_raw",
        stream("/v1/generate?raw=1", body).await
    );
    let request = TestRequest::get().uri("/v1/stream?prompt=abc&max_tokens=2");
    let reply = call(&chat_state().await, request).await;
    insta::assert_snapshot!("articles_stream", settled(&reply));
}

/// One refusal of each kind.
fn refusals() -> Vec<Refusal> {
    let kinds = [
        Kind::Syntax,
        Kind::Unauthorized,
        Kind::NotFound,
        Kind::MethodNotAllowed,
        Kind::BodyTimeout,
        Kind::BodyTooLarge,
        Kind::MediaType,
        Kind::Unavailable,
        Kind::Deadline,
        Kind::Cancelled,
        Kind::Device,
        Kind::Incomplete,
    ];
    let mut all: Vec<Refusal> = kinds.map(|kind| Refusal::new(kind, "why")).into();
    let later = Some(Duration::from_millis(1500));
    for kind in [Kind::Overloaded, Kind::QueueTimeout] {
        all.push(Refusal {
            retry_after: later,
            ..Refusal::new(kind, "why")
        });
    }
    all.push(Refusal::invalid(
        "max_tokens",
        "max_tokens must be at least 1, got -1",
    ));
    all.push(Refusal::not_offered("suffix"));
    all.push(Refusal::no_such_model("x"));
    for with_output in [false, true] {
        let tokens = Some(TokenCount {
            given: 300,
            limit: 128,
            with_output,
        });
        all.push(Refusal {
            tokens,
            ..Refusal::new(Kind::TooLong, "why")
        });
    }
    all
}

async fn told(response: HttpResponse) -> String {
    let (status, mut headers) = (response.status(), Vec::new());
    for (name, value) in response.headers() {
        headers.push(format!("{name}: {}", value.to_str().expect("ASCII")));
    }
    headers.sort();
    let body = to_bytes(response.into_body().boxed())
        .await
        .expect("a body");
    format!(
        "{status}\n{}\n{}\n",
        headers.join("\n"),
        String::from_utf8_lossy(&body)
    )
}

#[actix_web::test]
async fn errors() {
    let (mut openai, mut tgi) = (String::new(), String::new());
    for refusal in refusals() {
        openai += &format!(
            "{:?}: {}\n",
            refusal.kind,
            told(openai::error::response(&refusal)).await
        );
        tgi += &format!(
            "{:?}: {}\n",
            refusal.kind,
            told(tgi::error::response(&refusal)).await
        );
    }
    insta::assert_snapshot!("errors_openai", openai);
    insta::assert_snapshot!("errors_tgi", tgi);
}
