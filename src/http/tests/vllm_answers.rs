//! What vLLM's fields add to answers, and what stands there without them.

use super::openai::{chat_state, check_refused};
use super::vllm_fields::{CHAT, ROUTES, TEXT, body};
use super::{post, serving_with};
use crate::http::state::AppState;
use actix_web::web::Data;
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::text::{OffsetToken, TextCodec, TextError, TokenDecoder};
use ropeteam_sim::codec::SimCodec;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

#[actix_web::test]
async fn what_was_not_asked_for_is_null_and_not_left_out() {
    let state = chat_state().await;
    let keys = |value: &Value| -> Vec<String> {
        let fields = value.as_object().expect("an object").iter();
        let null = fields.filter(|(_, value)| value.is_null());
        null.map(|(key, _)| key.clone()).collect()
    };
    let chat = post(&state, "/v1/chat/completions", body(CHAT, &[]))
        .await
        .json();
    let expected = [
        "service_tier",
        "prompt_token_ids",
        "prompt_logprobs",
        "prompt_text",
        "kv_transfer_params",
    ];
    assert_eq!(keys(&chat), expected);
    let choice = &chat["choices"][0];
    assert_eq!(keys(choice), ["logprobs", "stop_reason", "token_ids"]);
    let expected = [
        "refusal",
        "annotations",
        "audio",
        "function_call",
        "reasoning",
        "reasoning_content",
    ];
    assert_eq!(keys(&choice["message"]), expected);
    let text = post(&state, "/v1/completions", body(TEXT, &[]))
        .await
        .json();
    assert_eq!(keys(&text), ["service_tier", "kv_transfer_params"]);
    let expected = [
        "logprobs",
        "stop_reason",
        "token_ids",
        "prompt_token_ids",
        "prompt_logprobs",
    ];
    assert_eq!(keys(&text["choices"][0]), expected);
}

#[actix_web::test]
async fn log_probabilities_are_told_of_the_tokens_named() {
    let state = chat_state().await;
    let more = json!({"logprobs": true, "top_logprobs": 3, "logprob_token_ids": [5, 6, 5], "return_tokens_as_token_ids": true,
        "allowed_token_ids": [7], "max_tokens": 1});
    let chat = post(&state, "/v1/chat/completions", body(CHAT, &[&more]))
        .await
        .json();
    let token = &chat["choices"][0]["logprobs"]["content"][0];
    let names = |list: &Value| -> Vec<Value> {
        let list = list.as_array().expect("a list").iter();
        list.map(|entry| entry["token"].clone()).collect()
    };
    assert_eq!(
        names(&token["top_logprobs"]),
        ["token_id:7", "token_id:5", "token_id:6"]
    );
    // The numbers are those of the model's own distribution, as in a list of the best.
    let best = json!({"logprobs": true, "top_logprobs": 20, "return_tokens_as_token_ids": true, "max_tokens": 1});
    let best = post(&state, "/v1/chat/completions", body(CHAT, &[&best]))
        .await
        .json();
    let best = best["choices"][0]["logprobs"]["content"][0]["top_logprobs"].clone();
    let known = best.as_array().expect("a list");
    let told = token["top_logprobs"].as_array().expect("a list");
    let shared = told
        .iter()
        .filter(|entry| names(&best).contains(&entry["token"]));
    assert!(shared.clone().count() > 0 && shared.clone().all(|entry| known.contains(entry)));
    let more = json!({"logprobs": 0, "logprob_token_ids": [5], "return_tokens_as_token_ids": true, "allowed_token_ids": [7], "max_tokens": 1,
        "stream": true});
    let events = post(&state, "/v1/completions", body(TEXT, &[&more]))
        .await
        .events();
    let top = events[0]["choices"][0]["logprobs"]["top_logprobs"][0]
        .as_object()
        .expect("a map");
    assert_eq!(top.keys().collect::<Vec<_>>(), ["token_id:7", "token_id:5"]);
    for wrong in [json!([9999]), json!([-1]), json!(vec![5; 129])] {
        let body = body(TEXT, &[&json!({"logprobs": 1, "logprob_token_ids": wrong})]);
        check_refused(
            &post(&state, "/v1/completions", body).await,
            400,
            "logprob_token_ids",
        );
    }
    let body = body(CHAT, &[&json!({"logprob_token_ids": [5]})]);
    check_refused(
        &post(&state, "/v1/chat/completions", body).await,
        400,
        "logprob_token_ids",
    );
}

