//! What operators do over the management port of a real server.

use crate::http::{get, open, post, read_answer, send};
use crate::process::{Server, free_port};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::Duration;

/// A server whose steps take 20 ms, and its management port.
fn start(flags: &[&str]) -> (Server, u16) {
    let port = free_port();
    let text = port.to_string();
    let mut all = vec!["--management-port", &text, "--debug-step-delay-ms", "20"];
    all.extend(flags);
    (Server::start("llama", &all), port)
}

fn long() -> Value {
    json!({"model": "m", "prompt": "abcdefghij", "max_tokens": 400, "temperature": 0, "ignore_eos": true, "stream": true})
}

#[test]
fn limits_change_while_the_server_runs_and_wrong_ones_are_named() {
    let (server, port) = start(&["--max-running", "1", "--max-queue", "100"]);
    let patch = |body: Value| send(port, "PATCH", "/v1/config", &body);
    let wrong = patch(json!({"max_queue": 3, "queue_timeout_ms": "soon"}));
    assert_eq!(wrong.status, 400);
    let message = wrong.json()["error"]["message"].clone();
    assert!(
        message
            .as_str()
            .is_some_and(|m| m.starts_with("queue_timeout_ms: \"soon\" is not a whole number")),
        "{message}"
    );
    assert_eq!(wrong.json()["error"]["param"], "queue_timeout_ms");
    let fixed = patch(json!({"port": 80}));
    assert!(
        fixed
            .body
            .contains("cannot be changed while the server runs"),
        "{}",
        fixed.body
    );
    let large = patch(json!({"max_decode_batch_size": 2000, "max_running": 2000}));
    assert!(large.body.contains("2000 is more than 1"), "{}", large.body);

    let changed = patch(json!({"max_queue": 1, "log_level": "debug"}));
    assert_eq!(changed.status, 200, "{}", changed.body);
    assert_eq!(
        changed.json()["changed"],
        json!({"max_queue": {"from": 100, "to": 1}, "log_level": {"from": "info", "to": "debug"}})
    );
    // All or nothing: the wrong change above changed nothing.
    let _running = open(server.port, "/v1/completions", &long());
    server.wait_metric("ropeteam_requests_running", 1.0);
    let _queued = open(server.port, "/v1/completions", &long());
    server.wait_metric("ropeteam_requests_waiting", 1.0);
    assert_eq!(post(server.port, "/v1/completions", &long()).status, 429);
}

#[test]
fn events_are_streamed_and_an_ended_request_is_told() {
    let (server, port) = start(&[]);
    let feed = crate::http::send_raw(
        port,
        b"GET /v1/events?names=admitted,managed,finished HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
    let running = open(server.port, "/v1/completions", &long());
    server.wait_metric("ropeteam_requests_running", 1.0);
    let list = get(port, "/v1/requests").json();
    let id = list["requests"][0]["request"]
        .as_str()
        .expect("an id")
        .to_owned();
    let ended = send(port, "DELETE", &format!("/v1/requests/{id}"), &json!({}));
    assert_eq!(ended.status, 200, "{}", ended.body);
    // As an event of the stream, or instead of it when there was no token yet.
    let answer = read_answer(running).body;
    assert!(answer.contains("ended by an operator"), "{answer}");
    let mut seen = String::new();
    let mut feed = feed;
    while !seen.contains("event: finished") {
        let mut some = [0; 512];
        let count = feed.read(&mut some).expect("events within the time limit");
        assert!(count > 0, "the stream ended: {seen}");
        seen.push_str(&String::from_utf8_lossy(&some[..count]));
    }
    for name in [
        "event: admitted\ndata: {",
        "event: managed\ndata: {",
        "\"cancelled\"",
    ] {
        assert!(seen.contains(name), "{name} in {seen}");
    }
    assert!(!seen.contains("step_done"));
    server.wait_metric("ropeteam_requests_running", 0.0);
}

#[test]
fn a_drain_with_exit_ends_the_process_as_a_signal_does() {
    let (mut server, port) = start(&[]);
    let mut short = long();
    short["max_tokens"] = 30.into();
    let mut running = open(server.port, "/v1/completions", &short);
    running.flush().expect("sent");
    server.wait_metric("ropeteam_requests_running", 1.0);
    let drain = post(port, "/v1/drain", &json!({"exit": true}));
    assert_eq!(drain.status, 202, "{}", drain.body);
    let (_, finish) = crate::http::completion_stream(&read_answer(running));
    assert_eq!(finish, "length");
    assert_eq!(server.wait(Duration::from_secs(30)).code(), Some(0));
}
