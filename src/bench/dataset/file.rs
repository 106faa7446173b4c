//! A dataset's file as text, found and read with errors that name it.

use super::Entry;
use crate::start_error::StartError;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A file that was read.
pub struct DataFile {
    path: PathBuf,
    /// Its content.
    pub text: String,
}

/// Reads a file; in a folder, the one data file that it holds.
///
/// # Errors
/// When there is none, or it is no text.
pub fn read(path: &Path) -> Result<DataFile, StartError> {
    let path = match path.is_dir() {
        true => only_file(path)?,
        false => path.to_owned(),
    };
    let wrong = |problem: &str| StartError::Usage(format!("{}: {problem}", path.display()));
    let bytes = std::fs::read(&path).map_err(|error| wrong(&error.to_string()))?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Err(wrong("it is packed by gzip; unpack it first"));
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is no text in UTF-8"))?;
    Ok(DataFile { path, text })
}

fn only_file(folder: &Path) -> Result<PathBuf, StartError> {
    let wrong = |problem: &str| StartError::Usage(format!("{}: {problem}", folder.display()));
    let unreadable = |error: std::io::Error| wrong(&error.to_string());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path
            .extension()
            .is_some_and(|e| e == "jsonl" || e == "json")
        {
            found.push(path);
        }
    }
    match (found.pop(), found.is_empty()) {
        (Some(file), true) => Ok(file),
        (None, _) => Err(wrong("no .jsonl or .json file in this folder")),
        _ => Err(wrong(
            "several .jsonl or .json files in this folder; name one",
        )),
    }
}

impl DataFile {
    /// Reads one object a line.
    ///
    /// # Errors
    /// The line and what is wrong with it.
    pub fn by_line(
        &self,
        entry: impl Fn(&Value) -> Result<Entry, String>,
    ) -> Result<Vec<Entry>, String> {
        let lines = self.text.lines().enumerate();
        let lines = lines.filter(|(_, line)| !line.trim().is_empty());
        let read = |(number, line): (usize, &str)| {
            let value = serde_json::from_str(line).map_err(|error| {
                // Its own text ends in a place within this line.
                let text = error.to_string();
                let problem = text.split(" at line ").next().unwrap_or_default();
                format!("no JSON: {problem} at column {}", error.column())
            });
            value
                .and_then(|value| entry(&value))
                .map_err(|problem| format!("line {}: {problem}", number + 1))
        };
        lines.map(read).collect()
    }

    /// An error that names the file.
    pub fn wrong(&self, problem: &str) -> StartError {
        StartError::Usage(format!("{}: {problem}", self.path.display()))
    }
}

/// A text field of an object.
///
/// # Errors
/// That it is missing.
pub fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str, String> {
    let text = value.get(field).and_then(Value::as_str);
    text.ok_or_else(|| format!("no text {field:?}"))
}