#[actix_web::test]
async fn different_salts_share_nothing() {
    let state = chat_state().await;
    let cached = async |route, path: &str, salt: Value| {
        let long = "abcdefgh".repeat(8);
        let more = json!({"messages": [{"role": "user", "content": long}], "prompt": long, "cache_salt": salt});
        let mut body = body(route, &[&more]);
        body.as_object_mut()
            .expect("an object")
            .remove(if route == CHAT { "prompt" } else { "messages" });
        let answer = post(&state, path, body).await.json();
        answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .expect("a count")
    };
    for (path, route) in ROUTES {
        let mine = json!(format!("salt of {path}"));
        assert_eq!(cached(route, path, mine.clone()).await, 0);
        assert!(cached(route, path, mine.clone()).await > 0);
        assert_eq!(
            cached(route, path, json!(format!("other of {path}"))).await,
            0
        );
    }
}

#[actix_web::test]
async fn the_prompt_s_text_is_shown_on_request() {
    let source = "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<a>{% endif %}{% if shout %}!{% endif %}";
    let state = super::vllm::state_with(|state| {
        state.serving.get_mut().expect("a model").chat = Ok(super::vllm::template(source));
    })
    .await;
    let text = async |more: Value| {
        let more = [&more, &json!({"return_prompt_text": true})];
        let whole = post(&state, "/v1/chat/completions", body(CHAT, &more))
            .await
            .json();
        let streamed = body(CHAT, &[more[0], more[1], &json!({"stream": true})]);
        let events = post(&state, "/v1/chat/completions", streamed)
            .await
            .events();
        assert_eq!(events[0]["prompt_text"], whole["prompt_text"]);
        assert!(events[1].get("prompt_text").is_none());
        whole["prompt_text"].as_str().expect("text").to_owned()
    };
    assert_eq!(text(json!({})).await, "<u>abc</><a>");
    assert_eq!(
        text(json!({"add_generation_prompt": false})).await,
        "<u>abc</>"
    );
    let said = json!([{"role": "user", "content": "abc"}, {"role": "assistant", "content": "de"}]);
    let more =
        json!({"messages": said, "continue_final_message": true, "add_generation_prompt": false});
    assert_eq!(text(more).await, "<u>abc</><a>de");
    assert_eq!(
        text(json!({"chat_template_kwargs": {"shout": true}})).await,
        "<u>abc</><a>!"
    );
}

/// Puts `a` before a text, where it is asked to.
struct Beginning(SimCodec);

impl TextCodec for Beginning {
    fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>, TextError> {
        let begin = if add_special_tokens { "a" } else { "" };
        self.0.encode(&format!("{begin}{text}"), false)
    }

    fn encode_with_offsets(&self, text: &str, add: bool) -> Result<Vec<OffsetToken>, TextError> {
        self.0.encode_with_offsets(text, add)
    }

    fn decoder(&self, context: &[TokenId], skip: bool) -> Box<dyn TokenDecoder> {
        self.0.decoder(context, skip)
    }

    fn token_text(&self, id: TokenId) -> Option<String> {
        self.0.token_text(id)
    }

    fn is_special(&self, id: TokenId) -> bool {
        self.0.is_special(id)
    }

    fn vocab_size(&self) -> u32 {
        self.0.vocab_size()
    }
}

#[actix_web::test]
async fn the_tokenizer_s_own_tokens_come_where_they_are_asked_for() {
    let state = serving_with(Arc::new(Beginning(SimCodec::default())), Duration::ZERO).await;
    let mut state = Arc::try_unwrap(state.into_inner())
        .ok()
        .expect("nobody else holds it");
    let source = "{{ messages[0].content }}";
    state.serving.get_mut().expect("a model").chat = Ok(super::vllm::template(source));
    let state: Data<AppState> = Data::new(state);
    for (path, route, by_itself) in [
        ("/v1/chat/completions", CHAT, 3),
        ("/v1/completions", TEXT, 4),
    ] {
        for (asked, expected) in [
            (Value::Null, by_itself),
            (json!(true), 4),
            (json!(false), 3),
        ] {
            let body = body(route, &[&json!({"add_special_tokens": asked})]);
            let answer = post(&state, path, body).await.json();
            assert_eq!(
                answer["usage"]["prompt_tokens"], expected,
                "{path}: {asked}"
            );
        }
    }
}
