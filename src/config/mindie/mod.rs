//! MindIE's own config.json, taken in place of ours: known by its sections, each field becomes one of our options, is told to have no meaning
//! here, or is refused. Who brings it has MindIE's clients, so TGI's dialect is spoken as MindIE does. Not here: what our options mean (`options`).
//!
//! | file | what |
//! | --- | --- |
//! | `fields/` | every field: its values and what becomes of it |
//! | `shape.rs` | what values a field takes |
//! | `tls.rs` | certificates |
//! | `whole.rs` | rules over several fields |

mod fields;
mod shape;
mod tls;
mod whole;

use super::error::{ConfigError, Place};
use super::file::{FileSetting, nearest};
use super::options::option;
use fields::{Becomes, Field};
use serde_json::{Map, Value};
use std::path::Path;
use whole::Whole;

/// What became of a field of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Path of keys.
    pub field: String,
    /// Its value as it stands in the file.
    pub value: String,
    /// What became of it.
    pub became: String,
}

/// A file in our terms.
pub struct Translated {
    /// Options that it sets.
    pub settings: Vec<FileSetting>,
    /// What became of each field, in the file's order.
    pub notes: Vec<Note>,
}

/// Objects whose fields stand in the table, without the section around them.
const SECTIONS: &[&str] = &[
    "ServerConfig",
    "BackendConfig",
    "ModelDeployConfig",
    "ScheduleConfig",
    "LogConfig",
];

/// The variable that names its file.
pub const CONFIG: &str = "MIES_CONFIG_JSON_PATH";
/// Variables that are stronger than the addresses in its file, and our options for these.
pub const ADDRESSES: &[(&str, &str)] = &[
    ("MIES_CONTAINER_IP", "host"),
    ("MIES_CONTAINER_MANAGEMENT_IP", "management_host"),
];

/// The address that one of these variables holds.
///
/// # Errors
/// When it holds none.
pub fn address(variable: &str, word: &str) -> Result<Value, ConfigError> {
    let value = Value::from(word);
    let wrong = |problem| ConfigError::Option {
        place: Place::Env(variable.to_owned()),
        problem,
    };
    shape::Shape::Ip.check(&value).map_err(wrong)?;
    Ok(value)
}

/// Whether a file is MindIE's: it has one of its sections.
pub fn is_known_by(top: &Map<String, Value>) -> bool {
    SECTIONS.iter().any(|section| top.contains_key(*section))
}

/// Puts the file with the content `top` into our terms.
///
/// # Errors
/// The first field that is unknown, out of range, or asks for what is not offered.
pub fn translate(file: &Path, top: Map<String, Value>) -> Result<Translated, ConfigError> {
    let mut found = Vec::new();
    flatten(file, "", "", top, &mut found)?;
    let whole = Whole::of(&found);
    let dialect = Became::option("tgi_version", "mindie");
    let mut translated = Translated {
        settings: Vec::new(),
        notes: vec![Note {
            field: "(the file itself)".to_owned(),
            value: String::new(),
            became: dialect.told(),
        }],
    };
    set(&mut translated.settings, "", dialect).map_err(|problem| wrong(file, "", problem))?;
    for one in &found {
        let wrong = |problem| wrong(file, &one.path, problem);
        one.field.shape.check(&one.value).map_err(wrong)?;
        let became = became(one, &whole).map_err(wrong)?;
        translated.notes.push(Note {
            field: one.path.clone(),
            value: shown(&one.value),
            became: became.told(),
        });
        set(&mut translated.settings, &one.path, became).map_err(wrong)?;
    }
    whole
        .check()
        .map_err(|(field, problem)| wrong(file, &field, problem))?;
    Ok(translated)
}

/// Adds the options that a field becomes.
fn set(settings: &mut Vec<FileSetting>, path: &str, became: Became) -> Result<(), String> {
    for (key, value) in became.settings {
        let spec = option(key).expect("the table names options of ours");
        spec.kind.check(&value)?;
        settings.push(FileSetting {
            spec,
            path: path.to_owned(),
            value,
        });
    }
    Ok(())
}

