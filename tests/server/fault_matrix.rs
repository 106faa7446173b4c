//! One fault after the other against the real process: what a client sees, what an operator sees. The rows of docs/reliability.md name
//! these tests; more of them are in `faults.rs`, `isolation.rs`, `replay.rs`, `operations.rs` and `load.rs`.

use crate::http::{completion_stream, get, open, post, read_answer};
use crate::process::{Server, free_port, ropeteam, signal, tiny};
use serde_json::{Value, json};
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn stream(seed: u64, tokens: u32) -> Value {
    json!({"prompt": "abcdefghij", "max_tokens": tokens, "seed": seed, "temperature": 1.0, "ignore_eos": true,
        "stream": true})
}

fn answer(server: &Server, body: &Value) -> (String, String) {
    completion_stream(&post(server.port, "/v1/completions", body))
}

/// The first device, as the management port shows it.
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
fn a_step_that_hangs_costs_its_thread_and_the_streams_go_on() {
    let wanted = answer(&Server::start("llama", &[]), &stream(1, 30));
    let hang = ["--debug-fault-at-step", "5", "--debug-fault", "hang"];
    let server = Server::start(
        "llama",
        &[&hang[..], &["--step-timeout-ms", "700"]].concat(),
    );
    assert_eq!(answer(&server, &stream(1, 30)), wanted);
    assert_eq!(server.restarts(), 1.0);
}

#[test]
fn a_crash_in_a_device_on_a_thread_ends_the_server() {
    let crash = ["--debug-fault-at-step", "5", "--debug-fault", "crash"];
    let mut server = Server::start("llama", &crash);
    let mut running = open(server.port, "/v1/completions", &stream(1, 30));
    let status = server.wait(Duration::from_secs(30));
    assert_eq!(status.signal(), Some(6), "{status}");
    let mut told = Vec::new();
    let _ = running.read_to_end(&mut told);
    let told = String::from_utf8_lossy(&told);
    assert!(!told.contains("[DONE]"), "no end is pretended: {told}");
}

#[test]
fn a_slow_step_is_waited_for() {
    let wanted = answer(&Server::start("llama", &[]), &stream(1, 8));
    let server = Server::start(
        "llama",
        &["--debug-step-delay-ms", "300", "--step-timeout-ms", "20000"],
    );
    assert_eq!(answer(&server, &stream(1, 8)), wanted);
    assert_eq!(server.restarts(), 0.0);
}

#[test]
fn a_pool_that_is_too_small_for_all_makes_some_wait_and_changes_nothing() {
    let alone = Server::start("llama", &[]);
    let wanted: Vec<_> = (0..6).map(|n| answer(&alone, &stream(n, 60))).collect();
    // Five blocks of 16 tokens for each sequence.
    let server = Server::start(
        "llama",
        &["--kv-blocks", "12", "--debug-step-delay-ms", "2"],
    );
    let running: Vec<_> = (0..6)
        .map(|n| open(server.port, "/v1/completions", &stream(n, 60)))
        .collect();
    let found: Vec<_> = running
        .into_iter()
        .map(|answer| completion_stream(&read_answer(answer)))
        .collect();
    assert_eq!(found, wanted);
}

#[test]
fn kills_at_random_times_under_64_streams_change_no_byte() {
    let alone = Server::start("llama", &[]);
    let begin = |server: &Server| -> Vec<TcpStream> {
        let streams = (0..64).map(|n| open(server.port, "/v1/completions", &stream(n, 60)));
        streams.collect()
    };
    let end = |streams: Vec<TcpStream>| -> Vec<_> {
        let texts = streams
            .into_iter()
            .map(|answer| completion_stream(&read_answer(answer)));
        texts.collect()
    };
    let wanted = end(begin(&alone));
    let flags = ["--isolation", "process", "--debug-step-delay-ms", "30"];
    let server = Server::start(
        "llama",
        &[&flags[..], &["--restart-budget", "100"]].concat(),
    );
    let streams = begin(&server);
    let (mut killed, mut random) = (None, 12345u64);
    for _ in 0..4 {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        std::thread::sleep(Duration::from_millis(100 + (random >> 33) % 400));
        let pid = server.device_process(killed);
        signal("KILL", pid);
        killed = Some(pid);
    }
    assert_eq!(end(streams), wanted);
    let restarts = server.restarts();
    assert!(restarts >= 3.0, "{restarts}");
}

