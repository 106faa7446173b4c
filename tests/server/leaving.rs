//! Clients that leave: whatever they held is free within one step.

use crate::http::{open, post};
use crate::process::Server;
use serde_json::{Value, json};
use std::io::Read;

fn long(stream: bool) -> Value {
    json!({"model": "m", "prompt": "abcdefghij", "max_tokens": 400, "temperature": 0, "ignore_eos": true,
        "stream": stream})
}

fn assert_all_is_free(server: &Server, blocks_free: f64, cancelled: f64) {
    server.wait_metric("ropeteam_requests_running", 0.0);
    server.wait_metric("ropeteam_requests_waiting", 0.0);
    server.wait_metric("ropeteam_kv_blocks_free", blocks_free);
    server.wait_metric("ropeteam_requests_cancelled_total", cancelled);
}

#[test]
fn a_client_that_leaves_its_stream_frees_its_blocks() {
    let server = Server::start("llama", &["--debug-step-delay-ms", "20"]);
    let blocks_free = server.metric("ropeteam_kv_blocks_free");
    let streams: Vec<_> = (0..8)
        .map(|_| open(server.port, "/v1/completions", &long(true)))
        .collect();
    for mut stream in &streams {
        let mut some = [0; 600];
        stream.read_exact(&mut some).expect("the first events");
    }
    drop(streams);
    assert_all_is_free(&server, blocks_free, 8.0);
}

#[test]
fn a_client_that_leaves_before_its_answer_frees_its_blocks() {
    let server = Server::start("llama", &["--debug-step-delay-ms", "20"]);
    let blocks_free = server.metric("ropeteam_kv_blocks_free");
    let waiting: Vec<_> = (0..4)
        .map(|_| open(server.port, "/v1/completions", &long(false)))
        .collect();
    server.wait_metric("ropeteam_requests_running", 4.0);
    drop(waiting);
    assert_all_is_free(&server, blocks_free, 4.0);
}

#[test]
fn a_client_that_leaves_the_queue_is_forgotten() {
    let server = Server::start(
        "llama",
        &["--max-running", "1", "--debug-step-delay-ms", "20"],
    );
    let blocks_free = server.metric("ropeteam_kv_blocks_free");
    let running = open(server.port, "/v1/completions", &long(false));
    server.wait_metric("ropeteam_requests_running", 1.0);
    let queued = open(server.port, "/v1/completions", &long(false));
    server.wait_metric("ropeteam_requests_waiting", 1.0);
    drop(queued);
    server.wait_metric("ropeteam_requests_waiting", 0.0);
    drop(running);
    assert_all_is_free(&server, blocks_free, 2.0);
    let after = json!({"model": "m", "prompt": "x", "max_tokens": 2});
    assert_eq!(post(server.port, "/v1/completions", &after).status, 200);
}
