//! Records of requests, and `ropeteam replay` of them.

use crate::http::{open, post, read_answer};
use crate::process::{Server, ropeteam, tiny};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn recording(flags: &[&str]) -> (TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut all = vec!["--record-dir", folder.path().to_str().expect("UTF-8")];
    all.extend(flags);
    let server = Server::start("llama", &all);
    (folder, server)
}

/// The file once it has so many lines.
fn lines(file: &Path, count: usize) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.len() >= count {
            return lines;
        }
        assert!(Instant::now() < deadline, "{} lines", lines.len());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn replay(file: &Path, flags: &[&str]) -> Output {
    let mut command = ropeteam();
    command.arg("replay").arg(file).arg("--model");
    command.arg(tiny("llama")).args(flags);
    command.output().expect("it runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn requests() -> Vec<Value> {
    let base =
        json!({"model": "m", "prompt": "the rope holds", "max_tokens": 20, "ignore_eos": true});
    let changes = [
        json!({"temperature": 0}),
        json!({"temperature": 1.3, "seed": 7, "n": 3, "top_p": 0.9, "presence_penalty": 0.5}),
        json!({"temperature": 1, "stop": ["a", "e"], "logprobs": 2}),
        json!({"temperature": 1, "seed": 3, "stream": true}),
        json!({"temperature": 1, "ignore_eos": false, "structured_outputs": {"regex": "[a-f]{4,9}"}}),
    ];
    let changed = |change: Value| {
        let mut request = base.clone();
        for (key, value) in change.as_object().expect("an object") {
            request[key] = value.clone();
        }
        request
    };
    changes.into_iter().map(changed).collect()
}

#[test]
fn every_recorded_request_is_repeated_byte_for_byte() {
    let (folder, server) = recording(&["--record-content", "on"]);
    let requests = requests();
    for request in &requests {
        let answer = read_answer(open(server.port, "/v1/completions", request));
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let file = folder.path().join("requests.jsonl");
    let lines = lines(&file, requests.len());
    drop(server);
    let output = replay(&file, &[]);
    let all = format!("{0} of {0} compared are the same", requests.len());
    assert!(
        output.status.success() && said(&output).contains(&all),
        "{}",
        said(&output)
    );

    // One wrong token is found.
    let mut record: Value = serde_json::from_str(&lines[0]).expect("JSON");
    assert!(record["build"].is_string() && record["sampling"]["seed"].is_u64());
    let token = &mut record["ended"][0]["ids"][5];
    *token = json!(token.as_u64().expect("an id") + 1);
    let other = folder.path().join("other.jsonl");
    std::fs::write(&other, record.to_string()).expect("a file");
    let output = replay(&other, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("choice 0: token 5 was"),
        "{}",
        said(&output)
    );
}

#[test]
fn without_content_records_hold_sums_and_nothing_a_client_wrote() {
    let (folder, server) = recording(&[]);
    let secret = json!({"model": "m", "prompt": "a secret word", "max_tokens": 4, "stop": ["unspeakable"],
        "user": "somebody", "cache_salt": "salty"});
    assert_eq!(post(server.port, "/v1/completions", &secret).status, 200);
    let file = folder.path().join("requests.jsonl");
    let line = lines(&file, 1).remove(0);
    for word in ["secret", "unspeakable", "somebody", "salty"] {
        assert!(!line.contains(word), "{line}");
    }
    let record: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(record["prompt"], json!([]));
    assert_eq!(record["ended"][0]["ids"], json!([]));
    assert_eq!(record["prompt_sum"].as_str().map(str::len), Some(64));
    let output = replay(&file, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("hold no prompts"),
        "{}",
        said(&output)
    );
}

#[test]
fn what_was_last_on_a_device_that_died_is_written_and_can_be_repeated() {
    let flags = ["--record-content", "on", "--debug-fault-at-step", "6"];
    let (folder, server) = recording(&flags);
    let request =
        json!({"model": "m", "prompt": "the last one", "max_tokens": 20, "ignore_eos": true});
    assert_eq!(post(server.port, "/v1/completions", &request).status, 200);
    drop(server);
    let entries = std::fs::read_dir(folder.path()).expect("a folder");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.retain(|file| file.to_string_lossy().contains("device-0-life-1-"));
    let lines = lines(&files[0], 2);
    let head: Value = serde_json::from_str(&lines[0]).expect("JSON");
    assert_eq!(head["interrupted"], json!(1));
    let record: Value = serde_json::from_str(&lines[1]).expect("JSON");
    let done = record["ended"][0]["tokens"].as_u64().expect("a count");
    assert!((1..20).contains(&done), "what it had by then: {record}");
    let output = replay(&files[0], &[]);
    assert!(output.status.success(), "{}", said(&output));
}
