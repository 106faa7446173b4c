//! Serving on Ascend devices, which the stand-in's library plays: golden texts, and what a machine without CANN is told.

use crate::http::post;
use crate::process::{Server, free_port, ropeteam, tiny};
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

/// A folder that looks like an installed CANN: the stand-in under the names of its libraries.
struct Cann(TempDir);

impl Cann {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let exe = std::env::current_exe().expect("a test runs");
        let built: PathBuf = exe.with_file_name("libropeteam_ascend_standin.so");
        assert!(built.exists(), "{}", built.display());
        for name in ["libascendcl.so", "libnnopbase.so", "libopapi.so"] {
            std::os::unix::fs::symlink(&built, folder.path().join(name)).expect("a link");
        }
        Self(folder)
    }

    /// A server on its devices. Whatever it does against the contract ends it.
    fn server(&self, model: &str, settings: &str, flags: &[&str]) -> Server {
        let path = self.0.path().to_str().expect("a UTF-8 path");
        let settings = format!("violations=abort;memory_mib=2048;{settings}");
        let variables = [
            ("LD_LIBRARY_PATH", path),
            ("ROPETEAM_STANDIN", settings.as_str()),
        ];
        // A fixture's name, or a path.
        let model = tiny(model);
        let mut all = vec!["--model", model.to_str().expect("a UTF-8 path")];
        all.extend(flags);
        Server::start_in(&variables, &all)
    }
}

/// A prompt of a model's goldens.
struct Golden {
    ids: Vec<u32>,
    /// How many tokens follow greedily before the best two logits are so near that rounding decides.
    certain: usize,
    /// Log-probability of the first of them.
    log_probability: f64,
}

fn goldens(model: &str, margin: f64) -> Vec<Golden> {
    let text = std::fs::read_to_string(tiny(model).join("goldens.json")).expect("goldens");
    let goldens: Value = serde_json::from_str(&text).expect("JSON");
    let numbers = |value: &Value| -> Vec<f64> {
        let all = value.as_array().expect("numbers").iter();
        all.map(|n| n.as_f64().expect("a number")).collect()
    };
    let prompts = goldens["prompts"].as_array().expect("prompts").iter();
    prompts
        .map(|golden| {
            let margins = numbers(&golden["greedy_margins"]);
            let logits = numbers(&golden["last_logits"]);
            let highest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = logits.iter().map(|logit| (logit - highest).exp()).sum();
            Golden {
                ids: numbers(&golden["ids"])
                    .iter()
                    .map(|id| *id as u32)
                    .collect(),
                certain: margins.iter().take_while(|m| **m > margin).count(),
                log_probability: -sum.ln(),
            }
        })
        .collect()
}

