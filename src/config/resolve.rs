//! Which setting wins: flag over environment over file over default. Remembers where each came from.

use super::error::{ConfigError, Place};
use super::file;
use super::mindie::{self, Note};
use super::options::{Config, OPTIONS, OptionSpec};
use super::origin::Origin;
use super::words;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where settings come from.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Flags as `(key, word)`.
    pub flags: Vec<(&'static str, String)>,
    /// Environment variables, all of them.
    pub env: Vec<(String, String)>,
    /// Configuration file; `ROPETEAM_CONFIG` and then `MIES_CONFIG_JSON_PATH` are looked at when there is none.
    pub file: Option<PathBuf>,
}

/// The value of an option and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Which option.
    pub spec: &'static OptionSpec,
    /// Its value.
    pub value: Value,
    /// Who set it.
    pub origin: Origin,
}

/// Every option with its effective value, in the order of the table.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// All settings.
    pub settings: Vec<Setting>,
    /// Things that look like mistakes but do no harm, one line each.
    pub warnings: Vec<String>,
    /// What became of each field of a file of MindIE's; empty for one of ours.
    pub notes: Vec<Note>,
    /// The typed form.
    pub config: Config,
}

impl Resolved {
    /// Who set the option `key`.
    ///
    /// # Panics
    /// When there is no such option.
    pub fn origin(&self, key: &str) -> &Origin {
        &self
            .settings
            .iter()
            .find(|setting| setting.spec.key == key)
            .expect("a key of the table")
            .origin
    }
}

/// Finds the effective configuration.
///
/// # Errors
/// The first setting that is wrong, also one that a stronger one would hide.
pub fn resolve(inputs: Inputs) -> Result<Resolved, ConfigError> {
    let mut found: BTreeMap<&str, (Value, Origin)> = BTreeMap::new();
    let mut notes = Vec::new();
    let variable = |wanted: &str| {
        let set = inputs.env.iter().find(|(name, _)| name == wanted);
        set.map(|(_, value)| value.clone())
    };
    let from_env = || {
        let path = variable("ROPETEAM_CONFIG").or_else(|| variable(mindie::CONFIG));
        path.map(PathBuf::from)
    };
    if let Some(path) = inputs.file.clone().or_else(from_env) {
        let origin = Origin::File(path.clone());
        let read = file::read(&path, &content(&path)?)?;
        notes = read.notes;
        for setting in read.settings {
            found.insert(setting.spec.key, (setting.value, origin.clone()));
        }
        if !notes.is_empty() {
            for (name, key) in mindie::ADDRESSES {
                if let Some(address) = variable(name) {
                    let address = mindie::address(name, &address)?;
                    found.insert(key, (address, Origin::Env));
                }
            }
        }
    }
    let (from_env, warnings) = words::from_env(&inputs.env)?;
    found.extend(from_env);
    for (key, word) in &inputs.flags {
        if let Some(value) = words::read(key, word, || Place::Flag(key.replace('_', "-")))? {
            found.insert(key, (value, Origin::Flag));
        }
    }
    let settings = settle(found);
    let config = typed(&settings);
    Ok(Resolved {
        settings,
        warnings,
        notes,
        config,
    })
}

fn content(path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|error| ConfigError::File {
        file: path.to_owned(),
        problem: format!("cannot be read: {error}"),
    })
}

/// Fills in defaults, and what follows from other options.
fn settle(mut found: BTreeMap<&str, (Value, Origin)>) -> Vec<Setting> {
    if found.contains_key("port") && !found.contains_key("management_port") {
        found.insert(
            "management_port",
            (Value::Null, Origin::Rule("only port was set")),
        );
    }
    let setting = |spec: &'static OptionSpec| {
        let (value, origin) = found
            .remove(spec.key)
            .unwrap_or_else(|| (spec.default.value(), Origin::Default));
        Setting {
            spec,
            value,
            origin,
        }
    };
    OPTIONS.iter().map(setting).collect()
}

