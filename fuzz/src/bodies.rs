//! Request bodies of every dialect, sent to all routes of the inference port in this very process. The first byte chooses the route.

use actix_web::App;
use actix_web::body::to_bytes;
use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::web::Data;
use ropeteam::http::chat_parts::AnswerForm;
use ropeteam::http::grammar::GrammarDesk;
use ropeteam::http::serving_routes;
use ropeteam::http::state::{AppState, Limits, ModelCard, Serving, Timeouts};
use ropeteam_actors::{DeviceSpec, Engine, EngineConfig, EngineParts, Isolation};
use ropeteam_engine::executor::Capacity;
use ropeteam_engine::ids::DeviceId;
use ropeteam_engine::request::Pooling;
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_engine::text::TextCodec;
use ropeteam_models::grammar::Grammars;
use ropeteam_models::text::{ChatTemplate, SpecialTokens};
use ropeteam_sim::codec::{END_OF_TEXT, SimCodec};
use ropeteam_sim::executor::SimExecutor;
use std::sync::Arc;
use std::time::Duration;

const ROUTES: &[&str] = &[
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/",
    "/generate",
    "/generate_stream",
    "/invocations",
    "/tokenize",
    "/chat_tokenize",
    "/detokenize",
    "/infer",
    "/infer_token",
    "/v1/tokenizer",
    "/v2/models/sim/generate",
    "/v2/models/sim/generate_stream",
    "/v2/models/sim/infer",
    "/v2/models/sim/stopInfer",
    "/v1/generate",
];
/// What one body may take: a model of so few tokens answers at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends the bytes behind the first one to the route of that.
pub fn bodies(bytes: &[u8]) {
    let Some((&route, body)) = bytes.split_first() else {
        return;
    };
    let route = ROUTES[usize::from(route) % ROUTES.len()];
    thread_local! {
        static SERVER: (actix_web::rt::SystemRunner, Data<AppState>) = {
            let system = actix_web::rt::System::new();
            let state = system.block_on(state());
            (system, state)
        };
    }
    SERVER.with(|(system, state)| {
        let answered = async {
            let app = init_service(App::new().app_data(state.clone()).configure(serving_routes));
            let request = TestRequest::post()
                .uri(route)
                .insert_header(("content-type", "application/json"))
                .set_payload(body.to_vec());
            let response = call_service(&app.await, request.to_request()).await;
            let status = response.status();
            assert!(status.as_u16() != 500, "{route} answers {status}");
            let _ = to_bytes(response.into_body()).await;
        };
        let timed =
            system.block_on(async { actix_web::rt::time::timeout(PATIENCE, answered).await });
        assert!(timed.is_ok(), "{route} does not answer");
    });
}

async fn state() -> Data<AppState> {
    let limits = Limits {
        own_chat_templates: true,
        ..Limits::default()
    };
    let state = AppState::new(limits, Timeouts::default());
    let codec: Arc<dyn TextCodec> = Arc::new(SimCodec::default());
    let capacity = Capacity {
        blocks: 64,
        block_size: 16,
        max_model_len: 128,
        max_step_tokens: 256,
        max_logits_rows: 256,
        vocab: codec.vocab_size(),
    };
    let build = move |_| Ok(Box::new(SimExecutor::new(capacity.clone(), 3)) as _);
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
    let special = SpecialTokens::from_pairs([("eos_token", "<end>")]);
    let turns = "{% for message in messages %}{{ message.content }} {% endfor %}";
    let chat = ChatTemplate::from_source(turns, "fuzz", &special).expect("a template");
    let serving = Serving {
        engine,
        records: None,
        text: codec.clone(),
        chat: Ok(Arc::new(chat)),
        special,
        answers: AnswerForm::default(),
        pooling: Pooling::Mean,
        grammars: GrammarDesk::new(Grammars::new(codec, vec![END_OF_TEXT])),
        model: ModelCard {
            names: vec!["sim".into()],
            root: "sim".into(),
            revision: None,
            dtype: "float32".into(),
            device_type: "cpu".into(),
            max_model_len: 128,
            max_input_len: 127,
            max_output_len: 128,
            hidden_size: 16,
        },
        defaults: SamplingParams::default(),
    };
    assert!(state.serving.set(serving).is_ok());
    Data::new(state)
}
