//! Answers of a given form from real models: JSON that satisfies its schema, in every dialect, streamed and whole, in company and after the
//! loss of a device.

use crate::http::{completion_stream, events, post};
use crate::process::Server;
use serde_json::{Value, json};
use std::time::Instant;

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "tags": {"type": "array", "items": {"enum": ["ä", "b"]}, "maxItems": 2}
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": false
    })
}

fn assert_person(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let object = value.as_object().expect("an object");
    assert_eq!(object.keys().collect::<Vec<_>>(), ["name", "age", "tags"]);
    assert!(
        value["name"].as_str().expect("a name").chars().count() <= 12,
        "{text}"
    );
    assert!(value["age"].as_u64().expect("an age") <= 120, "{text}");
    let tags = value["tags"].as_array().expect("tags");
    assert!(
        tags.len() <= 2 && tags.iter().all(|t| t == "ä" || t == "b"),
        "{text}"
    );
}

fn completion(server: &Server, more: &Value) -> String {
    let mut body = json!({"prompt": "A person:", "max_tokens": 200, "temperature": 1.0, "seed": 1});
    let fields = more.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(fields);
    let answer = post(server.port, "/v1/completions", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    if more["stream"] == true {
        let (text, reason) = completion_stream(&answer);
        assert_eq!(reason, "stop", "{text}");
        return text;
    }
    let choice = &answer.json()["choices"][0];
    assert_eq!(choice["finish_reason"], "stop", "{choice}");
    choice["text"].as_str().expect("text").to_owned()
}

#[test]
fn every_family_answers_in_the_form_asked_for() {
    for model in ["llama", "mistral", "qwen3", "glm4"] {
        let server = Server::start(model, &[]);
        for seed in 0..4 {
            let more = json!({"guided_json": person(), "seed": seed, "stream": seed % 2 == 0});
            assert_person(&completion(&server, &more));
        }
        let greedy = json!({"guided_regex": "[0-9]{3}-[a-f]", "temperature": 0});
        let text = completion(&server, &greedy);
        assert!(
            text.len() == 5 && text.as_bytes()[3] == b'-',
            "{model}: {text}"
        );
        let choice = completion(&server, &json!({"guided_choice": ["north", "south"]}));
        assert!(
            ["north", "south"].contains(&choice.as_str()),
            "{model}: {choice}"
        );
        let wrong = json!({"prompt": "A", "guided_regex": "("});
        assert_eq!(post(server.port, "/v1/completions", &wrong).status, 400);
        // Three grammars, one of them asked for four times, and a wrong one.
        for (name, expected) in [
            ("ropeteam_grammar_compile_seconds_count", 3.0),
            ("ropeteam_grammar_cache_hits_total", 3.0),
            ("ropeteam_grammar_failures_total{reason=\"invalid\"}", 1.0),
        ] {
            assert_eq!(server.metric(name), expected, "{model}: {name}");
        }
    }
}

#[test]
fn tgi_and_streams_obey_too() {
    let server = Server::start("qwen2", &[]);
    let parameters = json!({"max_new_tokens": 200, "do_sample": true, "seed": 3,
        "grammar": {"type": "json", "value": person()}});
    let body = json!({"inputs": "A person:", "parameters": parameters});
    let answer = post(server.port, "/generate", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_person(answer.json()["generated_text"].as_str().expect("text"));
    let streamed = post(server.port, "/generate_stream", &body);
    let last = events(&streamed).pop().expect("events");
    let last: Value = serde_json::from_str(&last).expect("JSON");
    assert_eq!(last["generated_text"], answer.json()["generated_text"]);
}

#[test]
fn neither_company_nor_the_loss_of_a_device_changes_a_form() {
    let asked: Vec<Value> = (0..4)
        .map(|seed| json!({"guided_json": person(), "seed": seed, "stream": true}))
        .collect();
    let alone = Server::start("llama", &[]);
    let expected: Vec<String> = asked.iter().map(|more| completion(&alone, more)).collect();
    let failing = Server::start("llama", &["--debug-fault-at-step", "9"]);
    let texts: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> = asked
            .iter()
            .map(|more| scope.spawn(|| completion(&failing, more)))
            .collect();
        running
            .into_iter()
            .map(|r| r.join().expect("a text"))
            .collect()
    });
    assert_eq!(texts, expected);
}

#[test]
fn a_schema_that_is_too_large_or_never_ends_is_refused_at_once() {
    let server = Server::start("llama", &[]);
    let large: Vec<String> = (0..20_000).map(|i| format!("value {i}")).collect();
    let endless = json!({"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]});
    for schema in [json!({"enum": large}), endless] {
        let begun = Instant::now();
        let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
        let body = json!({"prompt": "a", "response_format": format});
        let answer = post(server.port, "/v1/completions", &body);
        assert_eq!(answer.status, 400, "{}", answer.body);
        assert_eq!(
            answer.json()["error"]["param"],
            "response_format.json_schema.schema"
        );
        assert!(begun.elapsed().as_secs() < 2);
    }
}
