//! A device dies in the middle of every kind of request, in the server's process and in its own, with one device and with two: what the
//! client gets is what it would have got, byte for byte. Here at some steps; at every step with `ROPETEAM_EVERY_STEP=1`, which takes
//! many minutes. At every step in virtual time: `sim/tests/replay.rs`.

use crate::http::{Answer, completion_stream, events, open, post, read_answer};
use crate::process::Server;
use serde_json::{Value, json};

/// Path and body of one request of each kind.
fn requests() -> Vec<(&'static str, Value)> {
    let base = json!({"prompt": "abcdefghij", "max_tokens": 24, "seed": 5, "ignore_eos": true});
    let with = |more: Value| {
        let mut body = base.clone();
        let more = more.as_object().expect("an object").clone();
        body.as_object_mut().expect("an object").extend(more);
        ("/v1/completions", body)
    };
    let schema = json!({"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}, "name":
        {"type": "string", "maxLength": 8}}, "required": ["age", "name"], "additionalProperties": false});
    let call = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 60, "seed": 2,
        "tools": [{"type": "function", "function": {"name": "note", "parameters": schema}}], "tool_choice": "required"});
    vec![
        with(json!({"temperature": 0})),
        with(json!({"temperature": 1.0, "top_p": 0.9, "repetition_penalty": 1.2, "logprobs": 2})),
        with(json!({"temperature": 1.0, "n": 4})),
        with(
            json!({"temperature": 1.0, "guided_json": schema, "ignore_eos": false, "max_tokens": 60}),
        ),
        with(json!({"temperature": 1.0, "stop": ["e"], "min_tokens": 8})),
        ("/v1/chat/completions", call),
    ]
}

/// An answer without what differs from request to request: names and times.
fn content(answer: &Answer, streamed: bool) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let mut values: Vec<Value> = match streamed {
        true => {
            let events = events(answer);
            assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
            let json = events[..events.len() - 1].iter();
            json.map(|event| serde_json::from_str(event).expect("JSON"))
                .collect()
        }
        false => vec![answer.json()],
    };
    values.iter_mut().for_each(forget);
    // Choices that are in one step may be told in any order.
    values.sort_by_key(|value| value["choices"][0]["index"].as_u64());
    values
}

fn forget(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            ["id", "created"]
                .iter()
                .for_each(|name| drop(fields.remove(*name)));
            fields.values_mut().for_each(forget);
        }
        Value::Array(items) => items.iter_mut().for_each(forget),
        _ => {}
    }
}

fn answers(server: &Server, body: &Value, path: &str) -> [Vec<Value>; 2] {
    [false, true].map(|streamed| {
        let mut body = body.clone();
        body["stream"] = streamed.into();
        content(&post(server.port, path, &body), streamed)
    })
}

/// The steps to die at: those named, or one after the other as long as `dies` says that there was one, where that is asked for.
fn at_steps(named: &[u32], mut dies: impl FnMut(u32) -> bool) {
    if std::env::var_os("ROPETEAM_EVERY_STEP").is_none() {
        for &step in named {
            assert!(dies(step), "there was no step {step}");
        }
        return;
    }
    let last = (1..).take_while(|&step| dies(step)).last();
    assert!(last > Some(5), "{last:?} steps mean nothing");
}

/// A fresh server whose first device dies at that step.
fn dying(flags: &[&str], step: u32) -> Server {
    let step = step.to_string();
    let died = ["--debug-fault-at-step", &step, "--restart-delay-ms", "10"];
    let server = Server::start("llama", &[flags, &died].concat());
    if flags.contains(&"--device-count") {
        server.wait_metric("ropeteam_device_up", 2.0);
    }
    server
}

/// Each request is disturbed by the death of a fresh server's first device at some step.
fn check(flags: &[&str], steps: &[u32]) {
    let undisturbed = Server::start("llama", &[]);
    for (number, (path, body)) in requests().into_iter().enumerate() {
        let [whole, streamed] = answers(&undisturbed, &body, path);
        let named = [steps[number % steps.len()]];
        for (stream, wanted) in [(false, &whole), (true, &streamed)] {
            let mut body = body.clone();
            body["stream"] = stream.into();
            at_steps(&named, |step| {
                let server = dying(flags, step);
                let found = content(&post(server.port, path, &body), stream);
                assert_eq!(&found, wanted, "{flags:?}, step {step}: {body}");
                let restarts = server.restarts();
                assert!(restarts <= 1.0, "{restarts}");
                restarts == 1.0
            });
        }
    }
}

#[test]
fn every_kind_of_request_survives_a_panic_in_the_servers_process() {
    check(&["--debug-fault", "panic"], &[1, 2, 9]);
}

#[test]
fn every_kind_of_request_survives_a_crash_of_its_devices_process() {
    check(
        &["--isolation", "process", "--debug-fault", "crash"],
        &[3, 1, 7],
    );
}

#[test]
fn with_two_devices_the_other_one_goes_on() {
    let two = [
        "--isolation",
        "process",
        "--debug-fault",
        "crash",
        "--device-count",
        "2",
    ];
    check(&two, &[4, 2]);
}

#[test]
fn with_two_devices_in_the_servers_process_the_other_one_goes_on() {
    check(&["--debug-fault", "panic", "--device-count", "2"], &[2, 5]);
}

/// Six streams at once, and again, in a pool for two of them: some are preempted, and the prefix cache gives up what it held.
fn check_narrow(flags: &[&str], steps: &[u32]) {
    let body = |n: u64| {
        let prompt = ["abcdefghijklmnopqrst", "abcdefghij", "klmnopqrstuvwx"][n as usize % 3];
        json!({"prompt": prompt, "max_tokens": 60, "seed": n / 2, "temperature": 1.0, "ignore_eos": true, "stream": true})
    };
    let round = |server: &Server| -> Vec<_> {
        let running = (0..6).map(|n| open(server.port, "/v1/completions", &body(n)));
        let running: Vec<_> = running.collect();
        let texts = running
            .into_iter()
            .map(|answer| completion_stream(&read_answer(answer)));
        texts.collect()
    };
    let wanted = round(&Server::start("llama", &[]));
    at_steps(steps, |step| {
        let server = dying(&[flags, &["--kv-blocks", "12"]].concat(), step);
        for _ in 0..2 {
            assert_eq!(round(&server), wanted, "{flags:?}, step {step}");
        }
        assert!(server.metric("ropeteam_preemptions_total") >= 1.0);
        server.restarts() == 1.0
    });
}

#[test]
fn preempted_streams_survive_a_panic_in_the_servers_process() {
    check_narrow(&["--debug-fault", "panic"], &[40, 110]);
}

#[test]
fn preempted_streams_survive_a_crash_of_their_devices_process() {
    let crash = ["--isolation", "process", "--debug-fault", "crash"];
    check_narrow(&crash, &[25, 90]);
}
