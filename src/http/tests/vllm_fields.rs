//! Every field of vLLM's `ChatCompletionRequest` and `CompletionRequest` (0.33.0): each changes the answer, is refused by name, or is known to
//! change none; none is taken and ignored.

use super::openai::{asked, chat_state, check_refused};
use super::vllm::chatted;
use super::{Reply, post};
use serde_json::{Value, json};

pub(super) const ROUTES: [(&str, Route); 2] =
    [("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)];

/// A set of the two routes.
pub(super) type Route = u8;
/// The field stands in vLLM's chats, in its completions, or in both.
pub(super) const CHAT: Route = 1;
pub(super) const TEXT: Route = 2;
const BOTH: Route = CHAT | TEXT;

/// What becomes of a field.
enum Fate {
    /// The answer is another one with these fields beside it (`null`: none) than with these alone.
    Changes(Value),
    /// 400, naming it.
    Refused,
    /// It is another's business: no answer depends on it, and it is not told as unknown.
    Harmless,
    /// Looked at by this test.
    SeenBy(&'static str),
}
use Fate::{Changes, Harmless, Refused, SeenBy};

/// Where the tests of [`SeenBy`] are.
const TESTS: &[&str] = &[
    include_str!("vllm_answers.rs"),
    include_str!("openai.rs"),
    include_str!("../chat_parts/tests.rs"),
    include_str!("../openai/chat_message.rs"),
    include_str!("../../../tests/server/tools.rs"),
    include_str!("../../../engine/tests/behaviour/scheduler.rs"),
];

/// Field, where it stands, a value that asks for something, what becomes of it.
fn fields() -> Vec<(&'static str, Route, Value, Fate)> {
    let alone = || Changes(Value::Null);
    let beside = Changes;
    let sampled = || Changes(json!({"temperature": 1, "seed": 5, "max_tokens": 30}));
    let ending = || Changes(json!({"ignore_eos": false}));
    let long = || Changes(json!({"max_tokens": 30}));
    vec![
        (
            "messages",
            CHAT,
            json!([{"role": "user", "content": "xyz"}]),
            alone(),
        ),
        ("prompt", TEXT, json!("xyz"), alone()),
        (
            "model",
            BOTH,
            json!("other"),
            SeenBy("clients_that_know_no_model_name_are_served"),
        ),
        ("frequency_penalty", BOTH, json!(2), long()),
        ("presence_penalty", BOTH, json!(2), long()),
        ("repetition_penalty", BOTH, json!(20), long()),
        ("logit_bias", BOTH, json!({"7": 100}), alone()),
        ("logprobs", CHAT, json!(true), alone()),
        ("logprobs", TEXT, json!(1), alone()),
        (
            "top_logprobs",
            CHAT,
            json!(2),
            beside(json!({"logprobs": true})),
        ),
        ("max_tokens", BOTH, json!(2), alone()),
        ("max_completion_tokens", CHAT, json!(2), alone()),
        ("n", BOTH, json!(2), alone()),
        (
            "response_format",
            BOTH,
            json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": true}}}),
            ending(),
        ),
        (
            "structured_outputs",
            BOTH,
            json!({"choice": ["yes", "no"]}),
            ending(),
        ),
        ("seed", BOTH, json!(6), sampled()),
        (
            "stop",
            BOTH,
            json!(["j", "k", "l", "m", "n", "o", "p"]),
            long(),
        ),
        (
            "stop_token_ids",
            BOTH,
            json!((1..20).collect::<Vec<_>>()),
            long(),
        ),
        ("stream", BOTH, json!(true), alone()),
        (
            "stream_options",
            BOTH,
            json!({"include_usage": true}),
            beside(json!({"stream": true})),
        ),
        ("temperature", BOTH, json!(2), beside(json!({"seed": 5}))),
        ("top_p", BOTH, json!(0.01), sampled()),
        ("top_k", BOTH, json!(1), sampled()),
        ("min_p", BOTH, json!(1), sampled()),
        (
            "tools",
            CHAT,
            json!([{"type": "function", "function": {"name": "f"}}]),
            alone(),
        ),
        (
            "tool_choice",
            CHAT,
            json!("required"),
            SeenBy("a_forced_call_fits_its_tool_and_a_stream_brings_it_in_pieces"),
        ),
        (
            "parallel_tool_calls",
            CHAT,
            json!(false),
            SeenBy("where_one_call_is_wanted_nothing_comes_behind_it"),
        ),
        ("reasoning_effort", CHAT, json!("high"), Refused),
        ("thinking_token_budget", BOTH, json!(10), Refused),
        (
            "include_reasoning",
            CHAT,
            json!(false),
            SeenBy("thoughts_may_be_left_out"),
        ),
        ("user", BOTH, json!("me"), Harmless),
        ("session_id", BOTH, json!("mine"), Harmless),
        ("suffix", TEXT, json!("end"), Refused),
        ("use_beam_search", BOTH, json!(true), Refused),
        ("watermarking", BOTH, json!(true), Refused),
        ("length_penalty", BOTH, json!(2), Refused),
        (
            "include_stop_str_in_output",
            BOTH,
            json!(true),
            beside(json!({"max_tokens": 30, "stop": ["j", "k", "l", "m", "n", "o", "p"]})),
        ),
        (
            "ignore_eos",
            BOTH,
            json!(false),
            beside(json!({"logit_bias": {"0": 100}})),
        ),
        (
            "min_tokens",
            BOTH,
            json!(4),
            beside(json!({"logit_bias": {"0": 100}, "ignore_eos": false})),
        ),
        (
            "skip_special_tokens",
            BOTH,
            json!(false),
            beside(json!({"logit_bias": {"0": 100}})),
        ),
        ("spaces_between_special_tokens", BOTH, json!(false), Refused),
        ("truncate_prompt_tokens", BOTH, json!(2), alone()),
        (
            "truncation_side",
            BOTH,
            json!("right"),
            beside(json!({"truncate_prompt_tokens": 2})),
        ),
        ("prompt_logprobs", BOTH, json!(1), alone()),
        (
            "logprob_token_ids",
            CHAT,
            json!([7]),
            beside(json!({"logprobs": true})),
        ),
        (
            "logprob_token_ids",
            TEXT,
            json!([7]),
            beside(json!({"logprobs": 1})),
        ),
        ("allowed_token_ids", BOTH, json!([7]), alone()),
        (
            "bad_words",
            BOTH,
            json!([
                "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"
            ]),
            long(),
        ),
        ("prompt_embeds", TEXT, json!("AAAA"), Refused),
        ("echo", TEXT, json!(true), alone()),
        (
            "echo",
            CHAT,
            json!(true),
            beside(json!({"messages": [{"role": "assistant", "content": "ab"}]})),
        ),
        (
            "add_generation_prompt",
            CHAT,
            json!(false),
            SeenBy("the_prompt_s_text_is_shown_on_request"),
        ),
        (
            "continue_final_message",
            CHAT,
            json!(true),
            SeenBy("the_prompt_s_text_is_shown_on_request"),
        ),
        (
            "add_special_tokens",
            BOTH,
            json!(true),
            SeenBy("the_tokenizer_s_own_tokens_come_where_they_are_asked_for"),
        ),
        ("documents", CHAT, json!([{"text": "a"}]), Refused),
        ("chat_template", CHAT, json!("{{ 1 }}"), Refused),
        (
            "chat_template_kwargs",
            CHAT,
            json!({"shout": true}),
            SeenBy("the_prompt_s_text_is_shown_on_request"),
        ),
        ("media_io_kwargs", CHAT, json!({"video": {}}), Refused),
        ("mm_processor_kwargs", CHAT, json!({"a": 1}), Refused),
        ("mm_payload", BOTH, json!("none"), Refused),
        ("return_mm_kwargs", BOTH, json!(false), Refused),
        (
            "priority",
            BOTH,
            json!(-1),
            SeenBy("priority_goes_before_arrival"),
        ),
        ("request_id", BOTH, json!("mine"), alone()),
        (
            "return_tokens_as_token_ids",
            CHAT,
            json!(true),
            beside(json!({"logprobs": true})),
        ),
        (
            "return_tokens_as_token_ids",
            TEXT,
            json!(true),
            beside(json!({"logprobs": 1})),
        ),
        ("return_token_ids", BOTH, json!(true), alone()),
        ("return_prompt_text", CHAT, json!(true), alone()),
        ("return_weight_versions", BOTH, json!(true), Refused),
        ("return_token_offsets", BOTH, json!(true), Refused),
        ("routed_experts_prompt_start", BOTH, json!(1), Refused),
        (
            "cache_salt",
            BOTH,
            json!("salt"),
            SeenBy("different_salts_share_nothing"),
        ),
        ("kv_transfer_params", BOTH, json!({"a": 1}), Refused),
        ("ec_transfer_params", BOTH, json!({"a": 1}), Refused),
        ("vllm_xargs", BOTH, json!({"a": 1}), Refused),
        (
            "repetition_detection",
            BOTH,
            json!({"max_pattern_size": 4}),
            Refused,
        ),
        ("stream_interval", BOTH, json!(2), Refused),
    ]
}

/// A request of that route with more fields; a field that stands in both is the latter's.
pub(super) fn body(route: Route, more: &[&Value]) -> Value {
    let mut body = match route {
        CHAT => chatted(json!({})),
        _ => asked(json!({})),
    };
    for more in more.iter().filter_map(|more| more.as_object()) {
        body.as_object_mut()
            .expect("an object")
            .extend(more.clone());
    }
    body
}

/// The answer without what differs from answer to answer.
fn told(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(reply.header("x-ropeteam-ignored-fields"), "");
    let Ok(mut json) = serde_json::from_str::<Value>(&reply.text) else {
        return format!(
            "{:?}",
            reply.events().iter_mut().map(plain).collect::<Vec<_>>()
        );
    };
    plain(&mut json).to_string()
}

fn plain(json: &mut Value) -> &Value {
    let id = json["id"].as_str().unwrap_or_default().to_owned();
    json["id"] = json!(id.ends_with("mine"));
    json["created"] = Value::Null;
    let calls = json.pointer_mut("/choices/0/message/tool_calls");
    let calls = calls.and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten() {
        call["id"] = Value::Null;
    }
    json
}

#[actix_web::test]
async fn no_field_of_vllm_is_taken_and_ignored() {
    let state = chat_state().await;
    for (field, routes, value, fate) in fields() {
        for (path, route) in ROUTES.iter().filter(|(_, route)| routes & route != 0) {
            let with = json!({field: value});
            let ask = async |more: &[&Value]| post(&state, path, body(*route, more)).await;
            match &fate {
                Changes(beside) => {
                    let without = told(&ask(&[beside]).await);
                    let with = told(&ask(&[beside, &with]).await);
                    assert_ne!(with, without, "{path}: {field} changes nothing");
                }
                Refused => check_refused(&ask(&[&with]).await, 400, field),
                Harmless => assert_eq!(told(&ask(&[&with]).await), told(&ask(&[]).await)),
                SeenBy(test) => {
                    let name = format!("fn {test}(");
                    assert!(TESTS.iter().any(|tests| tests.contains(&name)), "{name}");
                }
            }
            // `null` is as good as leaving it out.
            if !["messages", "prompt"].contains(&field) {
                let mut without = body(*route, &[&json!({"seed": 5})]);
                let mut null = without.clone();
                without.as_object_mut().expect("an object").remove(field);
                null[field] = Value::Null;
                let [null, without] = [null, without].map(|body| post(&state, path, body));
                assert_eq!(
                    told(&null.await),
                    told(&without.await),
                    "{path}: {field}: null"
                );
            }
        }
    }
}

/// Values with which clients say that they want nothing of a field that is not offered.
#[actix_web::test]
async fn what_asks_for_nothing_is_no_reason_to_refuse() {
    let state = chat_state().await;
    let neutral = json!({"use_beam_search": false, "watermarking": false, "length_penalty": 1.0, "mm_payload": "tensors",
        "spaces_between_special_tokens": true, "return_token_offsets": false, "return_weight_versions": false, "vllm_xargs": {},
        "routed_experts_prompt_start": 0, "kv_transfer_params": {}, "stream_interval": 1, "reasoning_effort": "none"});
    for (path, route) in ROUTES {
        told(&post(&state, path, body(route, &[&neutral])).await);
    }
}