fn completion(server: &Server, prompt: &Value, tokens: usize) -> String {
    let body = json!({"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true});
    let answer = post(server.port, "/v1/completions", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let text = answer.json()["choices"][0]["text"].clone();
    text.as_str().expect("text").to_owned()
}

#[test]
fn golden_logits_and_texts_come_from_an_npu() {
    let cann = Cann::new();
    for (model, dtype, margin, tolerance, schedule) in [
        ("llama", "f16", 0.1, 0.15, "schedule=random:1"),
        ("qwen2", "auto", 0.5, 0.5, "schedule=random:2"),
        ("qwen3", "f16", 0.1, 0.15, "schedule=lazy"),
        ("glm4", "f16", 0.1, 0.15, "schedule=eager"),
    ] {
        let npu = cann.server(model, schedule, &["--device", "ascend:0", "--dtype", dtype]);
        let cpu = Server::start(model, &[]);
        let mut compared = 0;
        for golden in goldens(model, margin) {
            let prompt = json!(golden.ids);
            let body = json!({"model": "m", "prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 1,
                "ignore_eos": true});
            let answer = post(npu.port, "/v1/completions", &body).json();
            let found = &answer["choices"][0]["logprobs"]["token_logprobs"][0];
            let off = found.as_f64().expect("a log-probability") - golden.log_probability;
            assert!(
                off.abs() < tolerance,
                "{model}, {} tokens: off by {off}",
                golden.ids.len()
            );
            if golden.certain > 0 {
                let [found, expected] =
                    [&npu, &cpu].map(|server| completion(server, &prompt, golden.certain));
                assert_eq!(found, expected, "{model}, {} tokens", golden.certain);
                compared += golden.certain;
            }
        }
        assert!(compared > 0, "{model}: else the test proves nothing");
    }
}

/// Several streams at once, of different lengths, so that sequences come and go under steps that were enqueued ahead.
#[test]
fn graphs_and_steps_ahead_change_no_byte_and_launch_little() {
    let cann = Cann::new();
    let run = |flags: &[&str]| {
        let all = [&["--device", "ascend:0", "--dtype", "f16"], flags].concat();
        let server = cann.server("llama", "", &all);
        let texts: Vec<String> = std::thread::scope(|scope| {
            let one = |i: usize| {
                let (server, prompt) = (&server, json!(format!("{i} is a number")));
                scope.spawn(move || completion(server, &prompt, 30 + 17 * i))
            };
            let all: Vec<_> = (0..5).map(one).collect();
            let texts = all.into_iter().map(|thread| thread.join().expect("a text"));
            texts.collect()
        });
        let page = crate::http::get(server.port, "/metrics").body;
        let line = page
            .lines()
            .find(|line| line.starts_with("ropeteam_step_launches") && line.contains("decode"));
        let launches = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        (texts, launches.expect("launches of a decode step"))
    };
    let (texts, launches) = run(&[]);
    let (expected, of_operators) = run(&["--npu-graphs", "off"]);
    assert_eq!(texts, expected);
    assert!(
        launches < of_operators / 2.0,
        "{launches} of {of_operators}"
    );
}

/// A folder that `ropeteam quantize` writes, as an NPU and as the CPU compute it.
#[test]
fn what_quantize_writes_is_served_in_int8() {
    let cann = Cann::new();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("w8a8");
    let written = ropeteam()
        .args(["quantize", "--to", "int8", "--out"])
        .args([&out, &tiny("llama")])
        .output()
        .expect("it runs");
    let errors = String::from_utf8_lossy(&written.stderr);
    assert!(written.status.success(), "{errors}");
    let model = out.to_str().expect("a UTF-8 path");
    let npu = cann.server(model, "", &["--device", "ascend:0", "--dtype", "f16"]);
    let cpu = Server::start_in(&[], &["--model", model]);
    for golden in goldens("llama", 0.1) {
        let body = json!({"model": "m", "prompt": golden.ids, "max_tokens": 1, "temperature": 0, "logprobs": 1,
            "ignore_eos": true});
        let [found, expected] = [&npu, &cpu].map(|server| {
            let answer = post(server.port, "/v1/completions", &body).json();
            let value = &answer["choices"][0]["logprobs"]["token_logprobs"][0];
            value.as_f64().expect("a log-probability")
        });
        let off = found - expected;
        let tokens = golden.ids.len();
        assert!(off.abs() < 0.15, "{tokens} tokens: off by {off}");
    }
}

#[test]
fn a_machine_without_cann_is_told_what_to_do() {
    let output = ropeteam()
        .env_remove("LD_LIBRARY_PATH")
        .args(["serve", "--device", "ascend:0"])
        .args(["--port", &free_port().to_string(), "--model"])
        .arg(tiny("llama"))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(5));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("cannot open libascendcl.so") && errors.contains("ropeteam doctor"),
        "{errors}"
    );
    assert!(!errors.contains("panicked"), "{errors}");
}

#[test]
fn devices_and_doctor_say_what_there_is() {
    let cann = Cann::new();
    let on = |arguments: &[&str]| {
        let output = ropeteam()
            .env("LD_LIBRARY_PATH", cann.0.path())
            .env("ROPETEAM_STANDIN", "devices=2;memory_mib=4096")
            .args(arguments)
            .output()
            .expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let listed = on(&["devices"]);
    assert!(listed.starts_with("cpu "), "{listed}");
    assert!(
        listed.contains("ascend:1  Ascend910B3, 4.0 GiB of 4.0 GiB free"),
        "{listed}"
    );
    let model = tiny("llama");
    let model = model.to_str().expect("a UTF-8 path");
    let doctor = [
        "doctor",
        "--port",
        "0",
        "--management-port",
        "off",
        "--model",
        model,
    ];
    let on_npu = on(&[&doctor[..], &["--device", "ascend:0"]].concat());
    assert!(on_npu.contains("ok       operators: all 11"), "{on_npu}");
    // There is no driver behind the stand-in.
    assert!(
        on_npu.contains("problem  device nodes: /dev/davinci_manager"),
        "{on_npu}"
    );
    let on_cpu = on(&doctor);
    assert!(on_cpu.contains("ok       memory: weights"), "{on_cpu}");
    assert!(on_cpu.contains("0 problems"), "{on_cpu}");
}

/// What a request answers on an NPU that breaks in the middle must be what it answers on one that does not.
fn survives(device: &str, settings: &str, flags: &[&str], cause: &str) {
    let cann = Cann::new();
    let body = json!({"model": "m", "prompt": "abcdefghij", "max_tokens": 40, "seed": 3,
        "temperature": 0.8, "ignore_eos": true});
    let both = ["--device", device];
    let undisturbed = cann.server("llama", "devices=2", &both);
    let wanted = post(undisturbed.port, "/v1/completions", &body);
    assert_eq!(wanted.status, 200, "{}", wanted.body);
    let all: Vec<&str> = both.iter().chain(flags).copied().collect();
    let broken = cann.server("llama", &format!("devices=2;{settings}"), &all);
    let found = post(broken.port, "/v1/completions", &body);
    assert_eq!(found.status, 200, "{}", found.body);
    assert_eq!(found.json()["choices"], wanted.json()["choices"]);
    let page = crate::http::get(broken.port, "/metrics").body;
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
fn a_stream_survives_a_task_that_never_ends() {
    let flags = ["--step-timeout-ms", "3000"];
    survives("ascend:0,1", "hang=task:600", &flags, "hardware");
}

#[test]
fn a_stream_survives_the_death_of_its_process() {
    // Each process of the device dies at its 900th task.
    let flags = ["--isolation", "process"];
    survives("ascend:0", "die=task:900", &flags, "process");
}
