//! Reference data of the tests in this folder: the small tokenizers in the repository, and real ones where a machine
//! has them (their vocabularies have terms of their own, so they are not kept here).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Names a folder that holds one folder with tokenizer.json per real tokenizer.
const REAL_TOKENIZERS: &str = "ROPETEAM_TOKENIZERS";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/text")
}

/// A JSON file.
pub fn json(name: &str) -> Value {
    let file = root().join(name);
    let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    serde_json::from_str(&text).unwrap()
}

/// The goldens of a tokenizer: those kept here, else those beside the real tokenizers.
pub fn goldens(name: &str) -> Value {
    let kept = root().join("goldens").join(format!("{name}.json"));
    let real = std::env::var_os(REAL_TOKENIZERS).map(PathBuf::from);
    let file = match real {
        Some(folder) if !kept.exists() => folder.join(name).join("goldens.json"),
        _ => kept,
    };
    let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    serde_json::from_str(&text).unwrap()
}

/// Name of the goldens and folder of each tokenizer that is there.
pub fn tokenizer_folders() -> Vec<(String, PathBuf)> {
    let mut found = folders_in(&root().join("tokenizers"), "tiny-");
    assert!(
        !found.is_empty(),
        "the small tokenizers are in the repository"
    );
    match std::env::var_os(REAL_TOKENIZERS) {
        Some(folder) => found.extend(folders_in(Path::new(&folder), "")),
        None => eprintln!("NOT TESTED on real tokenizers: {REAL_TOKENIZERS} is not set"),
    }
    found
}

fn folders_in(parent: &Path, prefix: &str) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(parent).unwrap_or_else(|e| panic!("{}: {e}", parent.display()));
    let mut found: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("tokenizer.json").exists())
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (format!("{prefix}{name}"), path)
        })
        .collect();
    found.sort();
    found
}
