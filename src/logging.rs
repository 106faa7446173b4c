//! Sets up the log: to standard error, coloured text on a terminal, one JSON object a line elsewhere.

use crate::config::{LogFormat, LogLevel, ServerConfig};
use serde::{Deserialize, Serialize};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// What is logged, and how.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LogSettings {
    /// Least important lines to show.
    pub level: LogLevel,
    /// Form of the lines.
    pub format: LogFormat,
}

impl From<&ServerConfig> for LogSettings {
    fn from(config: &ServerConfig) -> Self {
        LogSettings {
            level: config.log_level,
            format: config.log_format,
        }
    }
}

/// Changes the level of the log that was started.
pub struct SetLevel(Box<dyn Fn(LogLevel) -> Result<(), String> + Send + Sync>);

impl SetLevel {
    /// Shows lines from `level` on.
    ///
    /// # Errors
    /// When the log is not this process's own.
    pub fn set(&self, level: LogLevel) -> Result<(), String> {
        (self.0)(level)
    }
}

/// Starts logging. `RUST_LOG` wins over the configured level, until the level is changed. A log that was set up before stays as it is.
pub fn start(settings: impl Into<LogSettings>) -> SetLevel {
    let settings = settings.into();
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(directives(settings.level)));
    let terminal = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // A full disk or a closed pipe behind stderr costs log lines. To complain about it on stderr would panic.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    let text = match settings.format {
        LogFormat::Auto => terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    // A second subscriber is refused; the first one stays, which is right for an embedding program.
    if text {
        let log = log.with_ansi(terminal).with_target(false);
        let log = log.with_filter_reloading();
        let filter = log.reload_handle();
        let _ = log.try_init();
        SetLevel(Box::new(move |level| {
            told(filter.reload(directives(level)))
        }))
    } else {
        let log = log.json().flatten_event(true).with_filter_reloading();
        let filter = log.reload_handle();
        let _ = log.try_init();
        SetLevel(Box::new(move |level| {
            told(filter.reload(directives(level)))
        }))
    }
}

fn told(outcome: Result<(), impl std::fmt::Display>) -> Result<(), String> {
    outcome.map_err(|error| error.to_string())
}

/// Our own crates at the level asked for, others from warnings up.
fn directives(level: LogLevel) -> String {
    let level = match level {
        LogLevel::Error => return "error".to_owned(),
        LogLevel::Warn => return "warn".to_owned(),
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    let ours = ["", "_actors", "_device", "_engine", "_models", "_sim"]
        .map(|part| format!(",ropeteam{part}={level}"));
    format!("warn{}", ours.concat())
}
