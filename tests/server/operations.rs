//! What an operator does: start it wrong, look at it, stop it.

use crate::http::{completion_stream, get, open, post, read_answer};
use crate::process::{Server, free_port, ropeteam, tiny};
use serde_json::json;
use std::net::TcpListener;
use std::time::Duration;

#[test]
fn sigterm_finishes_what_runs_and_exits_with_zero() {
    let mut server = Server::start("llama", &["--debug-step-delay-ms", "10"]);
    let body = json!({"model": "m", "prompt": "abcdefghij", "max_tokens": 300, "temperature": 0,
        "ignore_eos": true, "stream": true});
    let running = open(server.port, "/v1/completions", &body);
    server.wait_metric("ropeteam_requests_running", 1.0);
    server.terminate();
    let (_, finish) = completion_stream(&read_answer(running));
    assert_eq!(finish, "length");
    assert!(server.wait(Duration::from_secs(30)).success());
}

#[test]
fn a_drain_that_takes_too_long_is_cut_and_says_so_by_its_exit_code() {
    let flags = ["--debug-step-delay-ms", "50", "--drain-timeout-ms", "300"];
    let mut server = Server::start("llama", &flags);
    let body = json!({"model": "m", "prompt": "abcdefghij", "max_tokens": 400, "ignore_eos": true});
    let _running = open(server.port, "/v1/completions", &body);
    server.wait_metric("ropeteam_requests_running", 1.0);
    server.terminate();
    // To its end the answer would take 20 s.
    assert_eq!(server.wait(Duration::from_secs(15)).code(), Some(6));
}

#[test]
fn health_metrics_and_devices_are_served_on_the_management_port() {
    let port = free_port();
    let server = Server::start("llama", &["--management-port", &port.to_string()]);
    let body = json!({"model": "m", "prompt": "abc", "max_tokens": 3});
    assert_eq!(post(server.port, "/v1/completions", &body).status, 200);
    assert_eq!(get(port, "/health").status, 200);
    let metrics = get(port, "/metrics").body;
    for name in [
        "ropeteam_generated_tokens_total",
        "vllm:num_requests_running",
        "batch",
    ] {
        assert!(metrics.contains(name), "no {name} in\n{metrics}");
    }
    let devices = get(port, "/v1/devices");
    assert_eq!(devices.status, 200);
    assert!(devices.body.contains("\"epoch\""), "{}", devices.body);
}

#[test]
fn a_port_in_use_is_told_before_anything_is_loaded() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port();
    let output = ropeteam()
        .args(["serve", "--port", &port.to_string(), "--model"])
        .arg(tiny("llama"))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(4));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains(&port.to_string()) && errors.contains("in use"),
        "{errors}"
    );
}

#[test]
fn a_missing_model_is_told_by_its_path() {
    let output = ropeteam()
        .args([
            "serve",
            "--port",
            &free_port().to_string(),
            "--model",
            "./no/such/model",
        ])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(3));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("no/such/model") && !errors.contains("panicked"),
        "{errors}"
    );
}

#[test]
fn a_closed_standard_error_costs_log_lines_and_nothing_else() {
    let server = Server::start_deaf("llama");
    let body = json!({"model": "m", "prompt": "abc", "max_tokens": 3, "temperature": 0});
    let before = post(server.port, "/v1/completions", &body);
    let management = server.management.expect("a management port");
    let restart = post(management, "/v1/devices/0/restart", &json!({}));
    assert_eq!(restart.status, 202, "{}", restart.body);
    let after = post(server.port, "/v1/completions", &body);
    assert_eq!(after.status, 200, "{}", after.body);
    assert_eq!(after.json()["choices"], before.json()["choices"]);
}

#[test]
fn a_full_disk_behind_standard_output_is_an_error_of_one_line() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    let output = ropeteam()
        .args(["config", "show"])
        .stdout(full)
        .stderr(std::process::Stdio::piped())
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("standard output") && errors.lines().count() == 1,
        "{errors}"
    );
}
