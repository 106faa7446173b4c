//! Ways of serving that take their own way through an NPU: graphs, steps ahead, and columns that the chip finds.

use super::Cann;
use crate::http::{get, post};
use serde_json::{Value, json};

fn completion(port: u16, prompt: &Value, tokens: usize) -> String {
    let body = json!({"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true});
    let answer = post(port, "/v1/completions", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let text = answer.json()["choices"][0]["text"].clone();
    text.as_str().expect("text").to_owned()
}

/// Several streams at once, of different lengths, so that sequences come and go under steps that were enqueued ahead.
#[test]
fn graphs_and_steps_ahead_change_no_byte_and_launch_little() {
    let cann = Cann::new();
    let run = |flags: &[&str]| {
        let all = [&["--device", "ascend:0", "--dtype", "f16"], flags].concat();
        let server = cann.server("llama", "", &all);
        let texts: Vec<String> = std::thread::scope(|scope| {
            let one = |i: usize| {
                let (server, prompt) = (&server, json!(format!("{i} is a number")));
                scope.spawn(move || completion(server.port, &prompt, 30 + 17 * i))
            };
            let all: Vec<_> = (0..5).map(one).collect();
            let texts = all.into_iter().map(|thread| thread.join().expect("a text"));
            texts.collect()
        });
        let page = get(server.port, "/metrics").body;
        let line = page
            .lines()
            .find(|line| line.starts_with("ropeteam_step_launches") && line.contains("decode"));
        let launches = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        (texts, launches.expect("launches of a decode step"))
    };
    let (texts, launches) = run(&[]);
    let (expected, of_operators) = run(&["--npu-graphs", "off"]);
    assert_eq!(texts, expected);
    assert!(
        launches < of_operators / 2.0,
        "{launches} of {of_operators}"
    );
}

/// A request for log-probabilities needs whole rows, so its tokens are chosen from those.
#[test]
fn columns_that_the_chip_finds_draw_the_tokens_of_whole_rows() {
    let cann = Cann::new();
    let npu = cann.server("llama", "", &["--device", "ascend:0", "--dtype", "bf16"]);
    for (seed, top_k) in [(1, 2), (2, 5), (3, 40), (4, 128), (5, 129)] {
        let drawn = |logprobs: Value| {
            let body = json!({"model": "m", "prompt": "The lighthouse", "max_tokens": 24, "seed": seed, "top_k": top_k,
                "top_p": 0.95, "temperature": 1.1, "ignore_eos": true, "logprobs": logprobs});
            let answer = post(npu.port, "/v1/completions", &body);
            assert_eq!(answer.status, 200, "{}", answer.body);
            answer.json()["choices"][0]["text"].clone()
        };
        assert_eq!(drawn(Value::Null), drawn(json!(1)), "best {top_k}");
    }
}
