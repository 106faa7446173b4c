//! The examples of the README answer as printed: every console block with `$ curl` is run against a real server with
//! the embedded default model. Only what must differ (ids, times) is masked on both sides.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

struct Example {
    command: String,
    printed: String,
}

/// The commands that begin with `curl` in the README's console blocks, each with the output printed below it.
fn examples(readme: &str) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    for block in readme.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        let mut in_command = false;
        for line in block.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                found.push(Example {
                    command: command.to_owned(),
                    printed: String::new(),
                });
                in_command = true;
            } else if let (true, Some(last)) = (in_command, found.last_mut()) {
                last.command.push('\n');
                last.command.push_str(line);
            } else if let Some(last) = found.last_mut() {
                last.printed.push_str(line);
                last.printed.push('\n');
            }
            in_command = in_command && found.last().is_some_and(|l| l.command.ends_with('\\'));
        }
    }
    found.retain(|e| e.command.starts_with("curl"));
    found
}

/// Replaces what differs from run to run or from processor to processor by `*`: ids, times, log-probabilities.
fn masked(text: &str) -> String {
    let mut text = text.trim().to_owned();
    for key in ["\"id\":\"", "\"created\":", "\"logprob\":"] {
        let mut from = 0;
        while let Some(at) = text[from..].find(key) {
            let start = from + at + key.len();
            let length = text[start..].find(['"', ',', '}']).unwrap_or(0);
            text.replace_range(start..start + length, "*");
            from = start;
        }
    }
    text
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn shell(command: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", command])
        .output()
        .expect("a shell");
    assert!(
        output.status.success(),
        "{command}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn free_port() -> u16 {
    let probe = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    probe.local_addr().expect("its address").port()
}

#[test]
fn every_curl_of_the_readme_answers_as_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).expect("README.md");
    let examples = examples(&readme);
    assert!(
        examples.len() >= 6,
        "only {} examples found",
        examples.len()
    );

    let (port, management) = (free_port().to_string(), free_port().to_string());
    let child = Command::new(env!("CARGO_BIN_EXE_ropeteam"))
        .args(["serve", "--port", &port, "--management-port", &management])
        .spawn()
        .expect("the server starts");
    let mut server = Server(child);
    let ready = format!("curl -fs localhost:{port}/health >/dev/null && echo yes || true");
    let deadline = Instant::now() + Duration::from_secs(300); // the model may have to be fetched first
    while shell(&ready).is_empty() {
        assert!(
            server.0.try_wait().expect("a child").is_none(),
            "the server ended"
        );
        assert!(Instant::now() < deadline, "the server did not become ready");
        std::thread::sleep(Duration::from_millis(100));
    }
    for example in examples {
        let command = example.command.replace(":1025", &format!(":{port}"));
        let command = command.replace(":1026", &format!(":{management}"));
        let found = shell(&command.replacen("curl", "curl -s", 1));
        assert_eq!(masked(&found), masked(&example.printed), "\n{command}");
    }
}
