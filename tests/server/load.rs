//! Many at once: 64 streams run without an error, and a full queue says so at once.

use crate::http::{Answer, completion_stream, open, post, read_answer};
use crate::process::Server;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Time of a step of a server that is to stay busy.
const STEP_MS: &str = "20";
/// What a [`long`] answer takes at least with such steps: a refusal that comes sooner waited for nobody's end.
const LONG: Duration = Duration::from_millis(20 * 400);

fn request(stream: bool) -> Value {
    json!({"model": "m", "prompt": "abcdefghij", "max_tokens": 60, "temperature": 0, "ignore_eos": true,
        "stream": stream})
}

fn long() -> Value {
    let mut request = request(true);
    request["max_tokens"] = 400.into();
    request
}

/// Asks a server that is busy with a long answer; fails if the answer waited for the end of that.
fn before_the_long_one_ends(server: &Server, body: &Value) -> Answer {
    let asked = Instant::now();
    let answer = post(server.port, "/v1/completions", body);
    let waited = asked.elapsed();
    assert!(waited < LONG, "answered only after {waited:?}");
    assert_eq!(server.metric("ropeteam_requests_running"), 1.0);
    answer
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
        STEP_MS,
    ];
    let server = Server::start("llama", &flags);
    let _running = open(server.port, "/v1/completions", &long());
    server.wait_metric("ropeteam_requests_running", 1.0);
    let _queued = open(server.port, "/v1/completions", &long());
    server.wait_metric("ropeteam_requests_waiting", 1.0);

    let refused = before_the_long_one_ends(&server, &request(true));
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
        STEP_MS,
    ];
    let server = Server::start("llama", &flags);
    let _running = open(server.port, "/v1/completions", &long());
    server.wait_metric("ropeteam_requests_running", 1.0);
    let asked = Instant::now();
    let refused = before_the_long_one_ends(&server, &request(false));
    assert!(asked.elapsed() >= Duration::from_millis(200));
    assert!(
        [429, 503].contains(&refused.status),
        "{} {}",
        refused.status,
        refused.body
    );
}

#[test]
fn more_sequences_than_could_ever_wait_are_refused_with_the_numbers() {
    let server = Server::start("llama", &["--max-queue", "3"]);
    let fits = json!({"model": "m", "prompt": ["a", "b", "c"], "max_tokens": 2});
    let answer = post(server.port, "/v1/completions", &fits);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let list = json!({"model": "m", "prompt": ["a", "b", "c", "d"], "max_tokens": 2});
    let choices = json!({"model": "m", "prompt": "a", "n": 4, "max_tokens": 2});
    for (field, body) in [("prompt", list), ("n", choices)] {
        let refused = post(server.port, "/v1/completions", &body);
        assert_eq!(refused.status, 400, "{}", refused.body);
        let message = &refused.json()["error"]["message"];
        assert_eq!(
            message.as_str(),
            Some(&*format!(
                "{field} asks for 4 sequences; this server takes 3 at once"
            ))
        );
    }
}

#[test]
fn a_list_that_is_refused_in_part_is_refused_at_once() {
    let flags = [
        "--max-running",
        "1",
        "--max-queue",
        "3",
        "--debug-step-delay-ms",
        STEP_MS,
    ];
    let server = Server::start("llama", &flags);
    let _running = open(server.port, "/v1/completions", &long());
    server.wait_metric("ropeteam_requests_running", 1.0);
    let _queued = open(server.port, "/v1/completions", &long());
    server.wait_metric("ropeteam_requests_waiting", 1.0);
    let list = json!({"model": "m", "prompt": ["a", "b", "c"], "max_tokens": 60});
    let refused = before_the_long_one_ends(&server, &list);
    assert_eq!(refused.status, 429, "{}", refused.body);
    server.wait_metric("ropeteam_requests_waiting", 1.0);
}
