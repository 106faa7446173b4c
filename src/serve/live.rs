//! The options that operators may change while the server runs: checked like a configuration file, then put into effect.

use crate::config::{Config, Isolation, LogLevel, Resolved, tenants};
use crate::http::refusal::Refusal;
use crate::http::state::LiveOptions;
use crate::logging::SetLevel;
use crate::wiring::{engine_config, max_running};
use ropeteam_actors::Engine;
use serde_json::{Map, Value, json};
use std::sync::{Mutex, PoisonError};

/// How tenants share the devices: no option but the content of a file, and so a key of its own.
const TENANTS: &str = "tenants";

/// What is in effect, and how to change it.
pub struct Live {
    engine: Engine,
    /// As the devices were set up.
    started: Config,
    now: Mutex<Resolved>,
    set_level: SetLevel,
}

impl Live {
    /// The options of a server that was started with `resolved`.
    pub fn new(engine: Engine, resolved: Resolved, set_level: SetLevel) -> Self {
        Live {
            engine,
            started: resolved.config.clone(),
            now: Mutex::new(resolved),
            set_level,
        }
    }

    /// Devices have buffers for steps as large as they were at the start, and no larger.
    fn check_sizes(&self, config: &Config) -> Result<(), Refusal> {
        let (was, is) = (&self.started.model_config, &config.model_config);
        let sizes = [
            (
                "max_prefill_tokens",
                was.max_prefill_tokens,
                is.max_prefill_tokens,
            ),
            (
                "max_prefill_batch_size",
                was.max_prefill_batch_size,
                is.max_prefill_batch_size,
            ),
            ("max_decode_batch_size", max_running(was), max_running(is)),
        ];
        match sizes.into_iter().find(|(_, was, is)| is > was) {
            None => Ok(()),
            Some((key, was, is)) => {
                let message = format!(
                    "{key}: {is} is more than {was}, for which the devices were set up at the start"
                );
                Err(Refusal::invalid(key, message))
            }
        }
    }
}

impl LiveOptions for Live {
    fn change(&self, patch: &Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let mut options = patch.clone();
        let tenants = options.remove(TENANTS);
        let mut fairness = self.engine.live().fairness;
        if let Some(table) = &tenants {
            fairness = tenants::table(table)
                .map_err(|problem| Refusal::invalid(TENANTS, format!("{TENANTS}: {problem}")))?;
        }
        let next = now.patched(&options).map_err(|error| {
            let message = error.to_string();
            let field = message.split(':').next().unwrap_or_default().to_owned();
            Refusal::invalid(field, message)
        })?;
        self.check_sizes(&next.config)?;
        let level = |config: &Config| -> LogLevel { config.server_config.log_level };
        if level(&next.config) != level(&now.config) {
            if next.config.model_config.isolation == Isolation::Process {
                let message = "log_level: cannot be changed while the server runs with isolation process: devices' processes would keep theirs";
                return Err(Refusal::invalid("log_level", message));
            }
            self.set_level
                .set(level(&next.config))
                .map_err(|error| Refusal::invalid("log_level", format!("log_level: {error}")))?;
        }
        let mut live = engine_config(&next.config).live();
        let shares_changed = self.engine.live().fairness != fairness;
        live.fairness = fairness;
        self.engine.reconfigure(live);
        let pairs = now.settings.iter().zip(&next.settings);
        let changed = pairs.filter(|(was, is)| was.value != is.value);
        let mut changed: Map<String, Value> = changed
            .map(|(was, is)| {
                let change = json!({"from": was.value, "to": is.value});
                (is.spec.key.to_owned(), change)
            })
            .collect();
        if let Some(table) = tenants.filter(|_| shares_changed) {
            changed.insert(TENANTS.to_owned(), json!({ "to": table }));
        }
        *now = next;
        Ok(changed)
    }
}
