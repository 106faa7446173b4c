//! Many at once: 64 streams run without an error, and a full queue says so at once.

use crate::http::{completion_stream, open, post, read_answer};
use crate::process::Server;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn request(stream: bool) -> Value {
    json!({"model": "m", "prompt": "abcdefghij", "max_tokens": 60, "temperature": 0, "ignore_eos": true,
        "stream": stream})
}

#[test]
fn sixty_four_streams_run_without_an_error() {
    let server = Server::start("llama", &[]);
    let wanted =
        post(server.port, "/v1/completions", &request(false)).json()["choices"][0]["text"].clone();
    let streams: Vec<_> = (0..64)
        .map(|_| open(server.port, "/v1/completions", &request(true)))
        .collect();
    for stream in streams {
        let (text, finish) = completion_stream(&read_answer(stream));
        assert_eq!(
            (text.as_str(), finish.as_str()),
            (wanted.as_str().expect("text"), "length")
        );
    }
    server.wait_metric("ropeteam_requests_running", 0.0);
}

#[test]
fn a_full_queue_answers_at_once_with_retry_after() {
    let flags = [
        "--max-running",
        "1",
        "--max-queue",
        "1",
        "--debug-step-delay-ms",
        "20",
    ];
    let server = Server::start("llama", &flags);
    let _running = open(server.port, "/v1/completions", &request(true));
    server.wait_metric("ropeteam_requests_running", 1.0);
    let _queued = open(server.port, "/v1/completions", &request(true));
    server.wait_metric("ropeteam_requests_waiting", 1.0);

    let asked = Instant::now();
    let refused = post(server.port, "/v1/completions", &request(true));
    assert!(
        asked.elapsed() < Duration::from_millis(500),
        "refused only after {:?}",
        asked.elapsed()
    );
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(
        refused.json()["error"]["message"].is_string(),
        "{}",
        refused.body
    );
    let seconds: u64 = refused
        .header("retry-after")
        .and_then(|v| v.parse().ok())
        .expect("seconds");
    assert!((1..=120).contains(&seconds));

    let tgi = post(server.port, "/generate", &json!({"inputs": "abc"}));
    assert_eq!(tgi.status, 429);
    assert_eq!(
        tgi.json(),
        json!({"error": "Model is overloaded", "error_type": "overloaded"})
    );
    assert!(tgi.header("retry-after").is_some());
}

#[test]
fn waiting_too_long_in_the_queue_is_told() {
    let flags = [
        "--max-running",
        "1",
        "--queue-timeout-ms",
        "200",
        "--debug-step-delay-ms",
        "20",
    ];
    let server = Server::start("llama", &flags);
    let _running = open(server.port, "/v1/completions", &request(true));
    server.wait_metric("ropeteam_requests_running", 1.0);
    let asked = Instant::now();
    let refused = post(server.port, "/v1/completions", &request(false));
    assert!(
        (200..1500).contains(&asked.elapsed().as_millis()),
        "{:?}",
        asked.elapsed()
    );
    assert!(
        [429, 503].contains(&refused.status),
        "{} {}",
        refused.status,
        refused.body
    );
}
