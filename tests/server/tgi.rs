//! What of TGI's dialect needs a real tokenizer and chat template.

use crate::http::post;
use crate::process::Server;
use serde_json::json;

#[test]
fn a_chat_is_shown_as_the_prompt_it_becomes() {
    let server = Server::start("qwen2", &["--tgi-version", "3"]);
    let chat = json!({"model": "tgi", "messages": [{"role": "user", "content": "Hi there"}]});
    let answer = post(server.port, "/chat_tokenize", &chat);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = answer.json();
    let text = answer["templated_text"].as_str().expect("a text");
    assert!(text.contains("Hi there"), "{text}");
    let tokens = answer["tokenize_response"].as_array().expect("tokens");
    let mut end = 0;
    for token in tokens {
        let place = |name: &str| token[name].as_u64().expect("a number") as usize;
        assert_eq!(
            token["text"],
            text[place("start")..place("stop")],
            "{token}"
        );
        assert!(place("start") >= end, "{token}");
        end = place("stop");
    }
    assert_eq!(end, text.len());
    let answer = post(server.port, "/chat_tokenize", &json!({"messages": [7]}));
    assert_eq!(answer.status, 422, "{}", answer.body);
    // SageMaker's route takes the same chat.
    let answer = post(
        server.port,
        "/invocations",
        &json!({"max_tokens": 2, "model": "m",
        "messages": chat["messages"]}),
    );
    assert_eq!(
        answer.json()["object"],
        "chat.completion",
        "{}",
        answer.body
    );
}
