//! The routes against a real engine on the simulated device: what is on the wire, field by field.

mod articles;
mod control;
mod embeddings;
mod frames;
mod mindie;
mod openai;
mod operations;
mod sockets;
mod structured;
mod tgi;
mod tokenizer;
mod vllm;
mod vllm_answers;
mod vllm_fields;

use crate::http::chat_parts::AnswerForm;
use crate::http::grammar::GrammarDesk;
use crate::http::state::{AppState, Limits, ModelCard, Serving, Timeouts};
use crate::http::{deadline, management_routes, request_id, serving_routes};
use actix_web::body::to_bytes;
use actix_web::http::StatusCode;
use actix_web::http::header::HeaderMap;
use actix_web::middleware::from_fn;
use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::web::Data;
use actix_web::{App, http::Method};
use ropeteam_actors::{DeviceSpec, Engine, EngineConfig, EngineParts, Isolation};
use ropeteam_engine::executor::Capacity;
use ropeteam_engine::ids::DeviceId;
use ropeteam_engine::request::Pooling;
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_engine::text::TextCodec;
use ropeteam_models::grammar::Grammars;
use ropeteam_models::text::SpecialTokens;
use ropeteam_sim::codec::{END_OF_TEXT, SimCodec};
use ropeteam_sim::executor::{HIDDEN, SimExecutor};
use ropeteam_sim::faults::DelayedExecutor;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Name of the model.
const MODEL: &str = "sim";
/// Its length limit.
const MODEL_LEN: u32 = 128;
/// A model that does not end by itself for 40 tokens after "abc".
const MODEL_SEED: u64 = 3;

/// A state with a running engine whose steps take `step`.
pub async fn serving_state(step: Duration) -> Data<AppState> {
    serving_with(Arc::new(SimCodec::default()), step).await
}

/// The same with a tokenizer of its own.
async fn serving_with(codec: Arc<dyn TextCodec>, step: Duration) -> Data<AppState> {
    let timeouts = Timeouts {
        sse_keepalive: Duration::from_millis(300),
        ..Timeouts::default()
    };
    let state = AppState::new(Limits::default(), timeouts);
    let capacity = Capacity {
        blocks: 64,
        block_size: 16,
        max_model_len: MODEL_LEN,
        max_step_tokens: 256,
        max_logits_rows: 256,
        vocab: codec.vocab_size(),
    };
    let build = move |_| {
        let device = Box::new(SimExecutor::new(capacity.clone(), MODEL_SEED));
        Ok(Box::new(DelayedExecutor::new(device, Arc::new(move |_| step))) as _)
    };
    let parts = EngineParts {
        codec: codec.clone(),
        eos_ids: vec![END_OF_TEXT],
        devices: vec![DeviceSpec {
            id: DeviceId(0),
            isolation: Isolation::Thread(Arc::new(build)),
        }],
    };
    let engine = Engine::start(EngineConfig::default(), parts).expect("an engine");
    assert!(engine.ready().await);
    let grammars = Grammars::new(codec.clone(), vec![END_OF_TEXT]);
    let serving = Serving {
        engine,
        records: None,
        text: codec,
        chat: Err("no template".into()),
        special: SpecialTokens::from_pairs([("eos_token", "<end>")]),
        answers: AnswerForm::default(),
        pooling: Pooling::Mean,
        grammars: GrammarDesk::new(grammars),
        model: ModelCard {
            names: vec![MODEL.into(), "other-name".into()],
            root: MODEL.into(),
            revision: None,
            dtype: "float32".into(),
            device_type: "cpu".into(),
            max_model_len: MODEL_LEN,
            max_input_len: MODEL_LEN - 1,
            max_output_len: MODEL_LEN,
            hidden_size: HIDDEN,
        },
        defaults: SamplingParams::default(),
    };
    assert!(state.serving.set(serving).is_ok());
    Data::new(state)
}

/// A whole answer.
pub struct Reply {
    pub status: StatusCode,
    headers: HeaderMap,
    pub text: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().expect("ASCII"))
    }

    /// The JSON of every `data` line but `[DONE]`.
    fn events(&self) -> Vec<Value> {
        let data = self
            .text
            .split("\n\n")
            .filter_map(|block| block.strip_prefix("data:"));
        let json = data.map(str::trim_start).filter(|data| *data != "[DONE]");
        json.map(|data| serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data}")))
            .collect()
    }
}

/// Calls the inference port's routes.
async fn call(state: &Data<AppState>, request: TestRequest) -> Reply {
    call_port(state, request, serving_routes).await
}

pub async fn call_port(
    state: &Data<AppState>,
    request: TestRequest,
    routes: fn(&mut actix_web::web::ServiceConfig),
) -> Reply {
    let app = App::new()
        .wrap(from_fn(deadline::with_deadline))
        .wrap(from_fn(request_id::with_request_id))
        .app_data(state.clone())
        .configure(routes);
    let response = call_service(&init_service(app).await, request.to_request()).await;
    let (status, headers) = (response.status(), response.headers().clone());
    let body = to_bytes(response.into_body())
        .await
        .unwrap_or_else(|_| panic!("the body broke off"));
    Reply {
        status,
        headers,
        text: String::from_utf8(body.to_vec()).expect("text"),
    }
}

async fn post(state: &Data<AppState>, path: &str, body: Value) -> Reply {
    call(state, TestRequest::post().uri(path).set_json(body)).await
}

async fn get(state: &Data<AppState>, path: &str) -> Reply {
    call(state, TestRequest::get().uri(path)).await
}

async fn manage(state: &Data<AppState>, method: Method, path: &str) -> Reply {
    call_port(
        state,
        TestRequest::default().method(method).uri(path),
        management_routes,
    )
    .await
}
