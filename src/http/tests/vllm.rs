//! vLLM's extensions of `/v1/completions` and `/v1/chat/completions`, and the `strict` switch.

use super::openai::{asked, chat_state, check_refused, state};
use super::{call, post};
use crate::http::state::AppState;
use actix_web::test::TestRequest;
use actix_web::web::Data;
use ropeteam_models::text::{ChatTemplate, SpecialTokens};
use serde_json::{Value, json};
use std::sync::Arc;

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

pub(super) fn chatted(more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "abc"}], "temperature": 0, "max_tokens": 4,
        "ignore_eos": true});
    let fields = more.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(fields);
    body
}

/// A state whose server has other settings.
pub(super) async fn state_with(change: impl FnOnce(&mut AppState)) -> Data<AppState> {
    let state = chat_state().await.into_inner();
    let mut state = Arc::try_unwrap(state).ok().expect("nobody else holds it");
    change(&mut state);
    Data::new(state)
}

pub(super) fn template(source: &str) -> Arc<ChatTemplate> {
    let template = ChatTemplate::from_source(source, "test", &SpecialTokens::default());
    Arc::new(template.expect("a template"))
}

#[actix_web::test]
async fn prompt_logprobs_rank_the_prompt_s_own_tokens() {
    let state = chat_state().await;
    let body = asked(json!({"prompt_logprobs": 2, "max_tokens": 1}));
    let completion = post(&state, COMPLETIONS, body).await.json();
    let scores = &completion["choices"][0]["prompt_logprobs"];
    let chat = post(&state, CHAT, chatted(json!({"prompt_logprobs": 2})))
        .await
        .json();
    assert_eq!(&chat["prompt_logprobs"], scores, "the same prompt");
    let list = scores.as_array().unwrap();
    assert!(list.len() == 3 && list[0].is_null());
    for (place, own) in list[1..].iter().zip(["2", "3"]) {
        let place = place.as_object().unwrap();
        let score = &place[own];
        let others = place.iter().filter(|(id, _)| *id != own);
        let better = others.clone().filter(|(_, other)| {
            other["logprob"].as_f64().unwrap() > score["logprob"].as_f64().unwrap()
        });
        let rank = score["rank"].as_u64().unwrap() as usize;
        assert!(rank > 2 || better.count() == rank - 1, "{place:?}");
        assert!((2..=3).contains(&place.len()), "{place:?}");
        assert_eq!(score["decoded_token"], if own == "2" { "b" } else { "c" });
    }
    // The same numbers as lm-eval reads from an echo.
    let body = asked(json!({"echo": true, "logprobs": 2, "max_tokens": 1}));
    let echo = post(&state, COMPLETIONS, body).await.json();
    let echoed = &echo["choices"][0]["logprobs"]["token_logprobs"];
    assert_eq!(echoed[1], list[1]["2"]["logprob"]);
    assert_eq!(echoed[2], list[2]["3"]["logprob"]);
    let body = asked(json!({"prompt_logprobs": 1, "stream": true}));
    check_refused(
        &post(&state, COMPLETIONS, body).await,
        400,
        "prompt_logprobs",
    );
    let body = asked(json!({"prompt_logprobs": -1}));
    check_refused(
        &post(&state, COMPLETIONS, body).await,
        400,
        "prompt_logprobs",
    );
}

#[actix_web::test]
async fn token_ids_are_the_same_whole_and_streamed() {
    let state = chat_state().await;
    for (path, body, place) in [
        (
            COMPLETIONS,
            asked(json!({"return_token_ids": true, "n": 2, "temperature": 1, "seed": 1})),
            "/choices/0",
        ),
        (
            CHAT,
            chatted(json!({"return_token_ids": true, "n": 2, "temperature": 1, "seed": 1})),
            "",
        ),
    ] {
        let whole = post(&state, path, body.clone()).await.json();
        let prompt = format!("{place}/prompt_token_ids");
        assert_eq!(whole.pointer(&prompt), Some(&json!([1, 2, 3])));
        let mut streamed = body;
        streamed["stream"] = json!(true);
        let events = post(&state, path, streamed).await.events();
        assert_eq!(events[0].pointer(&prompt), Some(&json!([1, 2, 3])));
        for index in 0..2 {
            let choices = events.iter().map(|event| &event["choices"][0]);
            let ids = choices.filter(|choice| choice["index"] == index);
            let ids: Vec<&Value> = ids
                .filter_map(|c| c["token_ids"].as_array())
                .flatten()
                .collect();
            let all = whole["choices"][index]["token_ids"].as_array().unwrap();
            assert!(!all.is_empty() && all.iter().eq(ids), "{path}");
        }
    }
}

