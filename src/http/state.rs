//! What every handler may look at: the loaded model with its engine, the limits, keys, logs and counters.
//! Built once at start; the model is put in when it has loaded, so that the ports answer (503) before that.
//! Not here: where these values come from (`crate::config`) and how they are used.

use super::auth::ApiKeys;
use super::chat_parts::AnswerForm;
use super::grammar::GrammarDesk;
use super::mindie::Stoppable;
use super::probe::Probe;
use super::records::Records;
use super::refusal::Refusal;
use super::request_log::RequestLog;
use super::tgi::Version;
use super::wall_clock::unix_seconds;
use metrics_exporter_prometheus::PrometheusHandle;
use ropeteam_actors::Engine;
use ropeteam_engine::request::Pooling;
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_engine::text::TextCodec;
use ropeteam_models::text::{ChatTemplate, SpecialTokens};
use serde_json::{Map, Value};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;

/// Shared by all workers of both ports.
pub struct AppState {
    /// The loaded model; empty until it has loaded.
    pub serving: OnceLock<Serving>,
    /// What a request may ask for.
    pub limits: Limits,
    /// How long the server waits for a client.
    pub timeouts: Timeouts,
    /// Who may use the generation routes.
    pub keys: ApiKeys,
    /// Renders `/metrics`; `None` when metrics are switched off.
    pub metrics: Option<PrometheusHandle>,
    /// One line per request; `None` when switched off.
    pub request_log: Option<RequestLog>,
    /// Running requests that a call of MindIE's `stopInfer` may end.
    pub stoppable: Stoppable,
    /// When the process started, for `created` in model lists.
    pub started: SystemTime,
    /// What a probe last found.
    pub probe: Probe,
    /// Who may use the management routes.
    pub management: ManagementAccess,
    /// Options that can change now; empty until the model has loaded.
    pub live: OnceLock<Box<dyn LiveOptions>>,
    /// How long what runs may go on when the server is drained.
    pub drain_within: Duration,
    draining: AtomicBool,
    stop: watch::Sender<Option<StopMode>>,
}

/// How a management call ends the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// What runs may go on for the drain's patience.
    Graceful,
    /// At once.
    Force,
}

/// Who may use the management routes, health and metrics aside.
#[derive(Clone, Debug, Default)]
pub struct ManagementAccess {
    /// The keys; with none, those of the inference routes count.
    pub keys: ApiKeys,
    /// Other machines can reach the port: without any key nobody may.
    pub exposed: bool,
}

/// The options that can change while the server runs.
pub trait LiveOptions: Send + Sync {
    /// Makes all the changes of `patch` (options by key) or none, and says what changed: `{key: {"from", "to"}}`.
    ///
    /// # Errors
    /// The refusal names the option, its value and what was expected.
    fn change(&self, patch: &Map<String, Value>) -> Result<Map<String, Value>, Refusal>;
}

/// A model that can be asked.
pub struct Serving {
    /// Runs requests.
    pub engine: Engine,
    /// Where its requests are recorded, if they are.
    pub records: Option<Records>,
    /// Its tokenizer.
    pub text: Arc<dyn TextCodec>,
    /// Its chat template, or why there is none that can be used.
    pub chat: Result<Arc<ChatTemplate>, String>,
    /// Its named tokens.
    pub special: SpecialTokens,
    /// How the model writes thoughts and calls of tools.
    pub answers: AnswerForm,
    /// How hidden states become embeddings.
    pub pooling: Pooling,
    /// Compiles what answers must obey.
    pub grammars: GrammarDesk,
    /// What it is called and what it is.
    pub model: ModelCard,
    /// Sampling values where an OpenAI request names none (from `generation_config.json`).
    pub defaults: SamplingParams,
}

/// Names and facts of the model, as the model and info routes tell them.
#[derive(Clone, Debug)]
pub struct ModelCard {
    /// Names under which clients ask for it; the first is the one in answers. At least one.
    pub names: Vec<String>,
    /// Where it came from: a hub name or the last part of its path.
    pub root: String,
    /// Its revision, when it is known.
    pub revision: Option<String>,
    /// Type of the weights in use, such as `bfloat16`.
    pub dtype: String,
    /// `cpu` or `npu`.
    pub device_type: String,
    /// Most tokens of prompt and output together.
    pub max_model_len: u32,
    /// Most tokens of a prompt.
    pub max_input_len: u32,
    /// Most tokens of an output.
    pub max_output_len: u32,
    /// Width of its hidden states.
    pub hidden_size: u32,
}

