//! Answers of a given form on every dialect, streamed and whole, and the refusals. The simulated model knows small letters and blanks only,
//! so JSON is left to the tests with a real one.

use super::{Reply, post, serving_state};
use crate::http::state::AppState;
use actix_web::web::Data;
use serde_json::{Value, json};
use std::time::Duration;

async fn state() -> Data<AppState> {
    serving_state(Duration::ZERO).await
}

async fn completion(state: &Data<AppState>, more: Value) -> Reply {
    let mut body = json!({"prompt": "abc", "max_tokens": 12, "temperature": 1.5, "seed": 5});
    let fields = more.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(fields);
    post(state, "/v1/completions", body).await
}

/// Text and finish reason of every choice.
fn choices(reply: &Reply) -> Vec<(String, String)> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    let json = reply.json();
    let choices = json["choices"].as_array().expect("choices").iter();
    let word = |value: &Value| value.as_str().expect("a string").to_owned();
    choices
        .map(|c| (word(&c["text"]), word(&c["finish_reason"])))
        .collect()
}

#[actix_web::test]
async fn every_choice_obeys_and_ends_by_itself() {
    let state = state().await;
    let texts = ["north", "south", "east"];
    for fields in [
        json!({"guided_choice": texts}),
        json!({"structured_outputs": {"choice": texts}}),
        json!({"guided_regex": "(nor|sou)th|east"}),
        json!({"guided_grammar": "root ::= (\"nor\" | \"sou\") \"th\" | \"east\""}),
        json!({"guided_grammar": "start: STEM \"th\" | \"east\"\nSTEM: /(nor|sou)/"}),
    ] {
        let mut more = fields.clone();
        more["n"] = json!(4);
        for (text, reason) in choices(&completion(&state, more).await) {
            assert!(texts.contains(&text.as_str()), "{fields}: {text}");
            assert_eq!(reason, "stop");
        }
    }
}

#[actix_web::test]
async fn a_stream_carries_the_very_text_of_the_whole_answer() {
    let state = state().await;
    let fields = json!({"guided_regex": "[a-f]{9}"});
    let (whole, _) = choices(&completion(&state, fields.clone()).await).remove(0);
    let mut streamed = fields;
    streamed["stream"] = json!(true);
    let reply = completion(&state, streamed).await;
    let events = reply.events();
    let pieces = events
        .iter()
        .filter_map(|e| e["choices"][0]["text"].as_str());
    assert_eq!(pieces.collect::<String>(), whole);
    let last = &events[events.len() - 1]["choices"][0];
    assert_eq!(last["finish_reason"], "stop");
    assert_eq!(whole.len(), 9);
}

#[actix_web::test]
async fn what_is_cut_is_a_beginning_and_says_so() {
    let more = json!({"guided_regex": "a{40}", "max_tokens": 5});
    let cut = choices(&completion(&state().await, more).await);
    assert_eq!(cut, [("aaaaa".to_owned(), "length".to_owned())]);
}

#[actix_web::test]
async fn the_form_counts_more_than_what_forbids_it() {
    let state = state().await;
    // Only the end may come after "ab", which min_tokens forbids; a bias of -100 is no reason either.
    let more = json!({"guided_choice": ["ab"], "min_tokens": 9, "logit_bias": {"1": -100}});
    let answer = choices(&completion(&state, more).await);
    assert_eq!(answer, [("ab".to_owned(), "stop".to_owned())]);
}

#[actix_web::test]
async fn a_grammar_of_tgi_is_obeyed_on_its_routes() {
    let state = state().await;
    let grammar = json!({"type": "regex", "value": "x(yz){2}"});
    let body = json!({"inputs": "abc", "parameters": {"grammar": grammar, "details": true}});
    let reply = post(&state, "/generate", body.clone()).await;
    assert_eq!(reply.json()["generated_text"], "xyzyz", "{}", reply.text);
    assert_eq!(reply.json()["details"]["finish_reason"], "eos_token");
    let reply = post(&state, "/generate_stream", body).await;
    let events = reply.events();
    assert_eq!(events[events.len() - 1]["generated_text"], "xyzyz");
}

#[actix_web::test]
async fn what_cannot_be_obeyed_is_refused_by_its_field() {
    let state = state().await;
    for (fields, param, words) in [
        (json!({"guided_regex": "(a"}), "guided_regex", "unclosed"),
        (
            json!({"guided_json": {"type": "strin"}}),
            "guided_json",
            "strin",
        ),
        (
            json!({"guided_regex": "A"}),
            "guided_regex",
            "no text satisfies it",
        ),
        (
            json!({"guided_choice": []}),
            "guided_choice",
            "at least one",
        ),
        (
            json!({"guided_choice": ["a"], "ignore_eos": true}),
            "ignore_eos",
            "guided_choice",
        ),
        (
            json!({"guided_choice": ["a"], "guided_regex": "a"}),
            "guided_choice",
            "together",
        ),
    ] {
        let reply = completion(&state, fields.clone()).await;
        let error = &reply.json()["error"];
        assert_eq!(
            (reply.status.as_u16(), &error["param"]),
            (400, &json!(param)),
            "{fields}"
        );
        assert!(
            error["message"].as_str().is_some_and(|m| m.contains(words)),
            "{error}"
        );
    }
    let grammar = json!({"type": "regex", "value": "(a"});
    let body = json!({"inputs": "abc", "parameters": {"grammar": grammar}});
    let reply = post(&state, "/generate", body).await;
    assert_eq!(reply.status, 422, "{}", reply.text);
    assert_eq!(reply.json()["error_type"], "validation");
}
