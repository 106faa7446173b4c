//! Devices in processes of their own: whatever ends one, the server lives, every stream goes on token for token, and no process is
//! left behind.

use crate::http::{completion_stream, open, post, read_answer};
use crate::process::{Server, ropeteam, runs, signal, tiny};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const ISOLATED: [&str; 2] = ["--isolation", "process"];

fn isolated(flags: &[&str]) -> Server {
    Server::start("llama", &[&ISOLATED, flags].concat())
}

/// A stream of 30 tokens.
fn stream() -> Value {
    json!({"prompt": "abcdefghij", "max_tokens": 30, "seed": 5, "temperature": 1.0, "ignore_eos": true,
        "stream": true})
}

fn undisturbed(body: &Value) -> (String, String) {
    let server = Server::start("llama", &[]);
    completion_stream(&post(server.port, "/v1/completions", body))
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_device_process_is_replaced_and_its_streams_go_on() {
    let wanted = undisturbed(&stream());
    let server = isolated(&["--debug-step-delay-ms", "50"]);
    for name in ["KILL", "SEGV", "ILL", "ABRT"] {
        let pid = server.device_process(None);
        let before = server.decoded();
        let running: Vec<_> = (0..8)
            .map(|_| open(server.port, "/v1/completions", &stream()))
            .collect();
        wait_until("the streams begin", || server.decoded() > before + 40.0);
        server.wait_metric("ropeteam_requests_running", 8.0);
        signal(name, pid);
        if name == "SEGV" {
            // The run-time library takes the first one from outside for a mistake; a fault of the program itself comes again.
            std::thread::sleep(Duration::from_millis(100));
            assert!(runs(pid), "one was enough");
            signal(name, pid);
        }
        for answer in running {
            assert_eq!(completion_stream(&read_answer(answer)), wanted, "{name}");
        }
        // Waited for: else it would be listed as well.
        assert_ne!(server.device_process(Some(pid)), pid);
    }
    assert_eq!(server.restarts(), 4.0);
}

#[test]
fn a_device_process_that_hangs_is_killed_and_replaced() {
    let wanted = undisturbed(&stream());
    let hang = ["--debug-fault-at-step", "9", "--debug-fault", "hang"];
    let server = isolated(&[&hang[..], &["--step-timeout-ms", "1000"]].concat());
    let stuck = server.device_process(None);
    let found = completion_stream(&post(server.port, "/v1/completions", &stream()));
    assert_eq!(found, wanted);
    assert_ne!(server.device_process(Some(stuck)), stuck);
    // Stopped from outside, it does not even read.
    let stopped = server.device_process(None);
    signal("STOP", stopped);
    let found = completion_stream(&post(server.port, "/v1/completions", &stream()));
    assert_eq!(found, wanted);
    assert!(!runs(stopped));
}

#[test]
fn an_idle_device_process_that_does_not_answer_is_replaced_before_anybody_needs_it() {
    let server = isolated(&["--step-timeout-ms", "1000"]);
    let stopped = server.device_process(None);
    // Idle and answering, it is left alone.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(server.device_processes(), [stopped]);
    signal("STOP", stopped);
    server.device_process(Some(stopped));
    assert_eq!(server.restarts(), 1.0);
    assert!(!runs(stopped));
}

#[test]
fn every_way_to_fail_is_survived_in_a_process() {
    let wanted = undisturbed(&stream());
    for fault in ["error", "panic", "crash"] {
        let server = isolated(&["--debug-fault-at-step", "7", "--debug-fault", fault]);
        let found = completion_stream(&post(server.port, "/v1/completions", &stream()));
        assert_eq!(found, wanted, "{fault}");
        assert_eq!(server.restarts(), 1.0, "{fault}");
    }
}

#[test]
fn structured_output_is_the_same_in_a_process_and_across_its_death() {
    let body = json!({"prompt": "A person:", "max_tokens": 120, "temperature": 1.0, "seed": 3, "n": 2,
        "guided_json": {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}},
            "required": ["age"], "additionalProperties": false}});
    let answer =
        |server: &Server| post(server.port, "/v1/completions", &body).json()["choices"].clone();
    let wanted = answer(&Server::start("llama", &[]));
    assert_eq!(answer(&isolated(&[])), wanted);
    let crash = ["--debug-fault-at-step", "6", "--debug-fault", "crash"];
    let server = isolated(&crash);
    assert_eq!(answer(&server), wanted);
    assert_eq!(server.restarts(), 1.0);
}

#[test]
fn a_device_process_ends_with_its_server_whichever_way_that_ends() {
    let mut server = isolated(&["--debug-step-delay-ms", "20"]);
    let device = server.device_process(None);
    let running = open(server.port, "/v1/completions", &stream());
    server.wait_metric("ropeteam_requests_running", 1.0);
    // As a service manager does, which stops all processes of a service.
    signal("TERM", device);
    server.terminate();
    let (_, finish) = completion_stream(&read_answer(running));
    assert_eq!(finish, "length");
    assert!(server.wait(Duration::from_secs(30)).success());
    wait_until("the device process ends", || !runs(device));

    for stopped in [false, true] {
        let server = isolated(&["--debug-step-delay-ms", "20"]);
        let device = server.device_process(None);
        let _running = open(server.port, "/v1/completions", &stream());
        server.wait_metric("ropeteam_requests_running", 1.0);
        if stopped {
            signal("STOP", device);
        }
        signal("KILL", server.pid());
        wait_until("the orphan ends", || !runs(device));
    }
}

#[test]
fn a_model_that_a_device_process_cannot_load_ends_the_server_with_the_models_exit_code() {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(tiny("llama")).expect("the fixture") {
        let entry = entry.expect("a file");
        if entry.path().is_file() {
            std::fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("a copy");
        }
    }
    let weights = folder.path().join("model.safetensors");
    // Not a number in the last weight: seen only when the weights are read, which the device's process does.
    let mut spoilt = std::fs::read(&weights).expect("weights");
    let end = spoilt.len();
    spoilt[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&weights, spoilt).expect("a file");
    for isolation in ["thread", "process"] {
        let output = ropeteam()
            .args(["serve", "--port", "0", "--isolation", isolation, "--model"])
            .arg(folder.path())
            .output()
            .expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{isolation}: {errors}");
        assert!(errors.contains("error: model: "), "{isolation}: {errors}");
    }
}

#[test]
fn the_command_of_a_device_process_is_for_the_server_alone() {
    let output = ropeteam()
        .arg("device-process")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("for the server itself"), "{errors}");
}