impl ModelCard {
    /// The name that answers carry.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}

/// What a request may ask for.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest request body, packed or unpacked, in bytes.
    pub max_body_bytes: usize,
    /// Requests that run or wait before the next is refused; only told (`/info`), the engine enforces it.
    pub max_concurrent_requests: usize,
    /// Sequences that a device runs at once; only told.
    pub max_running: u32,
    /// Largest `best_of` on the TGI routes.
    pub max_best_of: u32,
    /// Whose form of the TGI dialect is spoken where they differ.
    pub tgi_version: Version,
    /// Most stop sequences on the TGI routes.
    pub max_stop_sequences: usize,
    /// Most sequences that one step prefills; only told.
    pub max_prefill_batch_size: u32,
    /// Most prompt tokens that one step prefills; only told.
    pub max_prefill_tokens: u32,
    /// Refuse fields that nobody knows; else a header of the answer names them.
    pub strict: bool,
    /// A chat request may bring its own template.
    pub own_chat_templates: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_body_bytes: 32 << 20,
            max_concurrent_requests: 128,
            max_running: 64,
            max_best_of: 2,
            tgi_version: Version::V0_9_4,
            max_stop_sequences: 4,
            max_prefill_batch_size: 32,
            max_prefill_tokens: 1024,
            strict: false,
            own_chat_templates: false,
        }
    }
}

/// How long the server waits for a client.
#[derive(Clone, Debug)]
pub struct Timeouts {
    /// For the head of a request.
    pub header: Duration,
    /// For its whole body.
    pub body: Duration,
    /// For a client that takes nothing of what was written to it.
    pub write: Duration,
    /// For the next request on an idle connection.
    pub keep_alive: Duration,
    /// Between two comments in a stream that is silent.
    pub sse_keepalive: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            header: Duration::from_secs(10),
            body: Duration::from_secs(30),
            write: Duration::from_secs(30),
            keep_alive: Duration::from_secs(75),
            sse_keepalive: Duration::from_millis(1500),
        }
    }
}

impl AppState {
    /// A state without a model.
    pub fn new(limits: Limits, timeouts: Timeouts) -> Self {
        AppState {
            serving: OnceLock::new(),
            limits,
            timeouts,
            keys: ApiKeys::none(),
            metrics: None,
            request_log: None,
            stoppable: Stoppable::default(),
            started: SystemTime::now(),
            probe: Probe::default(),
            management: ManagementAccess::default(),
            live: OnceLock::new(),
            drain_within: Duration::from_secs(30),
            draining: AtomicBool::new(false),
            stop: watch::Sender::new(None),
        }
    }

    /// The model, for a new request.
    ///
    /// # Errors
    /// A refusal (503) while the model is loading or the server shuts down.
    pub fn serving(&self) -> Result<&Serving, Refusal> {
        if self.is_draining() {
            return Err(Refusal::draining());
        }
        self.serving.get().ok_or_else(Refusal::loading)
    }

    /// From now on new requests are refused and health says 503; running ones go on.
    pub fn start_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Asks for the end of the server. False when somebody did so before.
    pub fn stop(&self, mode: StopMode) -> bool {
        let first = self.stop.send_if_modified(|asked| {
            let first = asked.is_none();
            asked.get_or_insert(mode);
            first
        });
        self.start_draining();
        first
    }

    /// Waits until a management call asks for the end.
    pub async fn stop_asked(&self) -> StopMode {
        let mut asked = self.stop.subscribe();
        match asked.wait_for(Option::is_some).await.map(|mode| *mode) {
            Ok(Some(mode)) => mode,
            // The sender lives in this state, so nobody is left to ask.
            _ => std::future::pending().await,
        }
    }

    /// Whether the server is shutting down.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Start of the process in seconds since 1970.
    pub fn created(&self) -> u64 {
        unix_seconds(self.started)
    }
}
