//! The TGI routes.

use super::{get, post, serving_state};
use crate::http::state::AppState;
use crate::http::tgi::Version;
use actix_web::web::Data;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

#[actix_web::test]
async fn a_whole_answer_is_text_alone_unless_details_are_wanted() {
    let state = serving_state(Duration::ZERO).await;
    let reply = post(
        &state,
        "/generate",
        json!({"inputs": "abc", "parameters": {"max_new_tokens": 4, "ignore_eos": true}}),
    )
    .await;
    assert_eq!(reply.status, 200);
    let json = reply.json();
    assert_eq!(json.as_object().unwrap().len(), 1);
    assert_eq!(json["generated_text"].as_str().unwrap().len(), 4);
    assert_eq!(reply.header("x-compute-type"), "gpu+optimized");
    assert_eq!(reply.header("x-compute-characters"), "3");
    for name in [
        "x-compute-time",
        "x-total-time",
        "x-validation-time",
        "x-queue-time",
        "x-inference-time",
        "x-time-per-token",
    ] {
        assert!(reply.header(name).parse::<u64>().is_ok(), "{name}");
    }
}

#[actix_web::test]
async fn details_have_the_originals_fields() {
    let state = serving_state(Duration::ZERO).await;
    let parameters =
        json!({"max_new_tokens": 4, "decoder_input_details": true, "ignore_eos": true});
    let json = post(
        &state,
        "/generate",
        json!({"inputs": "abc", "parameters": parameters}),
    )
    .await
    .json();
    let details = &json["details"];
    let keys: Vec<&String> = details.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "finish_reason",
            "generated_tokens",
            "seed",
            "prefill",
            "tokens"
        ]
    );
    assert_eq!(details["finish_reason"], "length");
    assert!(details["seed"].is_null(), "nothing was drawn");
    assert_eq!(details["prefill"].as_array().unwrap().len(), 3);
    assert_eq!(
        details["prefill"][0],
        json!({"id": 1, "text": "a", "logprob": null})
    );
    assert!(details["prefill"][1]["logprob"].as_f64().unwrap() < 0.0);
    assert_eq!(details["tokens"].as_array().unwrap().len(), 4);
    assert_eq!(details["tokens"][0]["special"], false);
    assert!(details["tokens"][0]["logprob"].is_f64());

    let parameters = json!({"max_new_tokens": 4, "details": true, "do_sample": true, "best_of": 2});
    let json = post(
        &state,
        "/generate",
        json!({"inputs": "abc", "parameters": parameters}),
    )
    .await
    .json();
    assert!(json["details"]["seed"].is_u64());
    assert_eq!(json["details"]["prefill"], json!([]));
    assert_eq!(
        json["details"]["best_of_sequences"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[actix_web::test]
async fn the_last_event_of_a_stream_carries_the_whole_text() {
    let state = serving_state(Duration::ZERO).await;
    let parameters = json!({"max_new_tokens": 5, "details": true, "seed": 5, "do_sample": true, "ignore_eos": true});
    let body = json!({"inputs": "abc", "parameters": parameters});
    let whole = post(&state, "/generate", body.clone()).await.json();
    let reply = post(&state, "/generate_stream", body).await;
    assert!(
        reply.text.starts_with("data:{\"token\":{\"id\":"),
        "{}",
        reply.text
    );
    assert!(!reply.text.contains("[DONE]"));
    let events = reply.events();
    assert_eq!(events.len(), 5);
    let (last, others) = events.split_last().unwrap();
    assert!(
        others
            .iter()
            .all(|event| event["generated_text"].is_null() && event["details"].is_null())
    );
    assert_eq!(last["generated_text"], whole["generated_text"]);
    assert_eq!(
        last["details"],
        json!({"finish_reason": "length", "generated_tokens": 5, "seed": 5})
    );
    let pieces: String = events
        .iter()
        .filter(|event| event["token"]["special"] == false)
        .map(|event| event["token"]["text"].as_str().unwrap())
        .collect();
    assert_eq!(last["generated_text"], pieces);
}

#[actix_web::test]
async fn a_stop_sequence_stays_in_the_text_and_ends_the_stream() {
    let state = serving_state(Duration::ZERO).await;
    let parameters = json!({"max_new_tokens": 20, "ignore_eos": true});
    let whole = post(
        &state,
        "/generate",
        json!({"inputs": "abc", "parameters": parameters}),
    )
    .await
    .json();
    let text = whole["generated_text"].as_str().unwrap();
    let stop = &text[5..7];
    let upto = &text[..text.find(stop).unwrap() + 2];
    let parameters =
        json!({"max_new_tokens": 20, "ignore_eos": true, "stop": [stop], "details": true});
    let events = post(
        &state,
        "/generate_stream",
        json!({"inputs": "abc", "parameters": parameters}),
    )
    .await
    .events();
    let last = events.last().unwrap();
    assert_eq!(last["generated_text"], upto);
    assert_eq!(last["details"]["finish_reason"], "stop_sequence");
    assert_eq!(
        events
            .iter()
            .filter(|event| event["generated_text"].is_string())
            .count(),
        1
    );
    assert_eq!(events.len(), upto.len());
}

#[actix_web::test]
async fn the_root_answers_with_an_array_and_repeats_the_prompt_when_told() {
    let state = serving_state(Duration::ZERO).await;
    let asked = |more: Value| {
        let mut body =
            json!({"inputs": "abc", "parameters": {"max_new_tokens": 2, "ignore_eos": true}});
        let fields = more.as_object().expect("an object").clone();
        body["parameters"]
            .as_object_mut()
            .expect("an object")
            .extend(fields);
        body
    };
    let json = post(&state, "/invocations", asked(json!({}))).await.json();
    assert_eq!(json[0]["generated_text"].as_str().unwrap().len(), 2);
    let full = asked(json!({"return_full_text": true}));
    let json = post(&state, "/", full.clone()).await.json();
    let text = json[0]["generated_text"].as_str().unwrap();
    assert!(text.starts_with("abc"), "{text}");
    let mut streamed = full;
    streamed["stream"] = true.into();
    let events = post(&state, "/", streamed).await.events();
    assert_eq!(events.last().unwrap()["generated_text"], text);
}

#[actix_web::test]
async fn refusals_have_the_originals_statuses_and_texts() {
    let state = serving_state(Duration::ZERO).await;
    let check = async |path: &str, body, status: u16, error: &str| {
        let reply = post(&state, path, body).await;
        assert_eq!(reply.status, status, "{}", reply.text);
        assert_eq!(reply.json()["error"], error);
        assert_eq!(reply.json()["error_type"], "validation");
    };
    let with = |parameters| json!({"inputs": "abc", "parameters": parameters});
    check(
        "/generate",
        with(json!({"temperature": 0.0})),
        422,
        "Input validation error: `temperature` must be strictly positive",
    )
    .await;
    check(
        "/generate",
        with(json!({"max_new_tokens": 10_000})),
        422,
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 128. Given: 3 `inputs` tokens and 10000 `max_new_tokens`",
    )
    .await;
    check(
        "/generate",
        json!({"inputs": ""}),
        422,
        "Input validation error: `inputs` cannot be empty",
    )
    .await;
    check(
        "/generate_stream",
        with(json!({"best_of": 2, "do_sample": true})),
        422,
        "Input validation error: `best_of` != 1 is not supported when streaming tokens",
    )
    .await;
    check(
        "/generate",
        with(json!({"watermark": true})),
        422,
        "Input validation error: `watermark` is not supported by this server",
    )
    .await;
    check(
        "/generate",
        json!({"inputs": "a".repeat(200)}),
        422,
        "Input validation error: `inputs` must have less than 127 tokens. Given: 200",
    )
    .await;
    assert_eq!(
        post(&state, "/generate", json!({"parameters": {}}))
            .await
            .status,
        422
    );
}

#[actix_web::test]
async fn an_array_is_no_request() {
    let state = serving_state(Duration::ZERO).await;
    for path in ["/generate", "/generate_stream", "/", "/tokenize"] {
        for body in [
            json!(["C", {"max_new_tokens": 2}, false]),
            json!({"inputs": "C", "parameters": [1]}),
        ] {
            if path == "/tokenize" && body.is_object() {
                continue;
            }
            let reply = post(&state, path, body).await;
            assert_eq!(reply.status, 422, "{}", reply.text);
            assert!(reply.text.contains("expected an object"), "{}", reply.text);
        }
    }
}

#[actix_web::test]
async fn info_and_tokenize_answer_as_the_original() {
    let state = serving_state(Duration::ZERO).await;
    let info = get(&state, "/info").await.json();
    assert_eq!(info["model_id"], "sim");
    assert_eq!(info["model_device_type"], "cpu");
    assert_eq!(info["max_total_tokens"], 128);
    assert_eq!(info["max_input_length"], 127);
    let tokens = post(&state, "/tokenize", json!({"inputs": "ab"}))
        .await
        .json();
    assert_eq!(
        tokens,
        json!([{"id": 1, "text": "a", "start": 0, "stop": 1}, {"id": 2, "text": "b", "start": 1, "stop": 2}])
    );
    let tokens = post(&state, "/tokenize", json!({"prompt": "ab"}))
        .await
        .json();
    assert_eq!(
        tokens,
        json!({"count": 2, "max_model_len": 128, "tokens": [1, 2], "token_strs": null})
    );
}

/// A state that speaks `version`.
async fn speaking(version: Version) -> Data<AppState> {
    let state = serving_state(Duration::ZERO).await.into_inner();
    let mut state = Arc::try_unwrap(state).ok().expect("nobody else holds it");
    state.limits.tgi_version = version;
    Data::new(state)
}

#[actix_web::test]
async fn the_best_tokens_stand_beside_each_one_when_asked_for() {
    let state = serving_state(Duration::ZERO).await;
    let parameters =
        json!({"max_new_tokens": 3, "details": true, "top_n_tokens": 2, "ignore_eos": true});
    let body = json!({"inputs": "abc", "parameters": parameters});
    let details = post(&state, "/generate", body.clone()).await.json()["details"].clone();
    let top = details["top_tokens"].as_array().unwrap();
    assert_eq!(top.len(), 3);
    for (best, token) in top.iter().zip(details["tokens"].as_array().unwrap()) {
        let best = best.as_array().unwrap();
        assert_eq!(best.len(), 2);
        assert_eq!(best[0]["id"], token["id"], "greedy takes the best");
        assert!(best[0]["logprob"].as_f64().unwrap() >= best[1]["logprob"].as_f64().unwrap());
        assert!(best[0]["text"].is_string() && best[0]["special"].is_boolean());
    }
    let events = post(&state, "/generate_stream", body).await.events();
    assert_eq!(events[0]["top_tokens"].as_array().unwrap().len(), 2);
    assert!(events[0].get("index").is_none());
}

#[actix_web::test]
async fn later_versions_tell_more() {
    let state = speaking(Version::Later).await;
    let parameters = json!({"max_new_tokens": 3, "details": true, "ignore_eos": true});
    let body = json!({"inputs": "abc", "parameters": parameters});
    let events = post(&state, "/generate_stream", body).await.events();
    let indices: Vec<u64> = events
        .iter()
        .map(|e| e["index"].as_u64().unwrap())
        .collect();
    assert_eq!(indices, [1, 2, 3]);
    let expected =
        json!({"finish_reason": "length", "generated_tokens": 3, "seed": null, "input_length": 3});
    assert_eq!(events[2]["details"], expected);
    let info = get(&state, "/info").await.json();
    assert_eq!(info["max_input_tokens"], 127);
    assert!(info.get("max_input_length").is_none() && info.get("model_dtype").is_none());
    // As many tokens as there is room for, unless the model ends by itself.
    let body = json!({"inputs": "abc", "parameters": {"details": true, "ignore_eos": true}});
    let details = post(&state, "/generate", body.clone()).await.json()["details"].clone();
    assert_eq!(details["generated_tokens"], 125);
    let events = post(&state, "/generate_stream", body).await.events();
    assert_eq!(events.len(), 125);
    assert!(events[124]["generated_text"].is_string() && events[123]["generated_text"].is_null());
}

#[actix_web::test]
async fn mindies_form_hides_what_it_does_not_know() {
    let state = speaking(Version::MindIe).await;
    let parameters =
        json!({"max_new_tokens": 2, "details": true, "top_p": 1.0, "ignore_eos": true, "seed": 1});
    let body = json!({"inputs": "abc", "parameters": parameters});
    let reply = post(&state, "/generate_stream", body.clone()).await;
    assert!(reply.text.starts_with("data: {"), "{}", reply.text);
    let events = reply.events();
    let token = &events[0]["token"];
    assert!(token["text"].is_string() && token["logprob"].is_null() && token["special"].is_null());
    assert_eq!(events[1]["details"]["prompt_tokens"], 3);
    let details = post(&state, "/generate", body).await.json()["details"].clone();
    assert_eq!(details["prompt_tokens"], 3);
    let id = details["tokens"][0]["id"].clone();
    let bare = json!({"id": id, "text": null, "logprob": null, "special": null});
    assert_eq!(details["tokens"][0], bare);
    let reply = post(&state, "/generate", json!({"inputs": ""})).await;
    assert_eq!(reply.status, 422);
    assert_eq!(reply.json()["error_type"], "Input Validation Error");
    assert!(get(&state, "/info").await.json()["models"].is_array());
}

#[actix_web::test]
async fn invocations_take_any_kind_of_body() {
    let state = serving_state(Duration::ZERO).await;
    let completion = json!({"prompt": "abc", "max_tokens": 2});
    let reply = post(&state, "/invocations", completion).await;
    assert_eq!(reply.json()["object"], "text_completion", "{}", reply.text);
    let own = json!({"inputs": "abc", "parameters": {"max_new_tokens": 2}});
    let reply = post(&state, "/invocations", own).await;
    assert!(
        reply.json()[0]["generated_text"].is_string(),
        "{}",
        reply.text
    );
    // The simulated model has no chat template, which only the chat route would say.
    let chat = json!({"messages": [{"role": "user", "content": "a"}]});
    let reply = post(&state, "/invocations", chat).await;
    assert!(
        reply.json()["error"]["message"].is_string(),
        "{}",
        reply.text
    );
    assert_eq!(post(&state, "/invocations", json!({})).await.status, 422);
}
