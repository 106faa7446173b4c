//! `/v1/completions`, `/v1/chat/completions` and `/v1/models`.

use super::{Reply, call, get, post, serving_state};
use crate::http::state::AppState;
use actix_web::test::TestRequest;
use actix_web::web::Data;
use ropeteam_models::text::{ChatTemplate, SpecialTokens};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn asked(more: Value) -> Value {
    let mut body = json!({"model": "sim", "prompt": "abc", "temperature": 0, "max_tokens": 8, "ignore_eos": true});
    body.as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    body
}

pub(super) async fn state() -> Data<AppState> {
    serving_state(Duration::ZERO).await
}

/// A state whose template puts the contents one behind the other.
pub(super) async fn chat_state() -> Data<AppState> {
    let state = state().await.into_inner();
    let mut state = Arc::try_unwrap(state).ok().expect("nobody else holds it");
    let source =
        "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if tools %} tools{% endif %}";
    let template =
        ChatTemplate::from_source(source, "test", &SpecialTokens::default()).expect("a template");
    state.serving.get_mut().expect("a model").chat = Ok(Arc::new(template));
    Data::new(state)
}

pub(super) fn check_refused(reply: &Reply, status: u16, field: &str) {
    assert_eq!(reply.status, status, "{}", reply.text);
    let error = &reply.json()["error"];
    assert!(
        error["message"].as_str().is_some_and(|m| m.contains(field)),
        "{}",
        reply.text
    );
    assert_eq!(error["code"], status);
}

