//! Bad input gets a clear error and costs nobody else anything.

use crate::http::{Answer, post, post_bytes};
use crate::process::Server;
use serde_json::json;

/// Checks the error and that the next request is fine.
fn check(server: &Server, answer: Answer, statuses: &[u16], word: &str) {
    assert!(
        statuses.contains(&answer.status),
        "{} {}",
        answer.status,
        answer.body
    );
    assert!(answer.body.contains(word), "no {word:?} in {}", answer.body);
    let canary = json!({"model": "m", "prompt": "abc", "max_tokens": 2, "temperature": 0});
    assert_eq!(post(server.port, "/v1/completions", &canary).status, 200);
}

#[test]
fn garbage_is_refused_by_name_and_the_next_request_is_fine() {
    let server = Server::start("llama", &[]);
    let garbage = vec![b'x'; 2 << 20];
    check(
        &server,
        post_bytes(server.port, "/v1/completions", &garbage),
        &[400, 413],
        "error",
    );
    check(
        &server,
        post_bytes(server.port, "/generate", &garbage),
        &[400, 413, 422],
        "error",
    );

    let deep = format!("{{\"model\":\"m\",\"prompt\":{}", "[".repeat(100_000));
    check(
        &server,
        post_bytes(server.port, "/v1/completions", deep.as_bytes()),
        &[400],
        "error",
    );

    let not_utf8 = b"{\"model\":\"m\",\"prompt\":\"\xff\xfe\"}";
    check(
        &server,
        post_bytes(server.port, "/v1/completions", not_utf8),
        &[400],
        "error",
    );

    for (field, value) in [
        ("temperature", "NaN"),
        ("temperature", "-1"),
        ("max_tokens", "-5"),
        ("max_tokens", "1e30"),
        ("top_p", "0"),
        ("n", "0"),
        ("stop", "[\"\"]"),
        ("logit_bias", "{\"x\": 1}"),
        ("seed", "\"seven\""),
        ("presence_penalty", "3"),
    ] {
        let body = format!("{{\"model\":\"m\",\"prompt\":\"abc\",\"{field}\":{value}}}");
        let word = if value == "NaN" { "error" } else { field };
        check(
            &server,
            post_bytes(server.port, "/v1/completions", body.as_bytes()),
            &[400],
            word,
        );
    }
    let tgi = json!({"inputs": "abc", "parameters": {"temperature": 0.0}});
    check(
        &server,
        post(server.port, "/generate", &tgi),
        &[422],
        "strictly positive",
    );
}

#[test]
fn token_ids_outside_the_vocabulary_are_refused() {
    let server = Server::start("llama", &[]);
    for prompt in [
        json!([1, 512]),
        json!([1, 4_000_000_000u32]),
        json!([-1]),
        json!([]),
    ] {
        let body = json!({"model": "m", "prompt": prompt, "max_tokens": 2});
        check(
            &server,
            post(server.port, "/v1/completions", &body),
            &[400],
            "error",
        );
    }
}

#[test]
fn a_prompt_that_can_never_fit_is_refused_with_the_numbers() {
    let server = Server::start("llama", &["--kv-blocks", "8", "--kv-block-size", "16"]);
    let body = json!({"model": "m", "prompt": "a ".repeat(400), "max_tokens": 2});
    check(
        &server,
        post(server.port, "/v1/completions", &body),
        &[400],
        "127",
    );
    let body = json!({"inputs": "a ".repeat(400), "parameters": {"max_new_tokens": 2}});
    check(
        &server,
        post(server.port, "/generate", &body),
        &[422],
        "127",
    );
}

#[test]
fn what_is_not_offered_is_refused_by_name() {
    let server = Server::start("llama", &[]);
    for (field, value) in [
        ("response_format", json!({"type": "structural_tag"})),
        ("tool_choice", json!("required")),
        ("use_beam_search", json!(true)),
        ("structured_outputs", json!({"structural_tag": {}})),
    ] {
        let mut body =
            json!({"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2});
        body[field] = value;
        check(
            &server,
            post(server.port, "/v1/chat/completions", &body),
            &[400],
            field,
        );
    }
    let tgi = json!({"inputs": "abc", "parameters": {"watermark": true}});
    check(
        &server,
        post(server.port, "/generate", &tgi),
        &[422],
        "watermark",
    );
}
