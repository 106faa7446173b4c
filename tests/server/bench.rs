//! `ropeteam bench` against real servers, ours and bad ones.

use crate::bad_server::{self, Behaviour};
use crate::process::{Server, ropeteam, tiny};
use serde_json::Value;
use std::path::Path;
use std::process::Output;

/// Runs the tool against a port.
fn bench(port: u16, flags: &[&str]) -> Output {
    let url = format!("http://127.0.0.1:{port}");
    let output = ropeteam()
        .args(["bench", "--url", &url])
        .args(flags)
        .output();
    output.expect("the tool runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the tool and reads what it writes; panics with what it printed when it wrote nothing.
fn measured(port: u16, flags: &[&str]) -> (Output, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    let json = file.to_str().expect("a UTF-8 path");
    let output = bench(port, &[flags, &["--json", json]].concat());
    let result = std::fs::read_to_string(&file).expect("the file");
    let result = serde_json::from_str(&result).unwrap_or_else(|error| {
        panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr))
    });
    (output, result)
}

fn simulated() -> Server {
    Server::start_with(&["--device", "simulated", "--model", "simulated"])
}

/// Flags that suit the simulated device's vocabulary.
const SMALL: &[&str] = &["--ids", "1..26", "--input-len", "8", "--output-len", "6"];

#[track_caller]
fn all_succeeded(result: &Value, requests: u64, tokens: u64) {
    let summary = &result["summary"];
    assert_eq!(summary["errors"], serde_json::json!({}), "{result}");
    assert_eq!(summary["requests"], requests, "{result}");
    assert_eq!(summary["succeeded"], requests, "{result}");
    assert_eq!(summary["output_tokens"], tokens, "{result}");
}

#[test]
fn every_api_and_pace_measures_our_own_server() {
    let server = simulated();
    for flags in [
        &["--concurrency", "4"][..],
        &["--task", "text"],
        &["--no-keepalive"],
        &["--api", "openai-chat"],
        &["--api", "openai-chat", "--task", "text"],
        &["--api", "tgi"],
        &["--api", "tgi", "--task", "text"],
        &["--request-rate", "200"],
        &["--request-rate", "inf", "--concurrency", "3"],
        &["--warm-up", "2"],
    ] {
        let flags = [SMALL, flags, &["--requests", "9"]].concat();
        let (output, result) = measured(server.port, &flags);
        assert!(
            output.status.success(),
            "{flags:?}: {}",
            text(&output.stderr)
        );
        all_succeeded(&result, 9, 54);
        let summary = &result["summary"];
        let streamed = !flags.contains(&"text");
        assert_eq!(summary["ttft_ms"].is_object(), streamed, "{flags:?}");
        assert_eq!(summary["without_usage"], 0, "{flags:?}");
        if streamed {
            // A chat's event without text is no token's: ends of text, which are not shown, have none.
            let events = summary["events"].as_u64().expect("a count");
            let least = if flags.contains(&"openai-chat") {
                40
            } else {
                54
            };
            assert!((least..=54).contains(&events), "{flags:?}: {events}");
            assert!(
                summary["tpot_ms"]["p50"].as_f64() > Some(1.0),
                "8 ms a step: {summary}"
            );
        }
        assert!(
            result["client"]["core_share"].as_f64() > Some(0.0),
            "{result}"
        );
    }
}

#[test]
fn the_same_prompts_are_found_in_the_cache_and_others_are_not() {
    let server = simulated();
    let flags = |seed| {
        let own = ["--requests", "4", "--input-len", "64", "--seed", seed];
        [SMALL, &own].concat()
    };
    let cached = |seed| {
        let (_, result) = measured(server.port, &flags(seed));
        result["summary"]["cached_tokens"]
            .as_u64()
            .expect("a count")
    };
    assert_eq!(cached("1"), 0);
    assert_eq!(cached("2"), 0, "another seed asks otherwise");
    assert!(cached("1") >= 4 * 48, "the same seed asks the same");
}

