//! An NPU that breaks in the middle of streams: they go on with the bytes of one that does not.

use super::Cann;
use crate::http::{get, post};
use crate::process::{free_port, tiny};
use serde_json::{Value, json};

/// Requests that take different ways: the best token found by the chip, a draw from columns that it finds, one from whole rows, several
/// choices, and a form to keep.
fn bodies() -> Vec<Value> {
    let body = |prompt: &str, more: Value| {
        let mut body =
            json!({"model": "m", "prompt": prompt, "max_tokens": 40, "ignore_eos": true});
        let fields = more.as_object().expect("fields").clone();
        body.as_object_mut().expect("fields").extend(fields);
        body
    };
    vec![
        body("abcdefghij", json!({"temperature": 0})),
        body(
            "The lighthouse",
            json!({"seed": 3, "temperature": 0.8, "top_k": 20}),
        ),
        body(
            "keeper",
            json!({"seed": 4, "temperature": 0.8, "logprobs": 2}),
        ),
        body("notebooks", json!({"seed": 5, "temperature": 1.0, "n": 2})),
        json!({"model": "m", "prompt": "A number", "max_tokens": 30, "temperature": 0,
            "structured_outputs": {"regex": "[0-9]{30}"}}),
    ]
}

/// The choices of all of them, asked for at once.
fn choices(port: u16) -> Vec<Value> {
    std::thread::scope(|scope| {
        let ask = |body: Value| {
            scope.spawn(move || {
                let answer = post(port, "/v1/completions", &body);
                assert_eq!(answer.status, 200, "{}", answer.body);
                answer.json()["choices"].clone()
            })
        };
        let asked: Vec<_> = bodies().into_iter().map(ask).collect();
        let answers = asked.into_iter().map(|thread| thread.join());
        answers.map(|choices| choices.expect("choices")).collect()
    })
}

fn survives(device: &str, settings: &str, flags: &[&str], cause: &str) {
    let cann = Cann::new();
    let both = ["--device", device];
    let undisturbed = cann.server("llama", "devices=2", &both);
    let wanted = choices(undisturbed.port);
    let all: Vec<&str> = both.iter().chain(flags).copied().collect();
    // Of a device's processes only the first one at the fault makes it.
    let once = cann.0.path().join("made");
    let settings = format!("devices=2;{settings};once={}", once.display());
    let broken = cann.server("llama", &settings, &all);
    assert_eq!(choices(broken.port), wanted);
    let page = get(broken.port, "/metrics").body;
    let told = page
        .lines()
        .any(|line| line.starts_with("ropeteam_device_restarts_total") && line.contains(cause));
    assert!(told, "no restart by {cause} in\n{page}");
}

#[test]
fn a_stream_survives_an_exception_of_the_chip() {
    survives("ascend:0", "fail=task:600:507015", &[], "hardware");
}

#[test]
fn a_stream_goes_on_from_one_chip_to_the_other() {
    survives("ascend:0,1", "fail=task:600:507015", &[], "hardware");
}

#[test]
fn a_chip_whose_driver_is_lost_is_given_up_where_no_new_process_helps() {
    let cann = Cann::new();
    let both = ["--device", "ascend:0,1"];
    let wanted = choices(cann.server("llama", "devices=2", &both).port);
    let broken = cann.server("llama", "devices=2;fail=task:600:507010", &both);
    assert_eq!(choices(broken.port), wanted);
    let page = get(broken.port, "/metrics").body;
    let of_devices = |line: &&str| line.starts_with("ropeteam_device");
    let told: Vec<&str> = page.lines().filter(of_devices).collect();
    let restarted = |line: &&str| line.starts_with("ropeteam_device_restarts_total");
    assert!(!told.iter().any(restarted), "{told:#?}");
    assert_eq!(get(broken.port, "/health").status, 200);
}

#[test]
fn a_chip_that_cannot_be_looked_at_does_not_end_the_server() {
    for isolation in ["thread", "process"] {
        let cann = Cann::new();
        let once = cann.0.path().join("made");
        let settings = format!(
            "devices=2;fail=aclrtCreateContext:2:507015;once={}",
            once.display()
        );
        let flags = ["--device", "ascend:0,1", "--isolation", isolation];
        let server = cann.server("llama", &settings, &flags);
        assert!(once.exists(), "no fault was made");
        assert_eq!(choices(server.port).len(), bodies().len());
    }
}

#[test]
fn when_no_chip_can_be_looked_at_the_first_one_is_named() {
    let cann = Cann::new();
    let output = cann
        .ropeteam("fail=aclrtCreateContext:1:507015")
        .args(["serve", "--device", "ascend:0", "--port"])
        .arg(free_port().to_string())
        .arg("--model")
        .arg(tiny("llama"))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(5));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("device: ascend:0: aclrtCreateContext failed with code 507015"),
        "{errors}"
    );
}

#[test]
fn a_stream_survives_a_task_that_never_ends() {
    let flags = ["--step-timeout-ms", "3000"];
    survives("ascend:0,1", "hang=task:600", &flags, "hardware");
}

#[test]
fn a_stream_survives_the_death_of_its_process() {
    let flags = ["--isolation", "process"];
    survives("ascend:0", "die=task:900", &flags, "process");
}

#[test]
fn a_stream_goes_on_from_one_process_to_the_other() {
    let flags = ["--isolation", "process", "--step-timeout-ms", "3000"];
    for (fault, cause) in [
        ("die=task:900", "process"),
        ("fail=task:900:507015", "hardware"),
        ("fail=task:900:507010", "driver"),
        ("hang=aclmdlRIExecuteAsync:3", "stuck"),
    ] {
        survives("ascend:0,1", fault, &flags, cause);
    }
}