#[actix_web::test]
async fn a_completion_has_the_fields_of_the_contract_in_order() {
    let reply = post(&state().await, "/v1/completions", asked(json!({}))).await;
    assert_eq!(reply.status, 200);
    let json = reply.json();
    let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "id",
            "object",
            "created",
            "model",
            "choices",
            "usage",
            "system_fingerprint",
            "service_tier",
            "kv_transfer_params"
        ]
    );
    assert_eq!(json["object"], "text_completion");
    let choice = &json["choices"][0];
    let keys: Vec<&String> = choice.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "index",
            "text",
            "logprobs",
            "finish_reason",
            "stop_reason",
            "token_ids",
            "prompt_token_ids",
            "prompt_logprobs"
        ]
    );
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["text"].as_str().unwrap().len(), 8);
    assert_eq!(
        json["usage"],
        json!({"prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11,
            "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}})
    );
}

#[actix_web::test]
async fn a_stream_says_what_the_whole_answer_says() {
    let state = state().await;
    let whole = post(
        &state,
        "/v1/completions",
        asked(json!({"n": 2, "seed": 7, "temperature": 1})),
    )
    .await
    .json();
    let streamed = asked(json!({"n": 2, "seed": 7, "temperature": 1, "stream": true,
        "stream_options": {"include_usage": true}}));
    let reply = post(&state, "/v1/completions", streamed).await;
    assert_eq!(
        reply.header("content-type"),
        "text/event-stream; charset=utf-8"
    );
    assert_eq!(reply.header("cache-control"), "no-cache");
    assert!(reply.text.ends_with("data: [DONE]\n\n"));
    let events = reply.events();
    for index in 0..2 {
        let choices = events.iter().flat_map(|e| e["choices"].as_array().unwrap());
        let text: String = choices
            .filter(|c| c["index"] == index)
            .map(|c| c["text"].as_str().unwrap())
            .collect();
        assert_eq!(whole["choices"][index]["text"], text);
    }
    let (last, others) = events.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(
        last["usage"]["total_tokens"],
        whole["usage"]["total_tokens"]
    );
    assert!(
        others
            .iter()
            .all(|event| event["usage"].is_null() && event["id"] == last["id"])
    );
    let ends = others
        .iter()
        .filter(|event| event["choices"][0]["finish_reason"] == "length");
    assert_eq!(ends.count(), 2);
}

#[actix_web::test]
async fn prompts_come_in_all_forms_and_answers_in_their_order() {
    let state = state().await;
    let one = post(&state, "/v1/completions", asked(json!({"prompt": "abc"})))
        .await
        .json();
    let ids = post(
        &state,
        "/v1/completions",
        asked(json!({"prompt": [1, 2, 3]})),
    )
    .await
    .json();
    assert_eq!(one["choices"][0]["text"], ids["choices"][0]["text"]);
    let many = post(
        &state,
        "/v1/completions",
        asked(json!({"prompt": [[4], [1, 2, 3]], "n": 2})),
    )
    .await
    .json();
    let indexes: Vec<&Value> = many["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["index"])
        .collect();
    assert_eq!(indexes, [0, 1, 2, 3]);
    assert_eq!(many["choices"][3]["text"], one["choices"][0]["text"]);
    assert_eq!(many["usage"]["prompt_tokens"], 4);
}

#[actix_web::test]
async fn echo_with_logprobs_scores_the_prompt() {
    let body = asked(json!({"max_tokens": 0, "echo": true, "logprobs": 1}));
    let json = post(&state().await, "/v1/completions", body).await.json();
    let choice = &json["choices"][0];
    assert_eq!(choice["text"], "abc");
    let scores = &choice["logprobs"];
    assert_eq!(scores["tokens"], json!(["a", "b", "c"]));
    assert_eq!(scores["text_offset"], json!([0, 1, 2]));
    assert!(scores["token_logprobs"][0].is_null() && scores["top_logprobs"][0].is_null());
    for index in [1, 2] {
        let own = scores["token_logprobs"][index].as_f64().unwrap();
        let top = scores["top_logprobs"][index].as_object().unwrap();
        assert!(own <= 0.0 && top.values().all(|best| best.as_f64().unwrap() >= own));
    }
    assert_eq!(json["usage"]["completion_tokens"], 0);

    let body = asked(json!({"max_tokens": 1, "echo": true, "logprobs": 1}));
    let one = post(&state().await, "/v1/completions", body).await.json();
    assert_eq!(
        one["choices"][0]["logprobs"]["tokens"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
}

#[actix_web::test]
async fn an_array_is_no_request() {
    let state = chat_state().await;
    for path in ["/v1/completions", "/v1/chat/completions", "/v1/generate"] {
        let reply = post(&state, path, json!(["C", 2, 0.5, false])).await;
        check_refused(&reply, 400, "expected an object");
    }
    let body = asked(json!({"stream": true, "stream_options": [true, false]}));
    check_refused(
        &post(&state, "/v1/completions", body).await,
        400,
        "stream_options",
    );
}

#[actix_web::test]
async fn what_is_not_offered_and_cannot_be_read_is_refused_by_name() {
    let request = TestRequest::post()
        .uri("/v1/completions")
        .insert_header(("content-type", "application/json"))
        .set_payload(r#"{"prompt":"abc","max_tokens":2,"structural_tag":1e400}"#);
    check_refused(&call(&state().await, request).await, 400, "structural_tag");
}

#[actix_web::test]
async fn unknown_fields_inside_known_ones_are_named_too() {
    let state = chat_state().await;
    let body = json!({
        "messages": [{"role": "user", "content": "abc", "bogus": 1}],
        "max_tokens": 2, "stream": true, "stream_options": {"include_usage": true, "bogus": 1}
    });
    let reply = post(&state, "/v1/chat/completions", body).await;
    assert_eq!(
        reply.header("x-ropeteam-ignored-fields"),
        "stream_options.bogus, messages.0.bogus"
    );
}

#[actix_web::test]
async fn best_of_shows_the_likeliest() {
    let state = state().await;
    let body = asked(json!({"temperature": 1, "seed": 3, "n": 1, "best_of": 4}));
    let json = post(&state, "/v1/completions", body).await.json();
    assert_eq!(json["choices"].as_array().unwrap().len(), 1);
    assert_eq!(json["usage"]["completion_tokens"], 32);
    let body = asked(json!({"n": 3, "best_of": 2}));
    check_refused(&post(&state, "/v1/completions", body).await, 400, "best_of");
}

#[actix_web::test]
async fn wrong_fields_are_refused_by_name() {
    let state = state().await;
    for (field, value) in [
        ("max_tokens", json!("twenty")),
        ("max_tokens", json!(-1)),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(4_000_000)),
        ("temperature", json!(2.5)),
        ("top_p", json!(0)),
        ("min_p", json!(-0.1)),
        ("top_k", json!(-2)),
        ("n", json!(0)),
        ("n", json!(100_000)),
        ("logprobs", json!(21)),
        ("stop", json!([""])),
        ("stop", json!({"a": 1})),
        ("stop_token_ids", json!([200_000])),
        ("stop_token_ids", json!([-1])),
        ("logit_bias", json!({"x": 1})),
        ("logit_bias", json!({"1": 101})),
        ("min_tokens", json!(9)),
        ("stream", json!("yes")),
        ("stream_options", json!({"include_usage": true})),
        ("prompt", json!([])),
        ("prompt", json!([[]])),
        ("prompt", json!([28])),
        ("prompt", json!(["a", 1])),
        ("suffix", json!("x")),
        ("tools", json!([])),
        ("structural_tag", json!({})),
        ("response_format", json!({"type": "structural_tag"})),
        ("cache_salt", json!("x".repeat(129))),
    ] {
        let mut body = asked(json!({}));
        body[field] = value;
        let reply = post(&state, "/v1/completions", body).await;
        let name = if field == "max_tokens" && reply.text.contains("tokens is over") {
            "over"
        } else {
            field
        };
        check_refused(&reply, 400, name);
    }
    let reply = post(&state, "/v1/completions", asked(json!({"model": "nosuch"}))).await;
    check_refused(&reply, 404, "nosuch");
    check_refused(
        &post(&state, "/v1/completions", json!({"model": "sim"})).await,
        400,
        "prompt",
    );
    assert_eq!(
        post(&state, "/v1/completions", asked(json!({})))
            .await
            .status,
        200
    );
}

#[actix_web::test]
async fn what_is_no_json_is_refused() {
    let state = state().await;
    for body in [
        "",
        "[]",
        "null",
        "{\"model\":\"sim\",}",
        "{\"prompt\":\"x\\ud83d\"}",
    ] {
        let request = TestRequest::post().uri("/v1/completions").set_payload(body);
        assert_eq!(call(&state, request).await.status, 400, "{body}");
    }
    let request = TestRequest::post()
        .uri("/v1/completions")
        .insert_header(("content-type", "text/plain"));
    let reply = call(&state, request.set_payload(asked(json!({})).to_string())).await;
    assert_eq!(reply.status, 415);
}

#[actix_web::test]
async fn unknown_fields_are_named_in_a_header_and_harmless_ones_are_not() {
    let body = asked(
        json!({"some_extra": 1, "user": "u\r\nSet-Cookie: a=b", "metadata": {}, "use_beam_search": false}),
    );
    let reply = post(&state().await, "/v1/completions", body).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("x-ropeteam-ignored-fields"), "some_extra");
    assert!(!reply.headers.contains_key("set-cookie"));
}

#[actix_web::test]
async fn a_chat_answers_in_the_shape_of_the_contract() {
    let state = chat_state().await;
    let body = json!({"model": "sim", "messages": [{"role": "user", "content": "abc"}], "temperature": 0,
        "max_completion_tokens": 4, "max_tokens": 9, "logprobs": true, "top_logprobs": 2, "ignore_eos": true});
    let json = post(&state, "/v1/chat/completions", body).await.json();
    assert_eq!(json["object"], "chat.completion");
    assert!(json["id"].as_str().unwrap().starts_with("chatcmpl-"));
    let choice = &json["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    assert!(choice["message"]["refusal"].is_null());
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(json["usage"]["completion_tokens"], 4);
    let scores = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(scores.len(), 4);
    let keys: Vec<&String> = scores[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["token", "logprob", "bytes", "top_logprobs"]);
    assert_eq!(scores[0]["top_logprobs"].as_array().unwrap().len(), 2);
    assert_eq!(scores[0]["top_logprobs"][0]["token"], scores[0]["token"]);
}

#[actix_web::test]
async fn a_chat_stream_begins_with_the_role_and_ends_with_one_reason() {
    let state = chat_state().await;
    let body = json!({"model": "sim", "messages": [{"role": "user", "content": "abc"}], "temperature": 0,
        "max_tokens": 3, "stream": true, "ignore_eos": true});
    let reply = post(&state, "/v1/chat/completions", body).await;
    let events = reply.events();
    assert_eq!(
        events[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    assert!(
        events
            .iter()
            .all(|event| event["object"] == "chat.completion.chunk")
    );
    assert!(events.iter().all(|event| event.get("usage").is_none()));
    let (last, others) = events.split_last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "length");
    assert_eq!(last["choices"][0]["delta"], json!({}));
    assert!(
        others
            .iter()
            .all(|event| event["choices"][0]["finish_reason"].is_null())
    );
    assert_eq!(reply.text.matches("[DONE]").count(), 1);
}

#[actix_web::test]
async fn wrong_chats_are_refused_by_name() {
    let state = chat_state().await;
    let user = json!([{"role": "user", "content": "abc"}]);
    for (body, field) in [
        (json!({"messages": []}), "messages"),
        (
            json!({"messages": [{"role": "user", "content": ""}]}),
            "messages: it has no tokens",
        ),
        (
            json!({"messages": [{"role": "user", "content": 7}]}),
            "messages",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            "image_url",
        ),
        (json!({"messages": user, "max_tokens": 0}), "max_tokens"),
        (json!({"messages": user, "top_logprobs": 3}), "top_logprobs"),
        (
            json!({"messages": user, "logprobs": true, "top_logprobs": -1}),
            "top_logprobs",
        ),
        (json!({"messages": user, "tools": []}), "tools"),
        (
            json!({"messages": user, "tool_choice": "required"}),
            "tool_choice",
        ),
        (
            json!({"messages": user, "response_format": {"type": "structural_tag"}}),
            "response_format",
        ),
        (
            json!({"messages": user, "structured_outputs": {"structural_tag": {}}}),
            "structured_outputs",
        ),
    ] {
        check_refused(
            &post(&state, "/v1/chat/completions", body).await,
            400,
            field,
        );
    }
    let no_template = super::serving_state(Duration::ZERO).await;
    let reply = post(
        &no_template,
        "/v1/chat/completions",
        json!({"messages": user}),
    )
    .await;
    check_refused(&reply, 400, "template");
}

#[actix_web::test]
async fn clients_that_know_no_model_name_are_served() {
    let state = state().await;
    for name in ["tgi", "dummy", "http://127.0.0.1:1025", "other-name"] {
        let reply = post(&state, "/v1/completions", asked(json!({"model": name}))).await;
        assert_eq!(reply.json()["model"], "sim");
    }
}

#[actix_web::test]
async fn a_message_with_calls_only_needs_no_content() {
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    // One that does not look, one that tells such a message by its null, one that looks at something else.
    for (text, ids) in [
        ("'x' + m['content']", json!([24, 25, 24])),
        (
            "'z' if m['content'] is none else m['content']",
            json!([25, 26]),
        ),
        (
            "'' if m['other'] is none else 'x' + m['content']",
            json!([24, 25, 24]),
        ),
    ] {
        let source = format!("{{% for m in messages %}}{{{{ {text} }}}}{{% endfor %}}");
        let template = ChatTemplate::from_source(&source, "test", &SpecialTokens::default());
        let mut state = state().await.into_inner();
        let serving = Arc::get_mut(&mut state).expect("nobody else holds it");
        let serving = serving.serving.get_mut().expect("a model");
        serving.chat = Ok(Arc::new(template.expect("a template")));
        let body = json!({"return_token_ids": true, "max_tokens": 1, "messages": [
            {"role": "user", "content": "y"}, {"role": "assistant", "content": null, "tool_calls": [call]}]});
        let reply = post(&Data::from(state), "/v1/chat/completions", body).await;
        assert_eq!(reply.status, 200, "{source}: {}", reply.text);
        assert_eq!(reply.json()["prompt_token_ids"], ids, "{source}");
    }
}

#[actix_web::test]
async fn models_are_listed_with_their_length() {
    let state = state().await;
    let list = get(&state, "/v1/models").await.json();
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][0]["id"], "sim");
    assert_eq!(list["data"][0]["max_model_len"], 128);
    assert_eq!(list["data"][1]["id"], "other-name");
    assert_eq!(get(&state, "/v1/models/sim").await.json()["id"], "sim");
    check_refused(
        &get(&state, "/v1/models/org/nosuch").await,
        404,
        "org/nosuch",
    );
}
