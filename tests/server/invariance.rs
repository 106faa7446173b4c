//! Same request, same bytes: alone, in company, with any chunk size, after a prefix hit, after preemption, with guesses ahead, with
//! one thread or two.

use crate::http::{completion_stream, post};
use crate::process::Server;
use serde_json::{Value, json};

/// A few requests that differ in all that could leak from one to another.
fn requests() -> Vec<Value> {
    let prompts = ["abcdefghij", "The lighthouse", "0123456789 0123456789", "x"];
    let mut all = Vec::new();
    for (i, prompt) in prompts.iter().enumerate() {
        all.push(json!({"model": "m", "prompt": prompt, "max_tokens": 40, "temperature": 0, "ignore_eos": true}));
        all.push(json!({"model": "m", "prompt": prompt, "max_tokens": 40, "temperature": 1.1, "top_p": 0.95,
            "repetition_penalty": 1.1, "seed": i, "ignore_eos": true}));
    }
    all
}

fn text(server: &Server, request: &Value) -> String {
    let answer = post(server.port, "/v1/completions", request);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["choices"][0]["text"]
        .as_str()
        .expect("text")
        .to_owned()
}

fn texts_alone(server: &Server) -> Vec<String> {
    requests().iter().map(|r| text(server, r)).collect()
}

/// All requests `copies` times at once, each asked for as a stream.
fn texts_in_company(server: &Server, copies: usize) -> Vec<Vec<String>> {
    let requests = requests();
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..copies)
            .map(|_| {
                requests
                    .iter()
                    .map(|r| scope.spawn(move || streamed(server, r)))
                    .collect::<Vec<_>>()
            })
            .collect();
        handles
            .into_iter()
            .map(|hs| hs.into_iter().map(|h| h.join().expect("a text")).collect())
            .collect()
    })
}

fn streamed(server: &Server, request: &Value) -> String {
    let mut request = request.clone();
    request["stream"] = true.into();
    completion_stream(&post(server.port, "/v1/completions", &request)).0
}

fn assert_company_changes_nothing(server: &Server, alone: &[String], copies: usize) {
    for texts in texts_in_company(server, copies) {
        assert_eq!(texts, alone);
    }
}

#[test]
fn company_and_prefix_hits_change_no_byte() {
    let server = Server::start("llama", &[]);
    let alone = texts_alone(&server);
    assert_eq!(
        texts_alone(&server),
        alone,
        "the second time the prompts are in the prefix cache"
    );
    assert_company_changes_nothing(&server, &alone, 4);
}

#[test]
fn chunks_threads_and_static_batches_change_no_byte() {
    let reference = texts_alone(&Server::start("qwen3", &["--threads", "1"]));
    for flags in [
        &["--threads", "2", "--max-prefill-tokens", "5"][..],
        &["--prefix-cache", "off", "--kv-block-size", "32"],
        &["--continuous-batching", "false"],
        &[
            "--support-select-batch",
            "1",
            "--max-decode-batch-size",
            "3",
        ],
    ] {
        let server = Server::start("qwen3", flags);
        assert_eq!(texts_alone(&server), reference, "{flags:?}");
        assert_company_changes_nothing(&server, &reference, 2);
    }
}

#[test]
fn guessing_ahead_changes_no_byte() {
    let alone = texts_alone(&Server::start("llama", &[]));
    let server = Server::start("llama", &["--speculate", "ngram"]);
    assert_eq!(texts_alone(&server), alone);
    assert_company_changes_nothing(&server, &alone, 2);
    for metric in [
        "ropeteam_draft_tokens_total",
        "vllm:spec_decode_num_draft_tokens_total",
    ] {
        assert!(server.metric(metric) > 0.0, "else the test proves nothing");
    }
}

#[test]
fn preemption_changes_no_byte() {
    let alone = texts_alone(&Server::start("llama", &[]));
    let server = Server::start("llama", &["--kv-blocks", "12", "--kv-block-size", "16"]);
    assert_company_changes_nothing(&server, &alone, 2);
    assert!(
        server.metric("ropeteam_preemptions_total") > 0.0,
        "else the test proves nothing"
    );
}
