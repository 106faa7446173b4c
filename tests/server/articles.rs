//! The commands that the two articles show, as they stand there but for the ports (and plain hyphens in place of typographic ones).

use crate::process::{Server, free_port, tiny};
use serde_json::{Value, json};
use std::process::Command;

/// The second article's configuration.
const CONFIG: &str = r#"{
  "model_config": {
    "max_prefill_batch_size": 32,
    "max_prefill_tokens": 8192,
    "max_decode_batch_size": 64,
    "support_select_batch": 0,
    "continuous_batching": true
  },
  "server_config": {
    "port": 1025,
    "management_port": 1026,
    "enable_metrics": true
  }
}"#;

/// A server with that configuration, and its folder.
fn start() -> (Server, u16, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config.json");
    std::fs::write(&path, CONFIG).expect("a file");
    let (model, management) = (tiny("llama"), free_port());
    let server = Server::start_with(&[
        "--config",
        path.to_str().expect("a UTF-8 path"),
        "--model",
        model.to_str().expect("a UTF-8 path"),
        "--management-port",
        &management.to_string(),
    ]);
    (server, management, folder)
}

/// Runs a command line; its output.
fn shell(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output();
    let output = output.expect("a shell");
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn the_first_articles_commands_answer_as_it_says() {
    let (server, _, _folder) = start();
    let port = server.port;
    let call = |stream: bool| {
        shell(&format!(
            r#"curl -sN -X POST http://127.0.0.1:{port}/v1/generate \
-H "Content-Type: application/json" \
-d '{{"prompt":"简单介绍MindSpore","max_new_tokens":128,"temperature":0.7,"stream":{stream}}}'"#
        ))
    };
    let answer = json_of(&call(false));
    assert_eq!(answer["prompt"], "简单介绍MindSpore");
    assert!(answer["result"].is_string());
    assert_eq!(answer.as_object().map(|fields| fields.len()), Some(2));
    let events = call(true);
    let mut data = events
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(':'));
    assert!(data.all(|line| line.starts_with("data: ")), "{events}");
}

#[test]
fn the_second_articles_commands_find_metrics_and_health() {
    let (server, management, _folder) = start();
    let found = shell(&format!(
        "curl -s http://127.0.0.1:{management}/metrics | grep batch"
    ));
    assert!(found.contains("ropeteam_batch_current_size"), "{found}");
    let port = server.port;
    let told = shell(&format!("curl -sv http://localhost:{port}/health 2>&1"));
    assert!(told.contains("HTTP/1.1 200 OK"), "{told}");
}

#[test]
fn the_second_articles_wrappers_are_routes() {
    let (server, _, _folder) = start();
    let port = server.port;
    // What its wrapper sends on to the server.
    let answer = shell(&format!(
        r#"curl -s http://localhost:{port}/generate -H 'Content-Type: application/json' \
-d '{{"inputs": "hello", "parameters": {{"max_new_tokens": 8, "temperature": 0.7, "top_p": 0.9}}}}'"#
    ));
    assert!(json_of(&answer)["generated_text"].is_string(), "{answer}");
    // What its wrapper takes.
    let answer = shell(&format!(
        "curl -s -X POST 'http://localhost:{port}/v1/chat/completions?prompt=hello&max_tokens=8'"
    ));
    assert!(json_of(&answer)["generated_text"].is_string(), "{answer}");
    let events = shell(&format!(
        "curl -sN 'http://localhost:{port}/v1/stream?prompt=hello'"
    ));
    let last = events.lines().rfind(|line| line.starts_with("data: "));
    let last = json_of(last.expect("an event").trim_start_matches("data: "));
    assert!(last["generated_text"].is_string(), "{events}");
    // And the stream it reads.
    let stream = shell(&format!(
        "curl -sN http://localhost:{port}/generate_stream -H 'Content-Type: application/json' -d '{}'",
        json!({"inputs": "hello"})
    ));
    assert!(stream.starts_with("data:{\"token\""), "{stream}");
}
