//! What the HTTP handlers work with, made from the configuration, and the model put into it once it is there.

use crate::config::{Config, LogRequests, ServerConfig, TgiVersion};
use crate::http::auth::ApiKeys;
use crate::http::grammar::GrammarDesk;
use crate::http::records::{Records, weights_sum};
use crate::http::request_log::RequestLog;
use crate::http::state::{AppState, Limits, Serving, Timeouts};
use crate::http::tgi::Version;
use crate::recorder;
use crate::start_error::StartError;
use crate::wiring::{Started, sizing};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The state of a server that has no model yet.
///
/// # Errors
/// When the key file or the request log's file cannot be used.
pub fn state(config: &Config) -> Result<AppState, StartError> {
    let server = &config.server_config;
    let mut state = AppState::new(limits(config), timeouts(server));
    state.metrics = server.enable_metrics.then(recorder::install).transpose()?;
    if let Some(file) = &server.api_key_file {
        state.keys = keys(file).map_err(|problem| unusable("api_key_file", file, &problem))?;
    }
    if let Some(file) = &server.management_key_file {
        let keys = keys(file);
        state.management.keys =
            keys.map_err(|problem| unusable("management_key_file", file, &problem))?;
    }
    state.drain_within = Duration::from_millis(server.drain_timeout_ms);
    state.request_log = match server.log_requests {
        LogRequests::Off => None,
        LogRequests::On => Some(request_log(server, false)?),
        LogRequests::Full => Some(request_log(server, true)?),
    };
    Ok(state)
}

/// What is wrong with the files of keys that the configuration names.
pub fn unusable_keys(server: &ServerConfig) -> Vec<StartError> {
    let files = [
        ("api_key_file", &server.api_key_file),
        ("management_key_file", &server.management_key_file),
    ];
    let problem = |(name, file): (&str, &Option<PathBuf>)| {
        let file = file.as_ref()?;
        let problem = keys(file).err()?;
        Some(unusable(name, file, &problem))
    };
    files.into_iter().filter_map(problem).collect()
}

/// Puts the model in and tells the operator what serves and what fits.
pub fn announce(state: &AppState, records: Option<Records>, started: Started) {
    let footprint = &started.footprint;
    let sizes = &footprint.sizes;
    tracing::info!(
        model = started.model.name(),
        device = footprint.device,
        dtype = footprint.dtype,
        weights = footprint.weights,
        kv_memory = footprint.kv_memory,
        kv_blocks = sizes.kv_blocks,
        kv_tokens = sizes.kv_tokens(),
        max_model_len = sizes.max_model_len,
        "ready"
    );
    if sizes.kv_tokens() < u64::from(sizes.max_model_len) {
        tracing::warn!(
            kv_tokens = sizes.kv_tokens(),
            max_model_len = sizes.max_model_len,
            "the KV pool is smaller than the longest sequence, so sequences are limited to the pool"
        );
    }
    recorder::identify(started.model.name(), state.started);
    let Started {
        engine,
        text,
        chat,
        special,
        answers,
        pooling,
        grammars,
        model,
        defaults,
        ..
    } = started;
    // Set once per process; there is no second model to lose.
    let _ = state.serving.set(Serving {
        engine,
        records,
        text,
        chat,
        special,
        answers,
        pooling,
        grammars: GrammarDesk::new(grammars),
        model,
        defaults,
    });
}

/// Where requests are recorded, if they are. The sum of the weights comes later: they may take minutes to read.
///
/// # Errors
/// When the folder cannot be written.
pub fn records(config: &Config, started: &Started) -> Result<Option<Records>, StartError> {
    let server = &config.server_config;
    let Some(folder) = &server.record_dir else {
        return Ok(None);
    };
    let records = Records::start(folder, server.record_content, started.model.name());
    let records = records.map_err(|error| unusable("record_dir", folder, &error))?;
    records.watch(&started.engine);
    if let Some(files) = &started.files {
        sum_up(files.clone(), records.clone());
    }
    Ok(Some(records))
}

fn sum_up(files: PathBuf, records: Records) {
    let work = move || match weights_sum(&files) {
        Ok(sum) => records.set_weights(sum),
        Err(error) => tracing::warn!(%error, "records do not name the weights"),
    };
    // Without the thread, records do not name the weights either.
    let _ = std::thread::Builder::new()
        .name("weights-sum".into())
        .spawn(work);
}

fn unusable(option: &str, file: &Path, problem: &dyn std::fmt::Display) -> StartError {
    StartError::Usage(format!("{option}: {}: {problem}", file.display()))
}

fn keys(file: &Path) -> Result<ApiKeys, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot be read: {error}"))?;
    ApiKeys::parse(&text)
}

fn request_log(server: &ServerConfig, texts: bool) -> Result<RequestLog, StartError> {
    let writer: Box<dyn Write + Send> = match &server.request_log_file {
        None => Box::new(std::io::stdout()),
        Some(file) => {
            let opened = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(file);
            Box::new(opened.map_err(|error| unusable("request_log_file", file, &error))?)
        }
    };
    RequestLog::start(writer, texts)
        .map_err(|error| StartError::Other(format!("request log: {error}")))
}

fn timeouts(server: &ServerConfig) -> Timeouts {
    Timeouts {
        header: Duration::from_millis(server.header_timeout_ms),
        body: Duration::from_millis(server.body_timeout_ms),
        write: Duration::from_millis(server.write_timeout_ms),
        sse_keepalive: Duration::from_millis(server.sse_keepalive_ms),
        ..Timeouts::default()
    }
}

fn limits(config: &Config) -> Limits {
    let (model, server) = (&config.model_config, &config.server_config);
    let running = sizing::max_running(model);
    Limits {
        max_body_bytes: server.max_body_bytes,
        max_concurrent_requests: server.max_queue + running as usize,
        max_running: running,
        tgi_version: match server.tgi_version {
            TgiVersion::Early => Version::V0_9_4,
            TgiVersion::Later => Version::Later,
            TgiVersion::MindIe => Version::MindIe,
        },
        max_prefill_batch_size: model.max_prefill_batch_size,
        max_prefill_tokens: model.max_prefill_tokens,
        strict: server.strict,
        own_chat_templates: server.trust_request_chat_template,
        ..Limits::default()
    }
}