/// A field of a file with its entry in the table.
struct Found {
    path: String,
    value: Value,
    field: &'static Field,
}

/// What a field becomes.
#[derive(Default)]
struct Became {
    settings: Vec<(&'static str, Value)>,
    /// Why it has no meaning here, or what is to be said beside the options.
    remark: Option<String>,
}

impl Became {
    fn option(key: &'static str, value: impl Into<Value>) -> Self {
        Became {
            settings: vec![(key, value.into())],
            remark: None,
        }
    }

    fn nothing(why: impl Into<String>) -> Self {
        Became {
            settings: Vec::new(),
            remark: Some(why.into()),
        }
    }

    fn told(&self) -> String {
        let word = |(key, value): &(&'static str, Value)| {
            let spec = option(key).expect("the table names options of ours");
            format!("{key} {}", spec.kind.word(value))
        };
        let options: Vec<String> = self.settings.iter().map(word).collect();
        match (&self.remark, options.is_empty()) {
            (Some(remark), true) => format!("no meaning here: {remark}"),
            (Some(remark), false) => format!("{} ({remark})", options.join(", ")),
            (None, _) => options.join(", "),
        }
    }
}

fn became(found: &Found, whole: &Whole) -> Result<Became, String> {
    let value = &found.value;
    match found.field.becomes {
        Becomes::Option(key) => Ok(Became::option(key, value.clone())),
        Becomes::Times(key, factor) => {
            let number = value.as_i64().unwrap_or(0).saturating_mul(factor);
            Ok(Became::option(key, number))
        }
        Becomes::Nothing(why) => Ok(Became::nothing(why)),
        Becomes::Only(neutral, why) => match shown(value) == neutral {
            true => Ok(Became::nothing("nothing is asked for")),
            false => Err(format!("{} is not offered: {why}", shown(value))),
        },
        Becomes::By(rule) => rule(value, whole),
    }
}

/// Finds the table's entry of each leaf. `table` is the section's own name, `path` the one in the file.
fn flatten(
    file: &Path,
    table: &str,
    path: &str,
    object: Map<String, Value>,
    found: &mut Vec<Found>,
) -> Result<(), ConfigError> {
    for (key, value) in object {
        let full = joined(path, &key);
        match value {
            Value::Object(inner) if SECTIONS.contains(&key.as_str()) => {
                flatten(file, &key, &full, inner, found)?;
            }
            Value::Array(models) if key == "ModelConfig" => {
                let inner = single_model(models).map_err(|problem| wrong(file, &full, problem))?;
                flatten(file, "ModelConfig", &format!("{full}[0]"), inner, found)?;
            }
            value => {
                let name = joined(table, &key);
                let field = fields::all().find(|field| field.name == name);
                let field = field.ok_or_else(|| wrong(file, &full, unknown(&name)))?;
                found.push(Found {
                    path: full,
                    value,
                    field,
                });
            }
        }
    }
    Ok(())
}

fn single_model(models: Vec<Value>) -> Result<Map<String, Value>, String> {
    let count = models.len();
    match <[Value; 1]>::try_from(models) {
        Ok([Value::Object(model)]) => Ok(model),
        Ok([other]) => Err(format!("{other} is not an object")),
        Err(_) => Err(format!("{count} models; a server here serves one")),
    }
}

fn unknown(name: &str) -> String {
    if SECTIONS.contains(&name) {
        return "must be an object".to_owned();
    }
    let (section, key) = name.rsplit_once('.').unwrap_or(("", name));
    let within = fields::all().filter_map(|field| {
        let (of, key) = field.name.rsplit_once('.').unwrap_or(("", field.name));
        (of == section).then_some(key)
    });
    match nearest(key, within) {
        Some(known) => format!("unknown key; did you mean {known}?"),
        None => "unknown key of MindIE's configuration".to_owned(),
    }
}

fn wrong(file: &Path, path: &str, problem: String) -> ConfigError {
    ConfigError::Option {
        place: Place::File(file.to_owned(), path.to_owned()),
        problem,
    }
}

fn joined(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
