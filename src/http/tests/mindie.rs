//! MindIE's routes on the inference port.

use super::{MODEL, call, get, manage, post, serving_state};
use crate::http::auth::ApiKeys;
use actix_web::http::Method;
use actix_web::test::TestRequest;
use actix_web::web::Data;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const GREEDY: &str = "do_sample";

#[actix_web::test]
async fn generate_is_decided_by_the_body() {
    let state = serving_state(Duration::ZERO).await;
    let prompt = json!({"prompt": "abc", "max_tokens": 4, "temperature": 0, "ignore_eos": true});
    let reply = post(&state, "/generate", prompt.clone()).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let inputs = json!({"inputs": "abc", "parameters": {"max_new_tokens": 4, "ignore_eos": true}});
    let tgi = post(&state, "/generate", inputs).await.json();
    let continued = format!("abc{}", tgi["generated_text"].as_str().unwrap());
    assert_eq!(reply.json(), json!({"text": [continued]}));

    let mut streamed = prompt;
    streamed["stream"] = true.into();
    let reply = post(&state, "/generate", streamed).await;
    assert!(reply.text.ends_with('\0'), "{:?}", reply.text);
    let objects = reply.text.split_terminator('\0');
    let texts = objects.map(|object| serde_json::from_str::<Value>(object).unwrap());
    let pieces: Vec<Value> = texts.map(|object| object["text"][0].clone()).collect();
    assert_eq!(pieces.len(), 4);
    let joined: String = pieces.iter().map(|piece| piece.as_str().unwrap()).collect();
    assert_eq!(continued, format!("abc{joined}"));
}

#[actix_web::test]
async fn the_prompt_form_draws_several_choices_and_shows_the_best() {
    let state = serving_state(Duration::ZERO).await;
    let body = json!({"prompt": "abc", "max_tokens": 4, "n": 2, "best_of": 3, "seed": 7,
        "ignore_eos": true});
    let texts = post(&state, "/generate", body.clone()).await.json();
    assert_eq!(texts["text"].as_array().unwrap().len(), 2, "{texts}");
    assert_eq!(post(&state, "/generate", body).await.json(), texts);

    let refused = |more: Value| {
        let mut body = json!({"prompt": "abc"});
        let fields = more.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(fields);
        body
    };
    for (more, words) in [
        (json!({"n": 2, "temperature": 0}), "temperature is 0"),
        (json!({"top_k": 0}), "top_k must be in [1,"),
        (json!({"max_tokens": 0}), "max_tokens must be in [1,"),
        (json!({"repetition_penalty": 3}), "must be in (0.0, 2.0]"),
        (json!({"use_beam_search": true}), "use_beam_search"),
        (
            json!({"n": 2, "best_of": 3, "stream": true}),
            "best_of must be the same",
        ),
    ] {
        let reply = post(&state, "/generate", refused(more)).await;
        assert_eq!(reply.status, 422, "{}", reply.text);
        assert_eq!(reply.json()["error_type"], "Input Validation Error");
        assert!(reply.text.contains(words), "{}", reply.text);
    }
    let reply = post(&state, "/generate", refused(json!({"model": "x"}))).await;
    assert_eq!(reply.status, 404, "{}", reply.text);
}

#[actix_web::test]
async fn infer_answers_text_and_details() {
    let state = serving_state(Duration::ZERO).await;
    let parameters = json!({"max_new_tokens": 4, "details": true, GREEDY: false});
    let body = json!({"inputs": "abc", "stream": false, "parameters": parameters});
    let json = post(&state, "/infer", body).await.json();
    assert_eq!(json["generated_text"].as_str().unwrap().len(), 4);
    let details = &json["details"];
    let keys: Vec<&String> = details.as_object().unwrap().keys().collect();
    let expected = [
        "finish_reason",
        "generated_tokens",
        "generated_token_ids",
        "seed",
    ];
    assert_eq!(keys, expected);
    assert_eq!(details["finish_reason"], "length");
    assert_eq!(details["generated_token_ids"].as_array().unwrap().len(), 4);
    // The simulated tokenizer: a is 1, b is 2, c is 3.
    let ids = json!({"input_id": [1, 2, 3], "parameters": {"max_new_tokens": 4}});
    let from_ids = post(&state, "/infer_token", ids).await.json();
    assert_eq!(from_ids, json!({"generated_text": json["generated_text"]}));
}

