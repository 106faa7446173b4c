//! Reads a configuration file: strict JSON, every key known and set once. What the values mean is `resolve`'s business.

use super::error::{ConfigError, Place};
use super::mindie::{self, Translated};
use super::options::{NOT_OFFERED, OPTIONS, OptionSpec, option};
use super::strict_json;
use serde_json::Value;
use std::path::Path;

/// An option as the file sets it.
pub struct FileSetting {
    /// Which option.
    pub spec: &'static OptionSpec,
    /// Path of keys in the file.
    pub path: String,
    /// Its value, checked against the option's kind.
    pub value: Value,
}

/// Reads the options that `bytes`, the content of `file`, set. Options stand in their section or, in a flat file, at the top; a file of
/// MindIE's is put into our terms.
///
/// # Errors
/// The first thing wrong with it.
pub fn read(file: &Path, bytes: &[u8]) -> Result<Translated, ConfigError> {
    let top = strict_json::object(bytes).map_err(|problem| ConfigError::File {
        file: file.to_owned(),
        problem,
    })?;
    if mindie::is_known_by(&top) {
        return mindie::translate(file, top);
    }
    let mut settings: Vec<FileSetting> = Vec::new();
    for (key, value) in top {
        match value {
            Value::Object(inner) if is_section(&key) => {
                for (inner_key, value) in inner {
                    settings.push(setting(file, Some(&key), &inner_key, value, &settings)?);
                }
            }
            value => settings.push(setting(file, None, &key, value, &settings)?),
        }
    }
    Ok(Translated {
        settings,
        notes: Vec::new(),
    })
}

fn setting(
    file: &Path,
    section: Option<&str>,
    key: &str,
    value: Value,
    earlier: &[FileSetting],
) -> Result<FileSetting, ConfigError> {
    let path = section.map_or_else(|| key.to_owned(), |section| format!("{section}.{key}"));
    let wrong = |problem| ConfigError::Option {
        place: Place::File(file.to_owned(), path.clone()),
        problem,
    };
    let spec = match option(key) {
        Some(spec) if section.is_none_or(|section| section == spec.section) => spec,
        Some(spec) => {
            return Err(wrong(format!(
                "unknown key; it belongs in {}",
                spec.section
            )));
        }
        None => return Err(wrong(unknown(section, key))),
    };
    if let Some(twin) = earlier.iter().find(|earlier| earlier.spec.key == key) {
        return Err(wrong(format!("set twice, also as {}", twin.path)));
    }
    spec.kind.check(&value).map_err(&wrong)?;
    Ok(FileSetting { spec, path, value })
}

fn is_section(key: &str) -> bool {
    OPTIONS.iter().any(|spec| spec.section == key)
}

/// What to say about a key that is none: why it is not offered, or the nearest known key.
fn unknown(section: Option<&str>, key: &str) -> String {
    if let Some((_, reason)) = NOT_OFFERED.iter().find(|(name, _)| *name == key) {
        return (*reason).to_owned();
    }
    if section.is_none() && is_section(key) {
        return "must be an object of options".to_owned();
    }
    let keys = OPTIONS
        .iter()
        .filter(|spec| section.is_none_or(|section| section == spec.section))
        .map(|spec| spec.key);
    let sections = ["model_config", "server_config"]
        .into_iter()
        .filter(|_| section.is_none());
    match nearest(key, keys.chain(sections)) {
        Some(known) => format!("unknown key; did you mean {known}?"),
        None => "unknown key; `ropeteam config reference` lists all".to_owned(),
    }
}

/// The known name most like `name`, if one is alike at all.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let alike = |known: &str| strsim::jaro_winkler(&name.to_lowercase(), known);
    known
        .map(|known| (alike(known), known))
        .filter(|(score, _)| *score > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: impl AsRef<[u8]>) -> String {
        match read(Path::new("c.json"), text.as_ref()) {
            Ok(_) => "accepted".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    fn check(text: impl AsRef<[u8]>, expected: &str) {
        assert_eq!(error(text), expected);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_path_and_the_nearest_known_one() {
        check(
            r#"{"server_config": {"prot": 80}}"#,
            "c.json: server_config.prot: unknown key; did you mean port?",
        );
        check(
            r#"{"prot": 80}"#,
            "c.json: prot: unknown key; did you mean port?",
        );
        check(
            r#"{"sever_config": {}}"#,
            "c.json: sever_config: unknown key; did you mean server_config?",
        );
        check(
            r#"{"limits": {"nosuch": 1}}"#,
            "c.json: limits: unknown key; `ropeteam config reference` lists all",
        );
        check(
            r#"{"model_config": {"port": 80}}"#,
            "c.json: model_config.port: unknown key; it belongs in server_config",
        );
    }

    #[test]
    fn a_wrong_value_is_named_with_what_is_expected() {
        let port = "a whole number from 0 to 65535";
        check(
            r#"{"port": "8080"}"#,
            &format!("c.json: port: \"8080\" is not {port}"),
        );
        check(
            r#"{"server_config": {"port": 70000}}"#,
            &format!("c.json: server_config.port: 70000 is not {port}"),
        );
        check(
            r#"{"port": -1}"#,
            &format!("c.json: port: -1 is not {port}"),
        );
        check(
            r#"{"port": 1.5}"#,
            &format!("c.json: port: 1.5 is not {port}"),
        );
        check(
            r#"{"max_queue": 0}"#,
            "c.json: max_queue: 0 is not a whole number from 1 to 1000000",
        );
        check(r#"{"device": 99}"#, "c.json: device: 99 is not a text");
        check(
            r#"{"server_config": 7}"#,
            "c.json: server_config: must be an object of options",
        );
        assert!(
            error(r#"{"kv_blocks": 0}"#)
                .starts_with("c.json: kv_blocks: 0 is not a whole number from 1")
        );
        assert!(error(r#"{"port": null}"#).starts_with("c.json: port: null is not"));
    }

    #[test]
    fn broken_json_is_told_with_line_and_column() {
        for text in [
            "{\"port\": 80,}",
            "// hello\n{}",
            "{\"kv_blocks\": NaN}",
            "{\"port\": 80",
            "{} {}",
            "{\"port\": 1e999}",
        ] {
            let message = error(text);
            assert!(
                message.starts_with("c.json: ") && message.contains("line"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_key_set_twice_is_refused() {
        check(
            r#"{"port": 1, "port": 2}"#,
            "c.json: port: set twice at line 1 column 18",
        );
        check(
            r#"{"server_config": {"port": 1, "port": 2}}"#,
            "c.json: server_config.port: set twice at line 1 column 36",
        );
        check(
            r#"{"port": 2, "server_config": {"port": 1}}"#,
            "c.json: server_config.port: set twice, also as port",
        );
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_other_encodings_are_refused() {
        check(b"\xef\xbb\xbf{\"port\": 80}", "accepted");
        check(b"\xff\xfe{\0}\0", "c.json: not UTF-8 text");
        check("", "c.json: the file is empty; a JSON object is expected");
        check("[{}]", "c.json: a JSON object is expected at the top");
    }

    #[test]
    fn what_is_not_offered_yet_is_refused_by_name() {
        assert!(error(r#"{"pd_separation": true}"#).contains("not offered yet"));
    }
}
