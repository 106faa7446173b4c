//! `/v1/embeddings`.

use super::openai::{check_refused, state};
use super::post;
use crate::http::state::AppState;
use actix_web::web::Data;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const PATH: &str = "/v1/embeddings";

async fn vectors(state: &Data<AppState>, body: Value) -> Vec<Vec<f64>> {
    let json = post(state, PATH, body).await.json();
    let data = json["data"].as_array().unwrap_or_else(|| panic!("{json}"));
    let numbers = |entry: &Value| {
        let list = entry["embedding"].as_array().expect("a list");
        list.iter().map(|n| n.as_f64().expect("a number")).collect()
    };
    data.iter().map(numbers).collect()
}

#[actix_web::test]
async fn every_form_of_an_input_gives_the_same_vector() {
    let state = state().await;
    let one = vectors(&state, json!({"model": "sim", "input": "abc"})).await;
    let length: f64 = one[0].iter().map(|v| v * v).sum();
    assert!(one.len() == 1 && one[0].len() == 16 && (length - 1.0).abs() < 1e-5);
    let many = vectors(&state, json!({"input": ["xyz", "abc"]})).await;
    assert_eq!(many[1], one[0]);
    assert_ne!(many[0], one[0]);
    assert_eq!(vectors(&state, json!({"input": [1, 2, 3]})).await, one);
    assert_eq!(
        vectors(&state, json!({"input": [[1, 2, 3], [4]]})).await[0],
        one[0]
    );
    let cut = json!({"input": "zzzabc", "truncate_prompt_tokens": 3, "dimensions": 16});
    assert_eq!(vectors(&state, cut).await, one);
    let raw = vectors(&state, json!({"input": "abc", "normalize": false})).await;
    let ratio = raw[0][0] / one[0][0];
    assert!(
        raw[0]
            .iter()
            .zip(&one[0])
            .all(|(r, o)| (r / o - ratio).abs() < 1e-3)
    );
}

#[actix_web::test]
async fn base64_holds_the_very_numbers_and_usage_counts_them_all() {
    let state = state().await;
    let body = json!({"input": ["abc", "de"], "encoding_format": "base64", "user": "u"});
    let json = post(&state, PATH, body).await.json();
    assert_eq!(json["usage"]["prompt_tokens"], 5);
    assert_eq!(json["usage"]["total_tokens"], 5);
    assert_eq!(
        (&json["object"], &json["data"][1]["index"]),
        (&json!("list"), &json!(1))
    );
    let bytes = STANDARD
        .decode(json["data"][0]["embedding"].as_str().unwrap())
        .unwrap();
    let words = bytes.chunks_exact(4);
    let numbers = words.map(|w| f32::from_le_bytes([w[0], w[1], w[2], w[3]]));
    let plain = vectors(&state, json!({"input": "abc"})).await;
    assert!(plain[0].iter().map(|&v| v as f32).eq(numbers));
}

#[actix_web::test]
async fn a_list_longer_than_the_queue_is_served_in_turn() {
    let state = state().await;
    let inputs: Vec<String> = (0..600)
        .map(|i| "abcdefgh"[..1 + i % 8].to_owned())
        .collect();
    let all = vectors(&state, json!({"input": inputs})).await;
    assert_eq!(all.len(), 600);
    assert_eq!(all[3], all[11]);
    assert_ne!(all[3], all[4]);
}

#[actix_web::test]
async fn what_is_wrong_is_named() {
    let state = state().await;
    for (body, status, word) in [
        (json!({}), 400, "input"),
        (json!({"input": ""}), 400, "input"),
        (json!({"input": []}), 400, "input"),
        (json!({"input": ["a", ""]}), 400, "input"),
        (json!({"input": [[]]}), 400, "input"),
        (json!({"input": [9999]}), 400, "input"),
        (json!({"input": 7}), 400, "input"),
        (json!({"input": "a".repeat(300)}), 400, "tokens"),
        (json!({"input": "a", "dimensions": 8}), 400, "dimensions"),
        (
            json!({"input": "a", "encoding_format": "hex"}),
            400,
            "encoding_format",
        ),
        (json!({"input": "a", "model": "other"}), 404, "other"),
        (
            json!({"input": "a", "embed_dtype": "float16"}),
            400,
            "embed_dtype",
        ),
        (
            json!({"input": "a", "truncate_prompt_tokens": 0}),
            400,
            "truncate_prompt_tokens",
        ),
    ] {
        check_refused(&post(&state, PATH, body).await, status, word);
    }
}