#[actix_web::test]
async fn infer_streams_times_and_ends_with_the_whole() {
    let state = serving_state(Duration::from_millis(2)).await;
    let asked = |details: bool| {
        let parameters = json!({"max_new_tokens": 4, "details": details, "seed": 3, GREEDY: true});
        json!({"inputs": "abc", "stream": true, "parameters": parameters})
    };
    let reply = post(&state, "/infer", asked(true)).await;
    assert!(
        reply.text.starts_with("data: {\"prefill_time\":"),
        "{}",
        reply.text
    );
    let events = reply.events();
    assert_eq!(events.len(), 4);
    let (last, others) = events.split_last().unwrap();
    assert!(others[0]["prefill_time"].as_f64().unwrap() >= 2.0);
    assert!(others[0]["decode_time"].is_null());
    for event in &others[1..] {
        assert!(event["prefill_time"].is_null());
        assert!(event["decode_time"].as_f64().unwrap() > 0.0);
        assert!(event.get("generated_text").is_none() && event.get("details").is_none());
    }
    assert_eq!(last["generated_text"].as_str().unwrap().len(), 4);
    assert!(last["token"]["text"].is_null() && last["token"]["id"].is_u64());
    let details = json!({"finish_reason": "length", "generated_tokens": 4, "seed": 3});
    assert_eq!(last["details"], details);
    let events = post(&state, "/infer", asked(false)).await.events();
    let last = events.last().unwrap().as_object().unwrap();
    assert_eq!(last.get("details"), Some(&Value::Null));
}

#[actix_web::test]
async fn infer_refuses_what_is_no_prompt() {
    let state = serving_state(Duration::ZERO).await;
    for body in [
        json!({}),
        json!({"inputs": ""}),
        json!({"inputs": 7}),
        json!({"inputs": "a", "input_id": [1]}),
        json!({"input_id": []}),
        json!({"input_id": [-1]}),
        json!({"inputs": "a", "parameters": {"watermark": true}}),
        json!({"inputs": "a", "parameters": 7}),
    ] {
        let reply = post(&state, "/infer", body).await;
        assert_eq!(reply.status, 422, "{}", reply.text);
        assert_eq!(reply.json()["error_type"], "Input Validation Error");
    }
    let reply = get(&state, "/infer").await;
    assert_eq!(
        (reply.status.as_u16(), reply.header("allow")),
        (405, "POST")
    );
}

#[actix_web::test]
async fn the_tokenizer_counts_and_cuts() {
    let state = serving_state(Duration::ZERO).await;
    let reply = post(&state, "/v1/tokenizer", json!({"inputs": "abc"})).await;
    assert_eq!(
        reply.json(),
        json!({"token_number": 3, "tokens": ["a", "b", "c"]})
    );
    let reply = post(&state, "/v1/tokenizer", json!({"inputs": ""})).await;
    assert_eq!(reply.status, 422);
}

async fn triton(
    state: &Data<crate::http::state::AppState>,
    what: &str,
    body: Value,
) -> super::Reply {
    post(state, &format!("/v2/models/{MODEL}/{what}"), body).await
}

#[actix_web::test]
async fn triton_generates_whole_and_streamed() {
    let state = serving_state(Duration::ZERO).await;
    let body = json!({"id": "a_1", "text_input": "abc",
        "parameters": {"max_new_tokens": 4, "details": true}});
    let json = triton(&state, "generate", body.clone()).await.json();
    assert_eq!(json["id"], "a_1");
    assert_eq!(json["model_name"], MODEL);
    assert_eq!(json.get("model_version"), Some(&Value::Null));
    let details = &json["details"];
    assert_eq!(details["finish_reason"], "length");
    assert_eq!(details["generated_tokens"], 4);
    assert!(details["first_token_cost"].is_null() && details["decode_cost"].is_null());
    assert_eq!(details["queue_wait_time"].as_array().unwrap().len(), 4);
    let reply = triton(&state, "generate_stream", body).await;
    assert!(
        reply.text.starts_with("data:{\"id\":\"a_1\""),
        "{}",
        reply.text
    );
    let events = reply.events();
    assert_eq!(events.len(), 4);
    let pieces = events
        .iter()
        .map(|event| event["text_output"].as_str().unwrap());
    assert_eq!(json["text_output"], pieces.collect::<String>());
    assert!(events[0]["prefill_time"].is_f64() && events[0]["decode_time"].is_null());
    assert!(events[0]["details"].get("finish_reason").is_none());
    assert_eq!(events[3]["details"]["finish_reason"], "length");
    assert!(events[3]["details"]["queue_wait_time"].is_u64());
    let plain = json!({"text_input": "abc", "parameters": {"max_new_tokens": 2}});
    let events = triton(&state, "versions/1/generate_stream", plain)
        .await
        .events();
    let keys: Vec<&String> = events[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["id", "model_name", "model_version", "text_output"]);
}