#[actix_web::test]
async fn tokens_may_be_named_by_their_ids() {
    let state = chat_state().await;
    let body = asked(json!({"logprobs": 1, "echo": true, "return_tokens_as_token_ids": true}));
    let json = post(&state, COMPLETIONS, body).await.json();
    let names = &json["choices"][0]["logprobs"]["tokens"];
    assert_eq!(names[0], "token_id:1");
    let body = chatted(json!({"logprobs": true, "return_tokens_as_token_ids": true}));
    let json = post(&state, CHAT, body).await.json();
    let first = &json["choices"][0]["logprobs"]["content"][0]["token"];
    assert!(first.as_str().unwrap().starts_with("token_id:"));
}

#[actix_web::test]
async fn bad_words_and_allowed_tokens_steer_the_output() {
    let state = state().await;
    let text = async |more: Value| {
        let json = post(&state, COMPLETIONS, asked(more)).await.json();
        json["choices"][0]["text"]
            .as_str()
            .expect("text")
            .to_owned()
    };
    let free = text(json!({})).await;
    let (first, pair) = (&free[..1], &free[1..3]);
    assert!(!text(json!({"bad_words": [first]})).await.contains(first));
    let without = text(json!({"bad_words": [pair]})).await;
    assert_eq!(without[..2], free[..2], "only the whole word is bad");
    assert!(!without.contains(pair));
    let only = text(json!({"allowed_token_ids": [24, 25]})).await;
    assert!(
        only.chars().all(|c| "xy".contains(c)) && only.len() == 8,
        "{only}"
    );
    for (field, value) in [
        ("bad_words", json!([""])),
        ("bad_words", json!(["a".repeat(20_000)])),
        ("allowed_token_ids", json!([])),
        ("allowed_token_ids", json!([9999])),
    ] {
        let body = asked(json!({field: value}));
        check_refused(&post(&state, COMPLETIONS, body).await, 400, field);
    }
}

