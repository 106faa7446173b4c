//! Where a model folder keeps its chat templates. Not here: compiling them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::super::special_tokens::read_object;
use super::super::{TemplateError, TokenizerError};
use super::DEFAULT;

/// The source of a template and the file it was found in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Located {
    pub name: String,
    pub source: String,
    pub origin: String,
}

/// All templates of a folder: those of the first place that has any.
pub(super) fn in_folder(folder: &Path) -> Result<Vec<Located>, TemplateError> {
    let own_files = jinja_files(folder)?;
    if !own_files.is_empty() {
        return Ok(own_files);
    }
    for name in ["tokenizer_config.json", "chat_template.json"] {
        let file = folder.join(name);
        let config = read_object(&file).map_err(unreadable)?;
        if let Some(field) = config.as_ref().and_then(|c| c.get("chat_template")) {
            let found = of_field(field, &file.display().to_string())?;
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }
    Ok(Vec::new())
}

fn jinja_files(folder: &Path) -> Result<Vec<Located>, TemplateError> {
    let mut found = Vec::new();
    read_jinja(&folder.join("chat_template.jinja"), DEFAULT, &mut found)?;
    let Ok(entries) = fs::read_dir(folder.join("additional_chat_templates")) else {
        return Ok(found);
    };
    for entry in entries.flatten() {
        let file = entry.path();
        let is_template = file.extension().is_some_and(|e| e == "jinja");
        if let (true, Some(name)) = (is_template, file.file_stem().and_then(|n| n.to_str())) {
            read_jinja(&file, name, &mut found)?;
        }
    }
    Ok(found)
}

fn read_jinja(file: &Path, name: &str, found: &mut Vec<Located>) -> Result<(), TemplateError> {
    let source = match fs::read_to_string(file) {
        Ok(source) => source,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => {
            return Err(TemplateError::Read {
                file: file.display().to_string(),
                detail: e.to_string(),
            });
        }
    };
    found.push(Located {
        name: name.to_owned(),
        source,
        origin: file.display().to_string(),
    });
    Ok(())
}

/// One template, or a list of `{name, template}`.
fn of_field(field: &Value, file: &str) -> Result<Vec<Located>, TemplateError> {
    let located = |name: &str, source: &str| Located {
        name: name.to_owned(),
        source: source.to_owned(),
        origin: format!("{file}, chat_template"),
    };
    match field {
        Value::Null => Ok(Vec::new()),
        Value::String(source) => Ok(vec![located(DEFAULT, source)]),
        Value::Array(entries) => entries
            .iter()
            .map(|entry| {
                let text = |key| entry.get(key).and_then(Value::as_str);
                match (text("name"), text("template")) {
                    (Some(name), Some(source)) => Ok(located(name, source)),
                    _ => Err(not_a_template(file)),
                }
            })
            .collect(),
        _ => Err(not_a_template(file)),
    }
}

fn not_a_template(file: &str) -> TemplateError {
    TemplateError::Read {
        file: file.to_owned(),
        detail: "chat_template must be text or a list of objects with name and template".to_owned(),
    }
}

fn unreadable(error: TokenizerError) -> TemplateError {
    match error {
        TokenizerError::Read { file, source } => TemplateError::Read {
            file: file.display().to_string(),
            detail: source.to_string(),
        },
        TokenizerError::Invalid { origin, detail } => TemplateError::Read {
            file: origin,
            detail,
        },
        other => TemplateError::Read {
            file: String::new(),
            detail: other.to_string(),
        },
    }
}