#[actix_web::test]
async fn triton_infers_a_tensor_of_tokens() {
    let state = serving_state(Duration::ZERO).await;
    let input = json!({"name": "input0", "shape": [1, 3], "datatype": "UINT32", "data": [1, 2, 3],
        "parameters": {"max_new_tokens": 4}});
    let body = json!({"id": "x", "inputs": [input], "outputs": [{"name": "out"}]});
    let json = triton(&state, "infer", body).await.json();
    assert_eq!(json["id"], "x");
    let output = &json["outputs"][0];
    assert_eq!(
        (&output["name"], &output["datatype"]),
        (&json!("out"), &json!("UINT32"))
    );
    assert_eq!(output["shape"], json!([1, 4]));
    assert_eq!(output["data"].as_array().unwrap().len(), 4);
}

#[actix_web::test]
async fn v2_tells_of_the_server_and_its_model() {
    let state = serving_state(Duration::ZERO).await;
    assert_eq!(
        get(&state, "/v2").await.json()["extensions"]["max_prefill_tokens"],
        1024
    );
    let model = get(&state, "/v2/models/sim").await.json();
    assert_eq!(model["inputs"][0]["datatype"], "UINT32");
    let config = get(&state, "/v2/models/sim/config").await.json();
    assert_eq!(config["max_seq_len"], 128);
    assert_eq!(get(&state, "/v2/models/sim/ready").await.status, 200);
    for path in [
        "/v2/models/nobody",
        "/v2/models/sim/versions/2",
        "/v2/nothing",
    ] {
        let reply = get(&state, path).await;
        assert_eq!(reply.status, 404, "{path}");
        assert_eq!(reply.json()["error_type"], "NotFoundError");
    }
    assert_eq!(
        get(&state, "/v2/models/nobody").await.json()["error"],
        "Model nobody not found."
    );
}

#[actix_web::test]
async fn stop_infer_ends_a_running_request() {
    let state = serving_state(Duration::from_millis(20)).await;
    let body = json!({"id": "long", "text_input": "abc", "parameters": {"max_new_tokens": 100}});
    let stop = json!({"id": "long"});
    for what in ["generate", "generate_stream"] {
        let run = triton(&state, what, body.clone());
        let end = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            triton(&state, "stopInfer", stop.clone()).await
        };
        let (reply, stopped) = tokio::join!(run, end);
        assert_eq!(
            (stopped.status.as_u16(), stopped.json()),
            (200, stop.clone())
        );
        assert!(
            reply.text.contains("stopped by stopInfer"),
            "{}",
            reply.text
        );
        assert!(reply.text.contains("Generation Error"), "{}", reply.text);
        if what == "generate" {
            assert_eq!(reply.status, 424);
        }
    }
    let reply = triton(&state, "stopInfer", stop).await;
    assert_eq!(reply.status, 404);
    assert_eq!(reply.json()["error"], "RequestId is long not found.");
}

#[actix_web::test]
async fn the_management_port_answers_as_mindies_does() {
    let state = serving_state(Duration::ZERO).await;
    let read = async |path: &str| manage(&state, Method::GET, path).await;
    for path in [
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/models/sim/ready",
    ] {
        let reply = read(path).await;
        assert_eq!(
            (reply.status.as_u16(), reply.text.as_str()),
            (200, ""),
            "{path}"
        );
    }
    for path in ["/health/timed", "/health/timed-600"] {
        let reply = read(path).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        assert_eq!(reply.json(), json!({"status": "healthy"}));
    }
    for path in ["/health/timed-0", "/health/timed-601", "/health/timed-x"] {
        assert_eq!(read(path).await.status, 404, "{path}");
    }
    let info = read("/info").await.json();
    assert_eq!(info["models"][0]["model_id"], "sim");
    assert_eq!(info["max_input_length"], 127);
    let config = read("/v1/config").await.json();
    assert_eq!(config["maxSeqLen"], 128);
    assert_eq!(config["cacheBlockSize"], 16);
    let status = read("/v1/status").await.json();
    assert_eq!(status["service"]["roleStatus"], "RoleReady");
    assert_eq!(status["resource"]["totalNpuBlockNums"], 64);
    assert_eq!(status["resource"]["availSlotsNum"], 64);
    assert!(
        status["scheduler"].is_object(),
        "our own view stands beside it"
    );
    let status = read("/v2/status").await.json();
    assert_eq!(status["resource"]["dpInstMap"], json!([[0, 64]]));
    let slots = read("/v2/models/sim/getSlotCount").await.json();
    let expected = json!({"total_slots": 64, "free_slots": 64, "available_tokens_length": 1024});
    assert_eq!(slots, expected);
    assert_eq!(read("/v2/models/x/getSlotCount").await.status, 404);
    let metrics = read("/metrics-json").await.json();
    let names = metrics["result"].as_array().unwrap().iter();
    let names: Vec<&str> = names
        .map(|one| one["metric"][0]["__name__"].as_str().unwrap())
        .collect();
    let wanted = [
        "TTFT",
        "TBT",
        "waitingInferRequestNum",
        "processingInferRequestNum",
        "remainBlocks",
    ];
    assert_eq!(names, wanted);
    assert_eq!(metrics["result"][4]["value"], "64");
    let status = read("/v1/engine-server/running-status").await.json();
    assert_eq!(status, json!({"status": 1, "errors": []}));
}

