//! A device dies in the middle of every kind of request, in the server's process and in its own, with one device and with two: what the
//! client gets is what it would have got, byte for byte. At every single step: `sim/tests/replay.rs`.

use crate::http::{Answer, events, post};
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

/// Each request is disturbed by the death of a fresh server's first device at some step.
fn check(flags: &[&str], steps: &[u32]) {
    let undisturbed = Server::start("llama", &[]);
    for (number, (path, body)) in requests().into_iter().enumerate() {
        let [whole, streamed] = answers(&undisturbed, &body, path);
        let step = steps[number % steps.len()].to_string();
        for (stream, wanted) in [(false, &whole), (true, &streamed)] {
            let died = ["--debug-fault-at-step", &step, "--restart-delay-ms", "10"];
            let server = Server::start("llama", &[flags, &died].concat());
            if flags.contains(&"--device-count") {
                server.wait_metric("ropeteam_device_up", 2.0);
            }
            let mut body = body.clone();
            body["stream"] = stream.into();
            let found = content(&post(server.port, path, &body), stream);
            assert_eq!(&found, wanted, "{flags:?}, step {step}: {body}");
            let restarts = server.restarts();
            assert_eq!(restarts, 1.0, "{flags:?}, step {step}: {body}");
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
