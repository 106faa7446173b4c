//! What stands in MindIE's place: its three ports and their ends.

use crate::http::{get, open, post, read_answer};
use crate::process::{Server, free_port, ropeteam, tiny};
use serde_json::json;
use std::time::Duration;

#[test]
fn three_ports_tell_metrics_under_every_name() {
    let (management, metrics) = (free_port(), free_port());
    let server = Server::start(
        "llama",
        &[
            "--management-port",
            &management.to_string(),
            "--metrics-port",
            &metrics.to_string(),
            "--management-host",
            "127.0.0.1",
        ],
    );
    let body = json!({"inputs": "abc", "parameters": {"max_new_tokens": 3}});
    assert_eq!(post(server.port, "/infer", &body).status, 200);
    for port in [management, metrics] {
        let page = get(port, "/metrics").body;
        for line in [
            "request_received_total{model_name=\"m\"} 1",
            "request_success_total{model_name=\"m\"} 1",
            "request_failed_total{model_name=\"m\"} 0",
            "tgi_request_count 1",
            "tgi_request_inference_duration_count 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
        assert!(page.contains("time_per_output_token_seconds_bucket{model_name=\"m\",le="));
    }
    let inference = get(server.port, "/metrics").body;
    assert!(
        !inference.contains("\nrequest_received_total"),
        "{inference}"
    );
    assert!(inference.contains("vllm:request_inference_time_seconds_count"));
    assert_eq!(get(metrics, "/health").status, 404);
}

#[test]
fn stop_service_lets_what_runs_finish_and_ends_the_process() {
    let management = free_port();
    let flags = [
        "--management-port",
        &management.to_string(),
        "--debug-step-delay-ms",
        "10",
    ];
    let mut server = Server::start("llama", &flags);
    let body = json!({"prompt": "abcdef", "max_tokens": 60, "temperature": 0, "ignore_eos": true});
    let running = open(server.port, "/generate", &body);
    server.wait_metric("ropeteam_requests_running", 1.0);
    assert_eq!(get(management, "/stopService").status, 200);
    let answer = read_answer(running);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(server.wait(Duration::from_secs(30)).success());
}

#[test]
fn a_forced_stop_ends_what_runs() {
    let management = free_port();
    let flags = [
        "--management-port",
        &management.to_string(),
        "--debug-step-delay-ms",
        "50",
    ];
    let mut server = Server::start("llama", &flags);
    let body = json!({"prompt": "abcdef", "max_tokens": 400, "ignore_eos": true});
    let _running = open(server.port, "/generate", &body);
    server.wait_metric("ropeteam_requests_running", 1.0);
    assert_eq!(get(management, "/stopService?mode=Force").status, 200);
    // To its end the answer would take 20 s.
    assert_eq!(server.wait(Duration::from_secs(15)).code(), Some(6));
}

/// A configuration of MindIE's for a tiny model, in a folder of its own.
fn mindies_config(management: u16) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config.json");
    let config = json!({
        "Version": "1.0.0",
        "ServerConfig": {
            "ipAddress": "127.0.0.1", "managementIpAddress": "127.0.0.1", "port": 1025,
            "managementPort": management, "httpsEnabled": false, "inferMode": "standard",
            "maxLinkNum": 10, "tokenTimeout": 600, "e2eTimeout": 600
        },
        "BackendConfig": {
            "npuDeviceIds": [[0]],
            "ModelDeployConfig": {
                "maxSeqLen": 128, "maxInputTokenLen": 20, "truncation": false,
                "ModelConfig": [{"modelName": "tiny", "worldSize": 1, "npuMemSize": -1,
                    "modelWeightPath": tiny("llama")}]
            },
            "ScheduleConfig": {"cacheBlockSize": 16, "maxPrefillTokens": 64, "maxBatchSize": 8,
                "maxIterTimes": 5, "supportSelectBatch": true}
        }
    });
    std::fs::write(&path, config.to_string()).expect("a file");
    let path = path.to_str().expect("a UTF-8 path").to_owned();
    (folder, path)
}

#[test]
fn mindies_own_configuration_is_served() {
    let management = free_port();
    let (_folder, path) = mindies_config(management);
    let server = Server::start_with(&["--config", &path]);
    let body = json!({"prompt": "abcdef", "max_tokens": 50, "temperature": 0, "ignore_eos": true});
    let answer = post(server.port, "/v1/completions", &body);
    assert_eq!(
        answer.json()["usage"]["completion_tokens"],
        5,
        "{}",
        answer.body
    );
    let long = json!({"inputs": "a b c d e f g h i j k l m n o p q r s t u v w x y z"});
    let answer = post(server.port, "/generate", &long);
    assert_eq!(answer.status, 422, "{}", answer.body);
    assert!(
        answer.body.contains("must have less than 20 tokens"),
        "{}",
        answer.body
    );
    let config = get(management, "/v1/config").json();
    assert_eq!(
        (&config["maxOutputLen"], &config["cacheBlockSize"]),
        (&json!(5), &json!(16))
    );
    assert_eq!(get(management, "/info").json()["max_input_length"], 20);
}

#[test]
fn config_check_tells_what_each_field_of_mindies_became() {
    let (_folder, path) = mindies_config(1026);
    let check = |path: &str| {
        let output = ropeteam().args(["config", "check", path]).output();
        output.expect("it runs")
    };
    let output = check(&path);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    for (field, became) in [
        ("ServerConfig.maxLinkNum", "max_queue 20"),
        (
            "BackendConfig.npuDeviceIds",
            "no meaning here: there is one engine",
        ),
        (
            "BackendConfig.ScheduleConfig.supportSelectBatch",
            "support_select_batch 1",
        ),
    ] {
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(field));
        let line = line.unwrap_or_else(|| panic!("no {field} in\n{text}"));
        assert!(line.contains(became), "{line}");
    }
    let broken = std::fs::read_to_string(&path).expect("the file");
    std::fs::write(
        &path,
        broken.replace("\"maxBatchSize\":8", "\"maxBatchSize\":0"),
    )
    .expect("a file");
    let output = check(&path);
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("BackendConfig.ScheduleConfig.maxBatchSize: 0 is not"),
        "{errors}"
    );
}