#[actix_web::test]
async fn what_contradicts_itself_still_gets_an_answer() {
    let body = asked(json!({"allowed_token_ids": [0], "min_tokens": 4, "ignore_eos": false}));
    let reply = post(&state().await, COMPLETIONS, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
}

#[actix_web::test]
async fn a_request_may_name_itself() {
    let state = state().await;
    let body = asked(json!({"request_id": "mine"}));
    let reply = post(&state, COMPLETIONS, body.clone()).await;
    assert_eq!(
        (reply.header("x-request-id"), &reply.json()["id"]),
        ("mine", &json!("cmpl-mine"))
    );
    let request = TestRequest::post()
        .uri(COMPLETIONS)
        .insert_header(("x-request-id", "header"));
    let reply = call(&state, request.set_json(body)).await;
    assert_eq!(reply.json()["id"], "cmpl-header", "the header rules");
    let body = asked(json!({"request_id": "two\nlines"}));
    check_refused(&post(&state, COMPLETIONS, body).await, 400, "request_id");
}

#[actix_web::test]
async fn an_echo_repeats_the_assistant_s_last_words() {
    let state = chat_state().await;
    let messages =
        json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"}]);
    let more = json!({"messages": messages, "echo": true, "add_generation_prompt": false,
        "continue_final_message": true});
    let whole = post(&state, CHAT, chatted(more.clone())).await.json();
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.starts_with("bc") && text.len() == 6, "{text}");
    let mut body = chatted(more);
    body["stream"] = json!(true);
    let events = post(&state, CHAT, body).await.events();
    let pieces = events
        .iter()
        .filter_map(|e| e["choices"][0]["delta"]["content"].as_str());
    assert_eq!(pieces.collect::<String>(), text);
    let silent = post(&state, CHAT, chatted(json!({"echo": true})))
        .await
        .json();
    let text = silent["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(text.len(), 4, "the last words are the user's");
}

#[actix_web::test]
async fn documents_and_effort_reach_a_template_that_reads_them_and_are_refused_else() {
    let plain = chat_state().await;
    for more in [
        json!({"documents": [{"text": "x"}]}),
        json!({"reasoning_effort": "low"}),
    ] {
        let field = more.as_object().unwrap().keys().next().unwrap().clone();
        check_refused(&post(&plain, CHAT, chatted(more)).await, 400, &field);
    }
    let reply = post(&plain, CHAT, chatted(json!({"reasoning_effort": "none"}))).await;
    assert_eq!(reply.status, 200, "this model does not think anyway");
    let source = "{% for d in documents %}{{ d.text }}{% endfor %}{{ reasoning_effort }}{{ enable_thinking }}";
    let reading = state_with(|state| {
        state.serving.get_mut().expect("a model").chat = Ok(template(source));
    })
    .await;
    let more = json!({"documents": [{"text": "xyz"}], "reasoning_effort": "none", "return_token_ids": true});
    let json = post(&reading, CHAT, chatted(more)).await.json();
    let ids = json["prompt_token_ids"].as_array().unwrap();
    assert_eq!(ids.len(), "xyznoneFalse".len());
    assert_eq!(ids[..3], [json!(24), json!(25), json!(26)]);
    let body = chatted(json!({"documents": ["x"]}));
    check_refused(&post(&reading, CHAT, body).await, 400, "documents");
}

#[actix_web::test]
async fn a_request_s_own_template_needs_trust() {
    let body = chatted(json!({"chat_template": "xy", "return_token_ids": true}));
    let refused = post(&chat_state().await, CHAT, body.clone()).await;
    check_refused(&refused, 400, "trust-request-chat-template");
    let trusting = state_with(|state| state.limits.own_chat_templates = true).await;
    let json = post(&trusting, CHAT, body).await.json();
    assert_eq!(json["prompt_token_ids"], json!([24, 25]));
    let body = chatted(json!({"chat_template": "{% if %}"}));
    check_refused(&post(&trusting, CHAT, body).await, 400, "chat_template");
}

#[actix_web::test]
async fn a_strict_server_refuses_fields_that_nobody_knows() {
    let strict = state_with(|state| state.limits.strict = true).await;
    for (path, body) in [
        (COMPLETIONS, asked(json!({"frob": 1}))),
        (CHAT, chatted(json!({"frob": 1}))),
        ("/v1/generate", json!({"prompt": "abc", "frob": 1})),
        ("/tokenize", json!({"prompt": "abc", "frob": 1})),
    ] {
        check_refused(&post(&strict, path, body).await, 400, "frob");
    }
    let tgi = post(&strict, "/generate", json!({"inputs": "abc", "frob": 1})).await;
    assert!(
        tgi.status == 422 && tgi.text.contains("frob"),
        "{}",
        tgi.text
    );
    let reply = post(&strict, COMPLETIONS, asked(json!({"user": "u"}))).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
}

#[actix_web::test]
async fn a_cut_prompt_is_echoed_as_it_was_kept() {
    let state = state().await;
    let text = async |prompt: &str, more: Value| {
        let mut body = asked(json!({"prompt": prompt, "max_tokens": 0, "echo": true}));
        let fields = more.as_object().expect("an object").clone();
        body.as_object_mut().expect("an object").extend(fields);
        let json = post(&state, "/v1/completions", body).await.json();
        json["choices"][0]["text"].as_str().map(str::to_owned)
    };
    let kept = text("abcdef", json!({"truncate_prompt_tokens": 3})).await;
    assert_eq!(kept.as_deref(), Some("def"));
    let right = json!({"truncate_prompt_tokens": 3, "truncation_side": "right"});
    assert_eq!(text("abcdef", right).await.as_deref(), Some("abc"));
    let whole = text("ABC", json!({"truncate_prompt_tokens": 3})).await;
    assert_eq!(whole.as_deref(), Some("ABC"), "nothing was cut");
}

#[actix_web::test]
async fn truncation_to_the_limit_leaves_room_for_the_output() {
    let more = json!({"prompt": "a".repeat(300), "max_tokens": 8, "truncate_prompt_tokens": -1});
    let reply = post(&state().await, "/v1/completions", asked(more)).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(reply.json()["usage"]["prompt_tokens"], 120);
}
