//! Keys reach no log, whatever goes wrong with them.

use crate::http::{get, post, read_answer, send_raw};
use crate::process::{free_port, ropeteam, tiny};
use serde_json::json;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

const CLIENT: &str = "sk-client-0451-secret";
const OPERATOR: &str = "sk-operator-0451-secret";

#[test]
fn keys_reach_no_log_and_no_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, key: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("{key}\n")).expect("written");
        path
    };
    let (port, management) = (free_port(), free_port());
    let mut child = ropeteam()
        .args(["serve", "--log-level", "trace", "--log-requests", "full"])
        .args(["--port", &port.to_string()])
        .args(["--management-port", &management.to_string()])
        .arg("--api-key-file")
        .arg(file("clients", CLIENT))
        .arg("--management-key-file")
        .arg(file("operators", OPERATOR))
        .arg("--model")
        .arg(tiny("llama"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let read = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = from.read_to_string(&mut text);
            text
        })
    };
    let out = read(Box::new(child.stdout.take().expect("its stdout")));
    let errors = read(Box::new(child.stderr.take().expect("its stderr")));
    let deadline = Instant::now() + Duration::from_secs(60);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err()
        || get(port, "/health").status != 200
    {
        assert!(Instant::now() < deadline, "the server did not become ready");
        std::thread::sleep(Duration::from_millis(20));
    }

    let body = json!({"model": "m", "prompt": "abc", "max_tokens": 2}).to_string();
    let asked = |port: u16, method: &str, path: &str, key: &str| {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        read_answer(send_raw(port, head.as_bytes()))
    };
    let mut answers = vec![
        asked(port, "POST", "/v1/completions", CLIENT),
        asked(port, "POST", "/v1/completions", &format!("{CLIENT}x")),
        asked(port, "POST", "/generate", &CLIENT.to_uppercase()),
        asked(management, "POST", "/v1/devices/0/restart", OPERATOR),
        asked(management, "GET", "/v1/status", OPERATOR),
        asked(management, "GET", "/v1/config", OPERATOR),
        asked(management, "PATCH", "/v1/config", CLIENT),
    ];
    assert_eq!(answers[3].status, 202, "{}", answers[3].body);
    assert_eq!(answers[6].status, 401, "{}", answers[6].body);
    answers.push(post(port, "/v1/completions", &json!({"prompt": "abc"})));
    child.kill().expect("killed");
    let _ = child.wait();
    let logs = [out.join().expect("read"), errors.join().expect("read")];
    assert!(logs[1].contains("management call"), "{}", logs[1]);
    let answers = answers.iter().map(|answer| answer.body.clone());
    for text in logs.into_iter().chain(answers) {
        let text = text.to_lowercase();
        for secret in [CLIENT, OPERATOR] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}