#[test]
fn counts_are_checked_with_the_tokenizer() {
    let server = Server::start("llama", &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prompts.jsonl");
    std::fs::write(
        &file,
        "{\"prompt\": \"abc def\"}\n{\"prompt\": \"x\", \"max_tokens\": 3}\n",
    )
    .expect("written");
    let model = tiny("llama");
    let flags = [
        "--dataset",
        "jsonl",
        "--dataset-path",
        file.to_str().expect("UTF-8"),
        "--tokenizer",
        model.to_str().expect("UTF-8"),
        "--max-output-len",
        "5",
        "--ignore-eos",
    ];
    let (_, result) = measured(server.port, &flags);
    all_succeeded(&result, 2, 8);
    let summary = &result["summary"];
    assert_eq!(
        summary["prompt_tokens"], summary["prompt_tokens_counted"],
        "{result}"
    );
    assert!(summary["output_tokens_counted"].is_u64(), "{result}");
}

#[test]
fn the_articles_own_flags_measure_humaneval() {
    let server = simulated();
    let folder = tempfile::tempdir().expect("a folder");
    let problem =
        r#"{"task_id": "HumanEval/0", "prompt": "def add(a, b):\n", "entry_point": "add"}"#;
    std::fs::write(folder.path().join("HumanEval.jsonl"), problem).expect("written");
    let url = format!("http://127.0.0.1:{}", server.port);
    let path = folder.path().to_str().expect("UTF-8");
    let output = ropeteam()
        .args([
            "bench",
            "--DatasetPath",
            path,
            "--DatasetType",
            "humaneval",
            "--ModelName",
            "m",
        ])
        .args([
            "--TestType",
            "client",
            "--Http",
            &url,
            "--Concurrency",
            "128",
        ])
        .args(["--TaskKind", "stream", "--MaxOutputLen", "12"])
        .output();
    let output = output.expect("the tool runs");
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}{}", text(&output.stderr));
    for word in [
        "TTFT",
        "TPOT",
        "p99",
        "1 succeeded, 0 failed",
        "output/s",
        "dataset humaneval",
    ] {
        assert!(table.contains(word), "no {word:?} in\n{table}");
    }
}

#[test]
fn results_are_written_in_every_form_and_compared() {
    let server = simulated();
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (json, csv, html) = (file("a.json"), file("a.csv"), file("a.html"));
    let written = [
        "--json",
        &json,
        "--csv",
        &csv,
        "--html",
        &html,
        "--requests",
        "5",
    ];
    assert!(
        bench(server.port, &[SMALL, &written].concat())
            .status
            .success()
    );
    let read = |path: &str| std::fs::read_to_string(path).expect("a result");
    assert_eq!(read(&csv).lines().count(), 6);
    let page = read(&html);
    assert!(page.matches("<svg").count() == 5 && !page.contains("{{") && page.contains("</html>"));
    assert!(page.contains("ropeteam bench --url"), "the command is told");

    let compared = ropeteam()
        .args(["bench", "--compare", &json, &json])
        .output();
    let table = text(&compared.expect("the tool runs").stdout);
    assert!(
        table.contains("1.00x  same") && table.contains("TTFT p99 ms"),
        "{table}"
    );

    let broken = file("broken.json");
    std::fs::write(&broken, "{}").expect("written");
    let refused = ropeteam()
        .args(["bench", "--compare", &json, &broken])
        .output();
    let refused = refused.expect("the tool runs");
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("broken.json"));
}

#[test]
fn two_servers_are_measured_in_turn() {
    let (a, b) = (simulated(), simulated());
    let other = format!("http://127.0.0.1:{}", b.port);
    let own = ["--requests", "4", "--against", &other, "--rounds", "2"];
    let output = bench(a.port, &[SMALL, &own].concat());
    let (table, rounds) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{table}{rounds}");
    assert!(
        table.contains("median of 2 rounds") && table.contains("B / A"),
        "{table}"
    );
    assert_eq!(rounds.matches("round 2 of 2").count(), 2, "{rounds}");
}

