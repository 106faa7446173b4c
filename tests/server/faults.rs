//! A device that dies in the middle of a stream: the client sees a pause, then the very tokens it would have seen.

use crate::http::{completion_stream, post};
use crate::process::Server;
use serde_json::json;

#[test]
fn a_stream_survives_its_device_token_for_token() {
    let undisturbed = Server::start("llama", &[]);
    for (temperature, n) in [(0.0, 1), (1.0, 1), (1.0, 3)] {
        let request = json!({"model": "m", "prompt": "abcdefghij", "max_tokens": 30, "n": n, "seed": 5,
            "temperature": temperature, "ignore_eos": true});
        let wanted = post(undisturbed.port, "/v1/completions", &request).json()["choices"].clone();
        for step in ["1", "2", "17"] {
            let server = Server::start("llama", &["--debug-fault-at-step", step]);
            let found = post(server.port, "/v1/completions", &request).json()["choices"].clone();
            assert_eq!(
                found, wanted,
                "fault at step {step}, temperature {temperature}, n {n}"
            );
            assert!(
                server.metric("ropeteam_device_restarts_total") >= 1.0,
                "else no fault happened"
            );
        }
    }
}

#[test]
fn a_streamed_answer_goes_on_after_the_restart() {
    let mut request = json!({"model": "m", "prompt": "klmnopqrst", "max_tokens": 30, "temperature": 0,
        "ignore_eos": true});
    let undisturbed = Server::start("llama", &[]);
    let wanted =
        post(undisturbed.port, "/v1/completions", &request).json()["choices"][0]["text"].clone();
    let server = Server::start("llama", &["--debug-fault-at-step", "11"]);
    request["stream"] = true.into();
    let (text, finish) = completion_stream(&post(server.port, "/v1/completions", &request));
    assert_eq!(
        (text.as_str(), finish.as_str()),
        (wanted.as_str().expect("text"), "length")
    );
    assert!(
        server.metric("ropeteam_device_restarts_total") >= 1.0,
        "else no fault happened"
    );
}
