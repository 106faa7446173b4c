//! What operators do to a server that is busy, with its devices on threads and in processes: no stream notices.

use crate::http::{get, post, send, send_raw};
use crate::process::{Server, free_port};
use crate::streams::{begin, end, stream};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

/// A server with a management port whose steps take 15 ms.
fn start(isolation: &str, flags: &[&str]) -> (Server, u16) {
    let port = free_port();
    let text = port.to_string();
    let mut all = vec!["--management-port", &text, "--isolation", isolation];
    all.extend(["--debug-step-delay-ms", "15"]);
    all.extend(flags);
    (Server::start("llama", &all), port)
}

fn device(management: u16, number: usize) -> Value {
    get(management, "/v1/devices").json()["devices"][number].clone()
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn devices_are_drained_restarted_and_resumed_and_no_stream_notices() {
    let wanted = end(begin(&Server::start("llama", &[]), 12, 100));
    for isolation in ["thread", "process"] {
        let (server, management) = start(isolation, &["--device-count", "2"]);
        let ask = |call: &str| {
            let answer = post(management, &format!("/v1/devices/{call}"), &json!({}));
            assert_eq!(answer.status, 202, "{}", answer.body);
        };
        let is = |number, state: &str, epoch: u64| {
            let device = device(management, number);
            device["state"] == state && device["epoch"] == epoch
        };
        let running = |number| device(management, number)["running"].as_u64();
        wait_until("both are up", || is(0, "up", 1) && is(1, "up", 1));
        let streams = begin(&server, 12, 100);
        wait_until("both work", || running(0) > Some(2) && running(1) > Some(2));
        // Held back and started anew it has nothing more to do: its streams went to the other one.
        ask("0/drain");
        ask("0/restart");
        wait_until("the first one is back", || is(0, "up", 2));
        wait_until("all are on the second", || running(1) == Some(12));
        assert_eq!(running(0), Some(0), "{isolation}");
        ask("0/resume");
        ask("1/drain");
        ask("1/restart");
        wait_until("all are on the first", || running(0) == Some(12));
        wait_until("the second one is back", || is(1, "up", 2));
        assert_eq!(end(streams), wanted, "{isolation}");
        assert_eq!(server.restarts(), 2.0, "{isolation}");
    }
}

/// The next steps of some life: sequences that decode in them.
fn steps(management: u16, epoch: u64) -> impl Iterator<Item = u64> {
    let feed = b"GET /v1/events?names=step_done HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let lines = BufReader::new(send_raw(management, feed)).lines();
    lines.filter_map(move |line| {
        let line = line.expect("events within the time limit");
        let event: Value = serde_json::from_str(line.strip_prefix("data: ")?).expect("JSON");
        (event["epoch"] == epoch).then(|| event["decode_seqs"].as_u64().expect("a number"))
    })
}

#[test]
fn limits_reach_devices_at_once_and_hold_for_their_next_lives() {
    let wanted = end(begin(&Server::start("llama", &[]), 6, 60));
    for isolation in ["thread", "process"] {
        let (server, management) = start(isolation, &[]);
        let patch = |body: Value| {
            let answer = send(management, "PATCH", "/v1/config", &body);
            assert_eq!(answer.status, 200, "{}", answer.body);
        };
        // Processes keep the level they were started with, and a change that does not reach them is refused.
        let level = send(
            management,
            "PATCH",
            "/v1/config",
            &json!({"log_level": "warn"}),
        );
        let expected = if isolation == "thread" { 200 } else { 400 };
        assert_eq!(level.status, expected, "{}", level.body);
        let streams = begin(&server, 6, 60);
        assert!(steps(management, 1).any(|seqs| seqs == 6), "{isolation}");
        patch(json!({"max_decode_batch_size": 2}));
        let mut next = steps(management, 1);
        assert!(next.any(|seqs| seqs == 2), "{isolation}");
        assert!(next.take(5).all(|seqs| seqs <= 2), "{isolation}");
        let restart = post(management, "/v1/devices/0/restart", &json!({}));
        assert_eq!(restart.status, 202, "{}", restart.body);
        let mut next = steps(management, 2);
        assert!(next.any(|seqs| seqs == 2), "{isolation}");
        assert!(next.take(5).all(|seqs| seqs <= 2), "{isolation}");
        patch(json!({"max_decode_batch_size": 6}));
        assert!(steps(management, 2).any(|seqs| seqs > 2), "{isolation}");
        assert_eq!(end(streams), wanted, "{isolation}");
    }
}

#[test]
fn a_draining_server_is_not_ready_and_refuses_with_a_time_to_come_again() {
    for isolation in ["thread", "process"] {
        let (mut server, management) = start(isolation, &[]);
        let running = begin(&server, 3, 150);
        server.wait_metric("ropeteam_requests_running", 3.0);
        server.terminate();
        wait_until("it is not ready", || {
            get(server.port, "/health").status == 503
        });
        let refused = post(server.port, "/v1/completions", &stream(1, 5));
        assert_eq!(refused.status, 503, "{}", refused.body);
        let seconds = refused.header("retry-after").map(str::parse::<u64>);
        assert!(matches!(seconds, Some(Ok(1..))), "{seconds:?}");
        // Alive all the same: an orchestrator must not cut what runs.
        assert_eq!(get(management, "/health/live").status, 200);
        for (_, finish) in end(running) {
            assert_eq!(finish, "length");
        }
        assert_eq!(server.wait(Duration::from_secs(30)).code(), Some(0));
    }
}