const TOKEN: &str = "data: {\"choices\":[{\"text\":\" a\",\"finish_reason\":null}]}\n\n";

#[test]
fn failures_are_told_apart_by_kind() {
    use Behaviour::{BreaksAfter, Hangs, IsGone, Says, Streams};
    let error = "data: {\"error\":{\"message\":\"device lost\"}}\n\ndata: [DONE]\n\n";
    for (behaviour, kind, said) in [
        (
            Says(
                "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 27\r\n\r\n{\"error\":{\"message\":\"full\"}}",
            ),
            "HTTP 429",
            "full",
        ),
        (
            Says("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops"),
            "HTTP 500",
            "oops",
        ),
        (Streams(TOKEN), "stream cut off", "without its end marker"),
        (
            Streams("data: {\"choices\":[{\"te"),
            "stream cut off",
            "within an event",
        ),
        (BreaksAfter(TOKEN), "stream cut off", ""),
        (Streams(error), "error in stream", "device lost"),
        (Streams("data: {oops}\n\n"), "malformed answer", "oops"),
        (Streams("data: [DONE]\n\n"), "no token", ""),
        (Says(""), "connection broken", ""),
        (Says("SSH-2.0-OpenSSH_9.2\r\n"), "connection broken", ""),
        (Hangs, "timeout", ""),
        (IsGone, "no connection", "refused"),
    ] {
        let port = bad_server::start(behaviour);
        // Only who hangs has to be waited for: others would be cut off where the machine is busy.
        let timeout = if kind == "timeout" { "0.5" } else { "60" };
        let flags = [
            "--requests",
            "2",
            "--concurrency",
            "1",
            "--timeout",
            timeout,
        ];
        let (output, result) = measured(port, &flags);
        assert_eq!(output.status.code(), Some(1), "{behaviour:?}");
        let errors = &result["summary"]["errors"];
        assert_eq!(errors[kind]["count"], 2, "{behaviour:?}: {errors}");
        let example = errors[kind]["example"].as_str().expect("a text");
        assert!(example.contains(said), "{behaviour:?}: {example}");
        assert!(
            text(&output.stdout).contains(&format!("2 x {kind}")),
            "{behaviour:?}"
        );
    }
}

#[test]
fn several_tokens_in_an_event_are_told_and_counted_by_the_server() {
    let stream = concat!(
        "data: {\"choices\":[{\"text\":\" a b c\",\"finish_reason\":null}]}\n\n",
        "data: {\"choices\":[{\"text\":\" d e f\",\"finish_reason\":\"length\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":6}}\n\n",
        "data: [DONE]\n\n",
    );
    let port = bad_server::start(Behaviour::Streams(stream));
    let (output, result) = measured(
        port,
        &["--requests", "3", "--concurrency", "1", "--output-len", "6"],
    );
    all_succeeded(&result, 3, 18);
    let table = text(&output.stdout);
    assert!(table.contains("3.00 tokens per event"), "{table}");
    // The server closes each connection without saying so, and two of them had been kept.
    assert!(
        result["client"]["connections"].as_u64() >= Some(3),
        "{result}"
    );
}

#[test]
fn what_cannot_be_measured_is_told_at_once() {
    let output = bench(1, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("refused"),
        "{}",
        text(&output.stderr)
    );
    let server = simulated();
    let nowhere = Path::new("no/such/folder/result.json");
    let output = bench(server.port, &["--json", nowhere.to_str().expect("UTF-8")]);
    assert!(
        text(&output.stderr).contains("no/such/folder"),
        "{}",
        text(&output.stderr)
    );
    let output = bench(server.port, &["--prompt", "ids", "--api", "tgi"]);
    assert!(
        text(&output.stderr).contains("--api openai"),
        "{}",
        text(&output.stderr)
    );
}
