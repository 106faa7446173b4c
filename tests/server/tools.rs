//! Calls of tools that a request forces, from real models: whole and streamed, one or several, and cut.

use crate::http::{events, post};
use crate::process::Server;
use serde_json::{Value, json};

fn tools() -> Value {
    let place = json!({"type": "object", "properties": {"town": {"type": "string", "maxLength": 6},
        "unit": {"$ref": "#/$defs/unit"}}, "required": ["town", "unit"], "additionalProperties": false,
        "$defs": {"unit": {"enum": ["C", "F"]}}});
    let weather =
        json!({"type": "function", "function": {"name": "get_weather", "parameters": place}});
    let nothing = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let now = json!({"type": "function", "function": {"name": "now", "parameters": nothing}});
    json!([weather, now])
}

fn body(more: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 250,
        "temperature": 1.0, "seed": 2, "tools": tools()});
    let fields = more.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(fields);
    body
}

/// The first choice of a whole answer.
fn chat(server: &Server, more: &Value) -> Value {
    let answer = post(server.port, "/v1/chat/completions", &body(more));
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["choices"][0].clone()
}

/// Name and arguments of each call of a message, as they came.
fn calls(message: &Value) -> Vec<(String, String)> {
    let calls = message["tool_calls"].as_array().expect("calls").iter();
    let word = |value: &Value| value.as_str().expect("a string").to_owned();
    calls
        .map(|call| {
            assert_eq!(call["type"], "function");
            assert!(!word(&call["id"]).is_empty());
            let function = &call["function"];
            (word(&function["name"]), word(&function["arguments"]))
        })
        .collect()
}

fn assert_fits(name: &str, arguments: &str) {
    let value: Value =
        serde_json::from_str(arguments).unwrap_or_else(|e| panic!("{e}: {arguments}"));
    match name {
        "now" => assert_eq!(value, json!({})),
        "get_weather" => {
            assert!(value["town"].as_str().expect("a town").chars().count() <= 6);
            assert!(["C", "F"].contains(&value["unit"].as_str().expect("a unit")));
        }
        other => panic!("no tool is called {other}"),
    }
}

#[test]
fn a_forced_call_fits_its_tool_and_a_stream_brings_it_in_pieces() {
    for model in ["llama", "qwen3", "glm4"] {
        let server = Server::start(model, &[]);
        let named = json!({"type": "function", "function": {"name": "get_weather"}});
        for choice in [json!("required"), named] {
            let more = json!({"tool_choice": choice, "parallel_tool_calls": false});
            let whole = chat(&server, &more);
            assert_eq!(whole["finish_reason"], "tool_calls", "{whole}");
            assert_eq!(whole["message"]["content"], Value::Null);
            let expected = calls(&whole["message"]);
            assert_eq!(expected.len(), 1);
            assert_fits(&expected[0].0, &expected[0].1);
            assert_eq!(
                streamed(&server, &more),
                (expected, "tool_calls".to_owned())
            );
        }
    }
}

/// The calls of a stream, put together as clients do, and its finish reason.
fn streamed(server: &Server, more: &Value) -> (Vec<(String, String)>, String) {
    let mut body = body(more);
    body["stream"] = json!(true);
    let answer = post(server.port, "/v1/chat/completions", &body);
    let mut calls: Vec<(String, String)> = Vec::new();
    let mut reason = String::new();
    for event in events(&answer) {
        let Ok(event) = serde_json::from_str::<Value>(&event) else {
            continue;
        };
        let choice = &event["choices"][0];
        if let Some(word) = choice["finish_reason"].as_str() {
            reason = word.to_owned();
        }
        for call in choice["delta"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let index = call["index"].as_u64().expect("an index") as usize;
            if let Some(name) = call["function"]["name"].as_str() {
                assert_eq!(
                    (index, call["type"].as_str()),
                    (calls.len(), Some("function"))
                );
                assert!(call["id"].is_string());
                calls.push((name.to_owned(), String::new()));
            }
            let piece = call["function"]["arguments"].as_str().expect("arguments");
            calls[index].1.push_str(piece);
        }
    }
    (calls, reason)
}

#[test]
fn several_calls_may_come_where_they_are_allowed() {
    let server = Server::start("qwen2", &[]);
    let counts: Vec<usize> = (0..12)
        .map(|seed| {
            let choice = chat(
                &server,
                &json!({"tool_choice": "required", "seed": seed, "max_tokens": 400}),
            );
            let found = calls(&choice["message"]);
            if choice["finish_reason"] == "tool_calls" {
                found
                    .iter()
                    .for_each(|(name, arguments)| assert_fits(name, arguments));
            }
            found.len()
        })
        .collect();
    assert!(
        counts.iter().all(|&count| count >= 1) && counts.iter().any(|&count| count > 1),
        "{counts:?}"
    );
}

#[test]
fn a_call_that_is_cut_says_so() {
    let server = Server::start("qwen2", &[]);
    let more = json!({"tool_choice": "required", "max_tokens": 12});
    assert_eq!(chat(&server, &more)["finish_reason"], "length");
    assert_eq!(streamed(&server, &more).1, "length");
}

#[test]
fn without_a_forced_call_text_stays_text() {
    let server = Server::start("qwen2", &[]);
    for choice in ["auto", "none"] {
        let answer = chat(&server, &json!({"tool_choice": choice, "max_tokens": 20}));
        assert_eq!(answer["finish_reason"], "length");
        assert!(
            answer["message"]["content"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
        assert_eq!(answer["message"].get("tool_calls"), None);
    }
}
