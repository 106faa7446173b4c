//! How commands other than `serve` end: at a signal, and when something failed on the way.

use crate::process::{ropeteam, signal, tiny};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Exit code of a command that a signal cut short.
const SIGNALLED: Option<i32> = Some(7);

fn begin(command: &mut Command) -> Child {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    piped.stderr(Stdio::piped()).spawn().expect("it starts")
}

#[test]
fn a_signal_gives_every_command_the_same_exit_code() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = format!("http://{}", listener.local_addr().expect("its address"));
    let model = tiny("llama").into_os_string().into_string().expect("UTF-8");
    let long = ["--max-tokens", "400", "--debug-step-delay-ms", "2000"];
    let generate = [&["generate", "a", "--model", &model][..], &long].concat();
    let chat = vec!["chat", "--model", &model];
    let bench = vec!["bench", "--url", &silent];
    for words in [generate, chat, bench] {
        let mut child = begin(ropeteam().args(&words));
        let input = child.stdin.take();
        // Where it takes over the signals cannot be seen from outside; it is long before this.
        std::thread::sleep(Duration::from_millis(700));
        signal("TERM", child.id());
        let output = child.wait_with_output().expect("it ends");
        drop(input);
        assert_eq!(output.status.code(), SIGNALLED, "{words:?}: {output:?}");
    }
}

fn chat(said: &str, flags: &[&str]) -> (Option<i32>, String) {
    let mut command = ropeteam();
    command
        .args(["chat", "--max-tokens", "3", "--model"])
        .arg(tiny("llama"));
    let mut child = begin(command.args(flags));
    let mut input = child.stdin.take().expect("its input");
    input.write_all(said.as_bytes()).expect("it listens");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), told)
}

#[test]
fn a_piped_chat_tells_by_its_exit_code_that_an_answer_failed() {
    assert_eq!(chat("Hi\n", &[]).0, Some(0));
    let (code, told) = chat("Hi\n", &["--stop", ""]);
    assert_eq!(code, Some(1), "{told}");
    let (code, told) = chat(&"rope ".repeat(2000), &[]);
    assert_eq!(code, Some(1), "{told}");
    let (code, told) = chat("/exit\n/nonsense\n", &[]);
    assert!(code == Some(0) && !told.contains("nonsense"), "{told}");
}
