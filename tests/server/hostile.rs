//! What somebody would try who does not believe it: faults at bad moments, several at once, and nonsense for operators' calls.

use crate::http::{completion_stream, get, open, post, read_answer, send, send_raw};
use crate::process::{Server, free_port, runs, signal};
use crate::streams::{begin, end, stream};
use serde_json::{Value, json};
use std::io::Read;
use std::time::{Duration, Instant};

fn undisturbed(count: u64, tokens: u32) -> Vec<(String, String)> {
    end(begin(&Server::start("llama", &[]), count, tokens))
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A server whose devices are processes and whose steps take 15 ms.
fn isolated(flags: &[&str]) -> Server {
    let usual = ["--isolation", "process", "--debug-step-delay-ms", "15"];
    Server::start("llama", &[&usual[..], flags].concat())
}

/// The same with a management port.
fn managed(flags: &[&str]) -> (Server, u16) {
    let port = free_port();
    let text = port.to_string();
    let server = isolated(&[&["--management-port", &text], flags].concat());
    (server, port)
}

#[test]
fn all_devices_are_killed_at_once_and_again() {
    let wanted = undisturbed(12, 80);
    let server = isolated(&["--device-count", "2", "--restart-delay-ms", "10"]);
    server.wait_metric("ropeteam_device_up", 2.0);
    let streams = begin(&server, 12, 80);
    for round in 1..=2 {
        let before = server.decoded();
        wait_until("tokens come", || server.decoded() > before + 100.0);
        let devices = server.device_processes();
        assert_eq!(devices.len(), 2);
        devices.into_iter().for_each(|pid| signal("KILL", pid));
        wait_until("both come back", || {
            server.restarts() == f64::from(2 * round)
        });
        server.wait_metric("ropeteam_device_up", 2.0);
    }
    assert_eq!(end(streams), wanted);
}

#[test]
fn a_device_is_killed_while_long_prompts_with_grammars_are_read() {
    let prompt = "a person named ".repeat(12);
    let body = |seed: u64| {
        json!({"prompt": prompt, "max_tokens": 60, "temperature": 1.0, "seed": seed, "guided_json": {"type": "object",
            "properties": {"age": {"type": "integer", "maximum": 99}}, "required": ["age"], "additionalProperties": false}})
    };
    let ask = |server: &Server, during: &dyn Fn()| -> Vec<Value> {
        let answers: Vec<_> = (0..4)
            .map(|seed| open(server.port, "/v1/completions", &body(seed)))
            .collect();
        during();
        let read = |answer| read_answer(answer).json()["choices"].clone();
        answers.into_iter().map(read).collect()
    };
    let wanted = ask(&Server::start("llama", &[]), &|| ());
    let server = isolated(&["--prefill-chunk-tokens", "16", "--max-prefill-tokens", "16"]);
    let killed = server.device_process(None);
    let found = ask(&server, &|| {
        server.wait_metric("ropeteam_requests_running", 4.0);
        std::thread::sleep(Duration::from_millis(60));
        signal("KILL", killed);
    });
    assert_eq!(found, wanted);
    assert_eq!(server.restarts(), 1.0);
}

#[test]
fn a_device_is_killed_while_its_clients_read_slowly_or_not_at_all() {
    let wanted = undisturbed(3, 120);
    let server = isolated(&[]);
    let mut streams = begin(&server, 3, 120);
    let mut some = [0; 300];
    streams[0].read_exact(&mut some).expect("the first events");
    let killed = server.device_process(None);
    signal("KILL", killed);
    let mut rest = some.to_vec();
    // A few bytes at a time.
    let mut slow = streams.remove(0);
    let mut piece = [0; 2048];
    while let Ok(count @ 1..) = slow.read(&mut piece) {
        rest.extend(&piece[..count]);
        std::thread::sleep(Duration::from_millis(20));
    }
    let rest = String::from_utf8_lossy(&rest);
    let words: String = rest
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
        .filter_map(|event| event["choices"][0]["text"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(words, wanted[0].0);
    // The others read nothing before all was there.
    assert_eq!(end(streams), wanted[1..]);
    assert_eq!(server.restarts(), 1.0);
}

#[test]
fn a_server_that_is_told_to_end_while_its_device_restarts_ends_when_all_is_answered() {
    let wanted = undisturbed(6, 60);
    for stopped in [false, true] {
        let (mut server, management) = managed(&["--step-timeout-ms", "1000"]);
        let streams = begin(&server, 6, 60);
        server.wait_metric("ropeteam_requests_running", 6.0);
        let device = server.device_process(None);
        signal(if stopped { "STOP" } else { "KILL" }, device);
        server.terminate();
        wait_until("it drains", || get(server.port, "/health").status == 503);
        assert_eq!(get(management, "/health/live").status, 200);
        assert_eq!(end(streams), wanted, "stopped: {stopped}");
        assert_eq!(server.wait(Duration::from_secs(30)).code(), Some(0));
        assert!(!runs(device));
    }
}

#[test]
fn a_restart_is_asked_for_several_times_at_once_and_in_the_middle_of_another() {
    let wanted = undisturbed(6, 100);
    let (server, management) = managed(&["--device-count", "2"]);
    server.wait_metric("ropeteam_device_up", 2.0);
    let streams = begin(&server, 6, 100);
    server.wait_metric("ropeteam_requests_running", 6.0);
    let restart = |device: u32| {
        let path = format!("/v1/devices/{device}/restart");
        open(management, &path, &json!({}))
    };
    for _ in 0..3 {
        let calls: Vec<_> = [0, 0, 1, 1, 0].into_iter().map(restart).collect();
        let killed = server.device_processes();
        killed.into_iter().for_each(|pid| {
            // It may be gone already.
            let _ = std::process::Command::new("kill")
                .args(["-KILL", &pid.to_string()])
                .stderr(std::process::Stdio::null())
                .status();
        });
        for call in calls {
            let answer = read_answer(call);
            assert_eq!(answer.status, 202, "{}", answer.body);
        }
        std::thread::sleep(Duration::from_millis(120));
    }
    assert_eq!(end(streams), wanted);
    server.wait_metric("ropeteam_device_up", 2.0);
    assert_eq!(server.device_processes().len(), 2);
}

#[test]
fn nonsense_for_the_configuration_is_refused_and_changes_nothing() {
    let (server, management) = managed(&[]);
    let before = get(management, "/v1/config").body;
    let nonsense = [
        json!(null),
        json!([]),
        json!("max_queue"),
        json!(7),
        json!({"max_queue": -1}),
        json!({"max_queue": 1e300}),
        json!({"max_queue": 1.5}),
        json!({"max_queue": {}}),
        json!({"max_queue": null}),
        json!({"max_decode_batch_size": 0}),
        json!({"prefill_chunk_tokens": 0}),
        json!({"no_such_option": 1}),
        json!({"": ""}),
        json!({"log_level": "loud"}),
        json!({"max_queue": 10, "isolation": "thread"}),
        json!({"max_queue": 10, "debug_poison": 1}),
        json!({"fairness": {"alice": {"weight": 0}}}),
        json!({"x".repeat(10_000): 1}),
    ];
    for body in nonsense {
        let answer = send(management, "PATCH", "/v1/config", &body);
        assert!(
            (400..500).contains(&answer.status),
            "{body}: {} {}",
            answer.status,
            answer.body
        );
    }
    assert_eq!(get(management, "/v1/config").body, before);
    let answer = post(server.port, "/v1/completions", &stream(1, 5));
    assert_eq!(completion_stream(&answer).1, "length");
}

#[test]
fn nonsense_in_deadlines_is_refused_or_bounded_and_an_impossible_one_is_told() {
    let server = isolated(&[]);
    let ask = |header: &str| {
        let body = json!({"prompt": "abc", "max_tokens": 4, "ignore_eos": true}).to_string();
        let request = format!(
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{header}\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        read_answer(send_raw(server.port, request.as_bytes()))
    };
    for name in ["x-request-deadline-ms", "x-slo-ttft-ms"] {
        for value in [
            "-1",
            "soon",
            "",
            "NaN",
            "1e9",
            "inf",
            "0x10",
            "99999999999999999999999",
            "18446744073709551615",
            "9007199254740993",
            "1.5",
            " ",
            "1,2",
        ] {
            let answer = ask(&format!("{name}: {value}"));
            assert!(
                [200, 400].contains(&answer.status),
                "{name}: {value}: {} {}",
                answer.status,
                answer.body
            );
        }
        let twice = ask(&format!("{name}: 60000\r\n{name}: 50000"));
        assert!([200, 400].contains(&twice.status), "{}", twice.body);
    }
    // Less than a step takes.
    let refused = ask("x-request-deadline-ms: 1");
    assert!(
        [408, 429, 503, 504].contains(&refused.status),
        "{}: {}",
        refused.status,
        refused.body
    );
    assert_eq!(server.restarts(), 0.0);
}

#[test]
fn a_full_disk_behind_the_records_costs_records_and_nothing_else() {
    let wanted = undisturbed(2, 40);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("requests.jsonl");
    std::os::unix::fs::symlink("/dev/full", file).expect("a link");
    let folder = folder.path().to_str().expect("UTF-8");
    let server = isolated(&["--record-dir", folder]);
    for _ in 0..2 {
        let streams = begin(&server, 2, 40);
        server.wait_metric("ropeteam_requests_running", 2.0);
        signal("KILL", server.device_process(None));
        assert_eq!(end(streams), wanted);
        server.wait_metric("ropeteam_device_up", 1.0);
    }
}

#[test]
fn two_tenants_lose_nothing_when_their_device_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tenants.json");
    let classes = json!({"classes": {"gold": {"weight": 3}, "small": {"weight": 1, "max_running": 2}},
        "tenants": {"alice": "gold", "bob": "small"}, "others": "small"});
    std::fs::write(&file, classes.to_string()).expect("a file");
    let wanted = undisturbed(8, 40);
    let server = isolated(&["--tenants-file", file.to_str().expect("UTF-8")]);
    let ask = |n: u64| {
        let (tenant, body) = (["alice", "bob"][n as usize % 2], stream(n, 40).to_string());
        let request = format!(
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nx-gateway-inference-fairness-id: {tenant}\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        send_raw(server.port, request.as_bytes())
    };
    let streams: Vec<_> = (0..8).map(ask).collect();
    // Bob's others wait.
    server.wait_metric("ropeteam_requests_running", 6.0);
    signal("KILL", server.device_process(None));
    assert_eq!(end(streams), wanted);
    assert_eq!(server.restarts(), 1.0);
}

#[test]
fn a_killed_device_goes_on_with_the_cache_it_left_and_nothing_piles_up() {
    let wanted = undisturbed(4, 120);
    let descriptors = |server: &Server| {
        let folder = format!("/proc/{}/fd", server.pid());
        let links = std::fs::read_dir(folder).expect("the table");
        let names = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
        names
            .filter(|name| name.to_string_lossy().contains("memfd:ropeteam"))
            .count()
    };
    // Of a crash nothing is trusted: it begins with an empty cache.
    for (name, keeps) in [("KILL", true), ("ABRT", false)] {
        let server = isolated(&["--restart-delay-ms", "10"]);
        for round in 1..=3 {
            let streams = begin(&server, 4, 120);
            let before = server.decoded();
            wait_until("tokens come", || server.decoded() > before + 200.0);
            let hits = server.metric("ropeteam_prefix_cache_hits_total");
            signal(name, server.device_process(None));
            assert_eq!(end(streams), wanted, "{name}");
            let found = server.metric("ropeteam_prefix_cache_hits_total") - hits;
            if round == 1 {
                // Each has ten tokens and about fifty more, in blocks of sixteen.
                assert_eq!(found >= 4.0 * 32.0, keeps, "{name}: {found} tokens found");
            }
            server.wait_metric("ropeteam_device_up", 1.0);
            assert_eq!(descriptors(&server), 2, "{name}");
        }
    }
}
