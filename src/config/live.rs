//! Which options can change while the server runs, and a configuration with some of them changed.

use super::error::{ConfigError, Place};
use super::options::{OptionSpec, option};
use super::origin::Origin;
use super::resolve::{Resolved, typed};
use serde_json::{Map, Value};

/// Options that can change while the server runs.
pub const LIVE: &[&str] = &[
    "max_running",
    "max_prefill_batch_size",
    "max_prefill_tokens",
    "prefill_chunk_tokens",
    "max_decode_batch_size",
    "support_select_batch",
    "max_queue",
    "queue_timeout_ms",
    "timeout_ms",
    "log_level",
];

impl Resolved {
    /// The same configuration with the changes of `patch`, an object of options by key: all of them or none.
    ///
    /// # Errors
    /// The first option that is unknown, cannot change while the server runs, or has a wrong value.
    pub fn patched(&self, patch: &Map<String, Value>) -> Result<Resolved, ConfigError> {
        let mut patched = self.clone();
        for (key, value) in patch {
            let spec = live_option(key)?;
            spec.kind
                .check(value)
                .map_err(|problem| wrong(key, problem))?;
            let setting = patched.settings.iter_mut().find(|s| s.spec.key == spec.key);
            if let Some(setting) = setting {
                setting.value = value.clone();
                setting.origin = Origin::Management;
            }
        }
        patched.config = typed(&patched.settings);
        Ok(patched)
    }
}

fn live_option(key: &str) -> Result<&'static OptionSpec, ConfigError> {
    let spec = option(key).filter(|spec| !spec.hidden());
    let Some(spec) = spec else {
        return Err(wrong(key, format!("unknown option; {}", offer())));
    };
    match LIVE.contains(&key) {
        true => Ok(spec),
        false => Err(wrong(
            key,
            format!("cannot be changed while the server runs; {}", offer()),
        )),
    }
}

fn offer() -> String {
    format!("those that can: {}", LIVE.join(", "))
}

fn wrong(key: &str, problem: String) -> ConfigError {
    ConfigError::Option {
        place: Place::Management(key.to_owned()),
        problem,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Inputs, resolve};
    use super::*;
    use serde_json::json;

    fn patched(patch: Value) -> Result<Resolved, String> {
        let resolved = resolve(Inputs::default()).unwrap();
        let patch = patch.as_object().expect("an object");
        resolved.patched(patch).map_err(|error| error.to_string())
    }

    #[test]
    fn a_change_is_in_effect_with_its_origin() {
        let patched = patched(json!({"max_queue": 7, "log_level": "warn"})).unwrap();
        assert_eq!(patched.config.server_config.max_queue, 7);
        assert_eq!(*patched.origin("max_queue"), Origin::Management);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_value_and_what_was_expected() {
        let check = |patch, expected: &str| {
            let error = patched(patch).expect_err("refused");
            assert!(error.starts_with(expected), "{error}");
        };
        check(
            json!({"max_queue": 0}),
            "max_queue: 0 is not a whole number from 1 to 1000000",
        );
        check(
            json!({"log_level": "loud"}),
            "log_level: \"loud\" is not one of error, warn",
        );
        check(
            json!({"port": 80}),
            "port: cannot be changed while the server runs; those that can: max_running",
        );
        check(json!({"max_queu": 8}), "max_queu: unknown option");
        check(
            json!({"debug_step_delay_ms": 8}),
            "debug_step_delay_ms: unknown",
        );
    }

    #[test]
    fn every_live_option_is_an_option() {
        assert!(LIVE.iter().all(|key| option(key).is_some()));
    }
}