#[actix_web::test]
async fn what_the_management_port_does_not_offer_is_refused_by_name() {
    let state = serving_state(Duration::ZERO).await;
    for (path, words) in [
        ("/v1/role/prefill", "not separated"),
        ("/v2/role/decode", "not separated"),
        ("/v1/load_lora_adapter", "adapters"),
        ("/v1/engine-server/fault-handling-command", "/restart"),
    ] {
        let reply = manage(&state, Method::POST, path).await;
        assert_eq!(reply.status, 400, "{path}");
        assert!(
            reply.json()["error"].as_str().unwrap().contains(words),
            "{}",
            reply.text
        );
    }
}

#[actix_web::test]
async fn a_stopped_service_says_so() {
    let state = serving_state(Duration::ZERO).await;
    let stop = async |query: &str| {
        let reply = manage(&state, Method::GET, &format!("/stopService{query}")).await;
        reply.status.as_u16()
    };
    assert_eq!(stop("?mode=Gently").await, 422);
    assert_eq!(stop("").await, 200);
    assert_eq!(stop("").await, 500);
    assert_eq!(
        state.stop_asked().await,
        crate::http::state::StopMode::Graceful
    );
    for path in ["/v2/health/live", "/v2/health/ready", "/metrics-json"] {
        let reply = manage(&state, Method::GET, path).await;
        assert_eq!(reply.status, 503, "{path}");
        assert_eq!(reply.json()["error"], "The service has been stopped.");
    }
}

/// Routes that take a body, with one that they would serve.
fn routes() -> Vec<(&'static str, Value)> {
    let tensor = json!({"name": "i", "shape": [1], "datatype": "UINT32", "data": [1]});
    let text = json!({"text_input": "a"});
    vec![
        ("/generate", json!({"prompt": "a"})),
        ("/infer", json!({"inputs": "a"})),
        ("/infer_token", json!({"input_id": [1]})),
        ("/v1/tokenizer", json!({"inputs": "a"})),
        ("/v2/models/sim/generate", text.clone()),
        ("/v2/models/sim/generate_stream", text),
        (
            "/v2/models/sim/infer",
            json!({"inputs": [tensor], "outputs": [{"name": "o"}]}),
        ),
        ("/v2/models/sim/stopInfer", json!({"id": "x"})),
        ("/chat_tokenize", json!({"messages": []})),
        ("/invocations", json!({"inputs": "a"})),
    ]
}

#[actix_web::test]
async fn every_route_keeps_keys_limits_types_and_ids() {
    let state = serving_state(Duration::ZERO).await.into_inner();
    let mut state = Arc::try_unwrap(state).ok().expect("nobody else holds it");
    state.keys = ApiKeys::parse("secret").unwrap();
    state.limits.max_body_bytes = 1000;
    let state = Data::new(state);
    for (path, body) in routes() {
        let plain = || TestRequest::post().uri(path).set_json(body.clone());
        assert_eq!(call(&state, plain()).await.status, 401, "{path}");
        let keyed = || plain().insert_header(("authorization", "Bearer secret"));
        let served = call(&state, keyed().insert_header(("x-request-id", "mine"))).await;
        assert_ne!(served.status, 401, "{path}");
        assert_eq!(served.header("x-request-id"), "mine", "{path}");
        let typed = keyed().insert_header(("content-type", "text/plain"));
        assert_eq!(call(&state, typed).await.status, 415, "{path}");
        let large = TestRequest::post().uri(path).set_payload(vec![b' '; 2000]);
        let large = large.insert_header(("authorization", "Bearer secret"));
        assert_eq!(call(&state, large).await.status, 413, "{path}");
    }
    for path in ["/v2", "/v2/models/sim", "/v2/health/ready"] {
        assert_eq!(get(&state, path).await.status, 200, "{path}");
    }
    for path in ["/health/timed", "/stopService"] {
        assert_eq!(
            manage(&state, Method::GET, path).await.status,
            401,
            "{path}"
        );
    }
    assert!(!state.is_draining());
}

#[actix_web::test]
async fn unknown_fields_are_named_in_the_answer() {
    let state = serving_state(Duration::ZERO).await;
    for (path, mut body) in routes() {
        if matches!(path, "/v2/models/sim/stopInfer" | "/chat_tokenize") {
            continue;
        }
        body["frob"] = 1.into();
        let reply = post(&state, path, body).await;
        assert_eq!(
            reply.header("x-ropeteam-ignored-fields"),
            "frob",
            "{path}: {}",
            reply.text
        );
    }
}
