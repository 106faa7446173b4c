//! The configuration for people and programs: effective values with their origin, and the reference of all options.

use super::options::{OPTIONS, OptionSpec};
use super::resolve::{Resolved, Setting};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// One line per option: key, value, origin.
pub fn to_text(resolved: &Resolved) -> String {
    let mut text = String::new();
    let mut section = "";
    for setting in shown(resolved) {
        if section != setting.spec.section {
            section = setting.spec.section;
            let _ = writeln!(text, "{section}");
        }
        let value = setting.spec.kind.word(&setting.value);
        let _ = writeln!(
            text,
            "  {:<24} {value:<28} {}",
            setting.spec.key, setting.origin
        );
    }
    text
}

/// The same as JSON: `{section: {key: {"value", "origin"}}}`.
pub fn to_json(resolved: &Resolved) -> Value {
    let mut sections = Map::new();
    for setting in shown(resolved) {
        let section = sections
            .entry(setting.spec.section)
            .or_insert_with(|| json!({}));
        section[setting.spec.key] =
            json!({ "value": setting.value, "origin": setting.origin.to_string() });
    }
    Value::Object(sections)
}

/// Test hooks are shown only when somebody set them.
fn shown(resolved: &Resolved) -> impl Iterator<Item = &Setting> {
    resolved
        .settings
        .iter()
        .filter(|setting| !setting.spec.hidden() || setting.value != setting.spec.default.value())
}

/// All options as a table in Markdown.
pub fn reference() -> String {
    let mut text = String::from(
        "| section | key | flag | variable | values | default | meaning |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for spec in OPTIONS.iter().filter(|spec| !spec.hidden()) {
        let default = spec.kind.word(&spec.default.value());
        let values = spec.kind.to_string().replace('|', "\\|");
        let (section, key, flag) = (spec.section, spec.key, spec.flag());
        let (variable, meaning) = (spec.env(), OptionSpec::summary(spec));
        let _ = writeln!(
            text,
            "| {section} | `{key}` | `--{flag}` | `{variable}` | {values} | `{default}` | {meaning} |"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{Inputs, Origin, resolve};
    use super::*;

    #[test]
    fn the_file_of_defaults_holds_every_option_at_its_default() {
        let file = include_str!("../../config/config.json");
        let file: Value = serde_json::from_str(file).unwrap();
        let mut built_in = json!({});
        for spec in OPTIONS.iter().filter(|spec| !spec.hidden()) {
            built_in[spec.section][spec.key] = spec.default.value();
        }
        assert_eq!(file, built_in);
    }

    #[test]
    fn each_value_is_shown_with_where_it_came_from() {
        let inputs = Inputs {
            flags: vec![("max_queue", "7".to_owned())],
            ..Inputs::default()
        };
        let resolved = resolve(inputs).unwrap();
        let shown = to_json(&resolved);
        assert_eq!(
            shown["server_config"]["max_queue"],
            json!({"value": 7, "origin": "flag"})
        );
        assert_eq!(
            shown["server_config"]["port"],
            json!({"value": 1025, "origin": Origin::Default.to_string()})
        );
        assert!(shown.get("debug_config").is_none());
        assert!(
            to_text(&resolved)
                .contains("  max_queue                7                            flag\n")
        );
    }
}