pub(super) fn typed(settings: &[Setting]) -> Config {
    let mut sections = Map::new();
    for setting in settings {
        let section = sections
            .entry(setting.spec.section)
            .or_insert_with(|| Value::Object(Map::new()));
        section[setting.spec.key] = setting.value.clone();
    }
    serde_json::from_value(Value::Object(sections))
        .expect("invariant: each value was checked against its option's kind")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(
        file: &str,
        env: &[(&str, &str)],
        flags: &[(&'static str, &str)],
    ) -> Result<Resolved, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        std::fs::write(&path, file).unwrap();
        resolve(Inputs {
            flags: flags
                .iter()
                .map(|(key, word)| (*key, (*word).to_owned()))
                .collect(),
            env: env
                .iter()
                .map(|(name, word)| ((*name).to_owned(), (*word).to_owned()))
                .collect(),
            file: Some(path),
        })
    }

    fn refused(env: &[(&str, &str)], flags: &[(&'static str, &str)]) -> String {
        with("{}", env, flags).unwrap_err().to_string()
    }

    #[test]
    fn a_flag_wins_over_the_environment_over_the_file_over_the_default() {
        let file = r#"{"server_config": {"max_queue": 2, "port": 2, "host": "2"}}"#;
        let env = [("ROPETEAM_MAX_QUEUE", "3"), ("ROPETEAM_PORT", "3")];
        let resolved = with(file, &env, &[("max_queue", "4")]).unwrap();
        let server = &resolved.config.server_config;
        assert_eq!(
            (server.max_queue, server.port, server.host.as_str()),
            (4, 3, "2")
        );
        assert_eq!(server.header_timeout_ms, 10_000);
        assert_eq!(*resolved.origin("max_queue"), Origin::Flag);
        assert_eq!(*resolved.origin("port"), Origin::Env);
        assert!(matches!(resolved.origin("host"), Origin::File(_)));
        assert_eq!(*resolved.origin("header_timeout_ms"), Origin::Default);
    }

    #[test]
    fn a_wrong_setting_is_an_error_even_when_a_stronger_one_hides_it() {
        let error = with(r#"{"port": "8080"}"#, &[], &[("port", "80")]).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("port: \"8080\" is not a whole number"),
            "{error}"
        );
    }

    #[test]
    fn errors_name_the_flag_or_the_variable() {
        assert!(
            refused(&[], &[("max_queue", "0")])
                .starts_with("--max-queue: \"0\" is not a whole number from 1")
        );
        assert!(
            refused(&[("ROPETEAM_DTYPE", "f8")], &[])
                .starts_with("ROPETEAM_DTYPE: \"f8\" is not one of auto, f32")
        );
        assert!(
            refused(&[("ROPETEAM_PORT", "tcp://10.0.0.1:80")], &[]).contains("enableServiceLinks")
        );
    }

    #[test]
    fn prefill_decode_separation_is_refused_by_name() {
        assert!(
            refused(&[("PREFILL_INSTANCES", "2")], &[])
                .starts_with("PREFILL_INSTANCES: prefill/decode separation")
        );
        assert!(refused(&[("DECODE_INSTANCES", "4")], &[]).contains("not offered yet"));
    }

    #[test]
    fn an_unknown_variable_of_ours_is_warned_about() {
        let resolved = with("{}", &[("ROPETEAM_MAX_QUEU", "3"), ("PATH", "x")], &[]).unwrap();
        let expected = "ROPETEAM_MAX_QUEU is not the variable of any option and was ignored; did you mean ROPETEAM_MAX_QUEUE?";
        assert_eq!(resolved.warnings, [expected]);
    }

    #[test]
    fn the_management_port_is_off_when_only_the_other_port_was_set() {
        let port = |file, flags: &[_]| {
            with(file, &[], flags)
                .unwrap()
                .config
                .server_config
                .management_port
        };
        assert_eq!(port("{}", &[]), Some(1026));
        assert_eq!(port("{}", &[("port", "8080")]), None);
        assert_eq!(
            port("{}", &[("port", "8080"), ("management_port", "8081")]),
            Some(8081)
        );
        assert_eq!(
            port(r#"{"port": 1025, "management_port": 1026}"#, &[]),
            Some(1026)
        );
        assert_eq!(port("{}", &[("management_port", "off")]), None);
    }

    #[test]
    fn an_empty_model_flag_is_as_good_as_none() {
        let resolved = with(r#"{"model": "there"}"#, &[], &[("model", "")]).unwrap();
        assert_eq!(resolved.config.model_config.model, "there");
    }

    #[test]
    fn mindies_variables_name_its_file_and_move_its_addresses() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, r#"{"ServerConfig": {"ipAddress": "127.0.0.1"}}"#).unwrap();
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let file = variable("MIES_CONFIG_JSON_PATH", path.to_str().unwrap());
        let with = |more: (String, String)| {
            resolve(Inputs {
                env: vec![file.clone(), more],
                ..Inputs::default()
            })
        };
        let resolved = with(variable("MIES_CONTAINER_IP", "10.1.2.3")).unwrap();
        assert_eq!(resolved.config.server_config.host, "10.1.2.3");
        let error = with(variable("MIES_CONTAINER_MANAGEMENT_IP", "here")).unwrap_err();
        let expected = "MIES_CONTAINER_MANAGEMENT_IP: \"here\" is not an IP address";
        assert_eq!(error.to_string(), expected);
        // Without a file of MindIE's the variables of its containers mean nothing.
        let env = vec![variable("MIES_CONTAINER_IP", "10.1.2.3")];
        let inputs = Inputs {
            env,
            ..Inputs::default()
        };
        assert_eq!(
            resolve(inputs).unwrap().config.server_config.host,
            "127.0.0.1"
        );
    }

    #[test]
    fn the_file_may_be_named_in_the_environment() {
        let env = vec![("ROPETEAM_CONFIG".to_owned(), "/nowhere/c.json".to_owned())];
        let error = resolve(Inputs {
            env,
            ..Inputs::default()
        })
        .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("/nowhere/c.json: cannot be read"),
            "{error}"
        );
    }
}
