//! From a configuration to a running engine: finds the model, reads its texts, works out the sizes, builds the device and starts
//! the actors. Used by the server, the command line, examples and tests. Not here: HTTP.

mod answers;
mod build;
mod defaults;
pub mod direct;
pub mod isolation;
mod model;
mod precision;
mod simulated;
pub mod sizing;
mod texts;

use crate::config::{Config, PoolingChoice, Speculate, tenants};
use crate::http::chat_parts::AnswerForm;
use crate::http::state::ModelCard;
use crate::start_error::StartError;
use ropeteam_actors::{Engine, EngineConfig, EngineParts};
use ropeteam_engine::batching::{BatchLimits, SelectBatch};
use ropeteam_engine::executor::{DeviceFault, FaultKind};
use ropeteam_engine::fairness::Fairness;
use ropeteam_engine::request::Pooling;
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_engine::supervision::RestartPolicy;
use ropeteam_engine::text::TextCodec;
use ropeteam_models::grammar::Grammars;
use ropeteam_models::text::{ChatTemplate, SpecialTokens};
use sizing::Sizes;
pub use sizing::max_running;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Rows up to which a step of the CPU kernels is bound by reading the weights more than by computing with them.
const SPECULATE_ROWS: u32 = 16;
/// Requests that may be tokenised beside those that wait and run.
const TOKENISING: usize = 64;

/// A model that was found and looked at; its weights come when its device starts.
pub struct Loaded {
    /// What the engine is started with.
    pub parts: EngineParts,
    /// Its chat template, or why there is none that can be used.
    pub chat: Result<Arc<ChatTemplate>, String>,
    /// Its named tokens.
    pub special: SpecialTokens,
    /// What it is called and what it is.
    pub model: ModelCard,
    /// Sampling values where a request names none.
    pub defaults: SamplingParams,
    /// What it takes.
    pub footprint: Footprint,
    /// Its folder or file; the simulated one has none.
    pub files: Option<PathBuf>,
}

/// What a model takes and what fits beside it, for the log.
#[derive(Clone, Debug)]
pub struct Footprint {
    /// The device's name.
    pub device: String,
    /// Type of the weights in use.
    pub dtype: &'static str,
    /// Memory of the weights.
    pub weights: String,
    /// Memory of the KV pool.
    pub kv_memory: String,
    /// Sizes of the pool and of a step.
    pub sizes: Sizes,
}

/// A running engine with what belongs to its model.
pub struct Started {
    /// Runs requests.
    pub engine: Engine,
    /// The model's tokenizer.
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
    pub grammars: Grammars,
    /// What it is called and what it is.
    pub model: ModelCard,
    /// Sampling values where a request names none.
    pub defaults: SamplingParams,
    /// What it takes.
    pub footprint: Footprint,
    /// Its folder or file; the simulated one has none.
    pub files: Option<PathBuf>,
}

/// Finds the configured model and prepares its device. Blocks while files are read or downloaded.
///
/// # Errors
/// What is wrong with the model, the device or the memory.
pub fn load(config: &Config) -> Result<Loaded, StartError> {
    match config.model_config.device.as_str() {
        simulated::NAME => simulated::load(config),
        _ => model::load(config),
    }
}

/// Loads on a thread of its own and starts the engine; ready to serve when it returns.
///
/// # Errors
/// What is wrong with the model, the device or the memory.
pub async fn start(config: &Config) -> Result<Started, StartError> {
    let (sender, loading) = tokio::sync::oneshot::channel();
    let owned = config.clone();
    let spawned = std::thread::Builder::new()
        .name("load".to_owned())
        .spawn(move || {
            // Nobody waits any more when a signal came first.
            let _ = sender.send(load(&owned));
        });
    spawned.map_err(|error| StartError::Other(format!("thread: {error}")))?;
    let loaded = loading
        .await
        .unwrap_or_else(|_| Err(StartError::Other("loading panicked".to_owned())))?;
    start_engine(config, loaded).await
}

/// How tenants share the devices, where a file says so.
///
/// # Errors
/// When the file cannot be used.
pub fn fairness(config: &Config) -> Result<Option<Fairness>, StartError> {
    let Some(file) = &config.server_config.tenants_file else {
        return Ok(None);
    };
    let unusable = |problem| format!("tenants_file: {}: {problem}", file.display());
    let fairness = tenants::read(file);
    let fairness = fairness.map_err(|problem| StartError::Usage(unusable(problem)))?;
    Ok(Some(fairness))
}

async fn start_engine(config: &Config, loaded: Loaded) -> Result<Started, StartError> {
    let text = loaded.parts.codec.clone();
    let grammars = Grammars::new(text.clone(), loaded.parts.eos_ids.clone());
    let mut behaviour = engine_config(config);
    if let Some(fairness) = fairness(config)? {
        behaviour.fairness = fairness;
    }
    let engine = Engine::start(behaviour, loaded.parts);
    let engine = engine.map_err(|error| StartError::Other(error.to_string()))?;
    // Later failures are the supervisor's business; a first one ends the process.
    engine.first_life().await.map_err(first_failure)?;
    let Loaded {
        chat,
        special,
        model,
        defaults,
        footprint,
        files,
        ..
    } = loaded;
    Ok(Started {
        engine,
        text,
        answers: answers::form(&config.model_config, chat.as_deref().ok()),
        chat,
        special,
        pooling: match config.model_config.pooling {
            PoolingChoice::Mean => Pooling::Mean,
            PoolingChoice::Last => Pooling::Last,
        },
        grammars,
        model,
        defaults,
        footprint,
        files,
    })
}

fn first_failure(fault: DeviceFault) -> StartError {
    match fault.kind {
        FaultKind::Model => StartError::Model(fault.detail),
        FaultKind::Start => StartError::Device(fault.detail),
        _ => StartError::Device(fault.to_string()),
    }
}

/// How the engine behaves.
pub fn engine_config(config: &Config) -> EngineConfig {
    let (model, server) = (&config.model_config, &config.server_config);
    let running = max_running(model);
    EngineConfig {
        batching: BatchLimits {
            max_prefill_batch_size: model.max_prefill_batch_size,
            max_prefill_tokens: model.max_prefill_tokens,
            max_decode_batch_size: running,
            select: match model.support_select_batch {
                0 => SelectBatch::PrefillFirst,
                _ => SelectBatch::DecodeFirst,
            },
            continuous_batching: model.continuous_batching,
            chunk_tokens: model.prefill_chunk_tokens.min(model.max_prefill_tokens),
            speculate_rows: match model.speculate {
                Speculate::Off => 0,
                Speculate::Ngram => SPECULATE_ROWS,
            },
        },
        prefix_cache: model.prefix_cache,
        max_queue: server.max_queue,
        max_requests: server.max_queue + running as usize + TOKENISING,
        max_prompt_tokens: model.max_input_tokens,
        max_output_tokens: model.max_output_tokens,
        queue_timeout: server.queue_timeout_ms.map(Duration::from_millis),
        request_timeout: Duration::from_millis(server.timeout_ms),
        // With the HTTP workers, which have nothing else to do.
        session_threads: 0,
        restart: RestartPolicy {
            stuck_after: Duration::from_millis(server.step_timeout_ms),
            delay: Duration::from_millis(server.restart_delay_ms),
            budget: server.restart_budget,
            window: Duration::from_millis(server.restart_window_ms),
            trial_after: server.restart_trial_ms.map(Duration::from_millis),
            ..RestartPolicy::default()
        },
        ..EngineConfig::default()
    }
}