#[test]
fn a_device_that_is_given_up_is_told_and_the_other_one_carries_the_load() {
    let management = free_port();
    let port = management.to_string();
    let flags = [
        "--isolation",
        "process",
        "--device-count",
        "2",
        "--management-port",
        &port,
    ];
    let given_up = ["--restart-budget", "0", "--restart-trial-ms", "none"];
    let server = Server::start("llama", &[&flags[..], &given_up].concat());
    wait_until("both are up", || {
        (0..2).all(|n| device(management, n)["state"] == "up")
    });
    let wanted = answer(&server, &stream(3, 30));
    signal("KILL", server.device_processes()[0]);
    let state = |wanted: &'static str| (0..2).any(|n| device(management, n)["state"] == wanted);
    wait_until("one is given up", || state("given_up"));
    assert_eq!(answer(&server, &stream(3, 30)), wanted);
    assert_eq!(get(server.port, "/health").status, 200);
    signal("KILL", server.device_process(None));
    wait_until("the other one too", || !state("up"));
    let refused = post(server.port, "/v1/completions", &stream(3, 30));
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert_eq!(get(server.port, "/health").status, 503);
}

#[test]
fn without_a_device_requests_wait_for_the_trial_or_their_deadline() {
    let flags = ["--isolation", "process", "--restart-budget", "0"];
    let patient = ["--restart-trial-ms", "2500", "--queue-timeout-ms", "1000"];
    let server = Server::start("llama", &[&flags[..], &patient].concat());
    let wanted = answer(&server, &stream(3, 30));
    signal("KILL", server.device_process(None));
    wait_until("it is given up", || {
        get(server.port, "/health").status == 503
    });
    let refused = post(server.port, "/v1/completions", &stream(3, 30));
    assert!(
        refused.status >= 429,
        "{}: {}",
        refused.status,
        refused.body
    );
    wait_until("the trial succeeds", || {
        get(server.port, "/health").status == 200
    });
    assert_eq!(answer(&server, &stream(3, 30)), wanted);
}

#[test]
fn a_full_disk_behind_the_logs_costs_log_lines_and_nothing_else() {
    let wanted = answer(&Server::start("llama", &[]), &stream(1, 20));
    let full = || {
        Stdio::from(
            std::fs::File::options()
                .write(true)
                .open("/dev/full")
                .expect("/dev/full"),
        )
    };
    let port = free_port();
    let mut child = ropeteam()
        .args([
            "serve",
            "--log-level",
            "debug",
            "--request-log-file",
            "/dev/full",
        ])
        .args([
            "--port",
            &port.to_string(),
            "--isolation",
            "process",
            "--model",
        ])
        .arg(tiny("llama"))
        .stdout(full())
        .stderr(full())
        .spawn()
        .expect("the server starts");
    wait_until("it is ready", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok() && get(port, "/health").status == 200
    });
    for _ in 0..3 {
        let found = completion_stream(&post(port, "/v1/completions", &stream(1, 20)));
        assert_eq!(found, wanted);
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

#[test]
fn without_file_descriptors_new_clients_wait_and_running_streams_go_on() {
    let wanted = answer(&Server::start("llama", &[]), &stream(1, 60));
    let flags = ["--debug-step-delay-ms", "20", "--isolation", "process"];
    let server = Server::start_limited("ulimit -n 96", &flags);
    let device = server.device_process(None);
    let running = open(server.port, "/v1/completions", &stream(1, 60));
    server.wait_metric("ropeteam_requests_running", 1.0);
    let crowd: Vec<_> = (0..120)
        .map(|_| TcpStream::connect(("127.0.0.1", server.port)).expect("the backlog takes it"))
        .collect();
    // Those that a device needs to start anew were kept for it.
    signal("KILL", device);
    assert_eq!(completion_stream(&read_answer(running)), wanted);
    assert_ne!(server.device_process(Some(device)), device);
    drop(crowd);
    assert_eq!(answer(&server, &stream(1, 60)), wanted);
}

#[test]
fn a_device_that_hangs_is_told_by_the_deep_probe_before_its_time_is_up() {
    let hang = ["--debug-fault-at-step", "1", "--debug-fault", "hang"];
    let server = Server::start("llama", &hang);
    let asked = Instant::now();
    assert_eq!(get(server.port, "/health/deep").status, 503);
    assert!(asked.elapsed() < Duration::from_secs(30));
    assert_eq!(server.restarts(), 0.0);
}

#[test]
fn a_second_sigterm_ends_the_server_at_once() {
    let mut server = Server::start(
        "llama",
        &["--debug-step-delay-ms", "50", "--isolation", "process"],
    );
    let _running = open(server.port, "/v1/completions", &stream(1, 400));
    server.wait_metric("ropeteam_requests_running", 1.0);
    server.terminate();
    std::thread::sleep(Duration::from_millis(100));
    server.terminate();
    assert_eq!(server.wait(Duration::from_secs(10)).code(), Some(7));
}
