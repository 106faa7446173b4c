//! vLLM's routes about the tokenizer and the server.

use super::openai::{chat_state, check_refused};
use super::{get, post, serving_state};
use actix_web::test::TestRequest;
use serde_json::json;
use std::time::Duration;

#[actix_web::test]
async fn texts_and_messages_become_ids_and_back() {
    let state = chat_state().await;
    let body = json!({"prompt": "abc", "return_token_strs": true});
    let tokens = post(&state, "/tokenize", body).await.json();
    let expected = json!({"count": 3, "max_model_len": 128, "tokens": [1, 2, 3], "token_strs": ["a", "b", "c"]});
    assert_eq!(tokens, expected);
    let messages =
        json!([{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}]);
    let body = json!({"messages": messages, "model": "sim", "add_generation_prompt": false});
    let tokens = post(&state, "/tokenize", body).await.json();
    assert_eq!(
        (&tokens["tokens"], &tokens["token_strs"]),
        (&json!([1, 2, 3]), &json!(null))
    );
    let back = post(&state, "/detokenize", json!({"tokens": [1, 2, 0]}))
        .await
        .json();
    assert_eq!(back, json!({"prompt": "ab<end>"}));
}

#[actix_web::test]
async fn what_is_wrong_is_told_in_the_dialect_s_shape() {
    let state = chat_state().await;
    for (path, body, status, word) in [
        ("/detokenize", json!({"tokens": [4711]}), 400, "tokens"),
        ("/detokenize", json!({"tokens": [-1]}), 400, "tokens"),
        ("/detokenize", json!({}), 400, "tokens"),
        (
            "/detokenize",
            json!({"tokens": [1], "model": "other"}),
            404,
            "other",
        ),
        (
            "/tokenize",
            json!({"prompt": "a", "model": "other"}),
            404,
            "other",
        ),
        (
            "/tokenize",
            json!({"prompt": "a", "messages": []}),
            400,
            "prompt",
        ),
        (
            "/tokenize",
            json!({"messages": [{"role": "user", "content": "a"}], "chat_template": "x"}),
            400,
            "chat_template",
        ),
    ] {
        check_refused(&post(&state, path, body).await, status, word);
    }
}

#[actix_web::test]
async fn the_tokenizer_and_the_server_describe_themselves() {
    let state = serving_state(Duration::ZERO).await;
    let info = get(&state, "/tokenizer_info").await.json();
    assert_eq!(
        (&info["eos_token"], &info["model_max_length"]),
        (&json!("<end>"), &json!(128))
    );
    assert!(info["chat_template"].is_null());
    let info = get(&chat_state().await, "/tokenizer_info").await.json();
    assert!(
        info["chat_template"]
            .as_str()
            .is_some_and(|source| source.contains("for m in messages"))
    );
    assert_eq!(
        get(&state, "/version").await.json(),
        json!({"version": env!("CARGO_PKG_VERSION")})
    );
    assert_eq!(get(&state, "/load").await.json(), json!({"server_load": 0}));
    assert_eq!(
        super::call(&state, TestRequest::post().uri("/ping"))
            .await
            .status,
        200
    );
}
