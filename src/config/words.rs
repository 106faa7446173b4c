//! Reads settings that are words: those of flags and of the environment.

use super::error::{ConfigError, Place};
use super::file;
use super::options::{NOT_OFFERED, OPTIONS, option};
use super::origin::Origin;
use serde_json::Value;

type Found = Vec<(&'static str, (Value, Origin))>;

/// The settings of the `ROPETEAM_` variables, and warnings about unknown ones. Those are no errors: Kubernetes, for one,
/// sets such variables for a service of that name.
pub fn from_env(env: &[(String, String)]) -> Result<(Found, Vec<String>), ConfigError> {
    let (mut found, mut warnings) = (Vec::new(), Vec::new());
    for (variable, word) in env {
        refuse_not_offered(variable)?;
        let Some(name) = variable
            .strip_prefix("ROPETEAM_")
            .filter(|name| *name != "CONFIG")
        else {
            continue;
        };
        match option(&name.to_lowercase()) {
            Some(spec) => {
                let place = || Place::Env(variable.clone());
                if let Some(value) = read(spec.key, word, place)? {
                    found.push((spec.key, (value, Origin::Env)));
                }
            }
            None => warnings.push(format!(
                "{variable} is not the variable of any option and was ignored{}",
                hint(name)
            )),
        }
    }
    Ok((found, warnings))
}

fn hint(name: &str) -> String {
    file::nearest(name, OPTIONS.iter().map(|spec| spec.key))
        .and_then(option)
        .map_or_else(String::new, |spec| {
            format!("; did you mean {}?", spec.env())
        })
}

fn refuse_not_offered(variable: &str) -> Result<(), ConfigError> {
    let name = variable.strip_prefix("ROPETEAM_").unwrap_or(variable);
    let upper = name.chars().all(|c| !c.is_ascii_lowercase());
    match not_offered(&name.to_lowercase()).filter(|_| upper) {
        None => Ok(()),
        Some(problem) => Err(ConfigError::Option {
            place: Place::Env(variable.to_owned()),
            problem,
        }),
    }
}

/// Why an option that others have is refused here.
fn not_offered(key: &str) -> Option<String> {
    let known = NOT_OFFERED.iter().find(|(name, _)| *name == key);
    known.map(|(_, reason)| (*reason).to_owned())
}

/// Reads the word of a flag or variable. An empty model means "not set", so that `--model "$MODEL"` can be left open.
pub fn read(
    key: &str,
    word: &str,
    place: impl Fn() -> Place,
) -> Result<Option<Value>, ConfigError> {
    if let Some(problem) = not_offered(key) {
        return Err(ConfigError::Option {
            place: place(),
            problem,
        });
    }
    let spec = option(key).expect("flags and variables are made from the table");
    if key == "model" && word.is_empty() {
        return Ok(None);
    }
    match spec.kind.read(word) {
        Ok(value) => Ok(Some(value)),
        Err(_) if word.starts_with("tcp://") => Err(ConfigError::Option {
            place: place(),
            problem: format!(
                "\"{word}\" was set by Kubernetes for a service of this name; use enableServiceLinks: false"
            ),
        }),
        Err(problem) => Err(ConfigError::Option {
            place: place(),
            problem,
        }),
    }
}
