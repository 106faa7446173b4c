//! Finds a model's files: what a path means, and where a folder keeps its weights.

use super::error::CheckpointError;
use super::gguf::is_gguf_name;
use super::mapped::read_text;
use super::safetensors::{open_sharded, open_single};
use super::table::TensorTable;
use std::fs;
use std::path::{Path, PathBuf};

const WEIGHTS: &str = "model.safetensors";
const WEIGHTS_INDEX: &str = "model.safetensors.index.json";

/// What a path leads to.
pub(super) enum Found {
    /// A folder with `config.json`.
    Folder(PathBuf),
    /// A GGUF file.
    Gguf(PathBuf),
}

/// Finds out what `path` is, by the names in it and not by those that links lead to.
pub(super) fn locate(path: &Path) -> Result<Found, CheckpointError> {
    if !path.is_dir() {
        return if is_gguf_name(path) {
            Ok(Found::Gguf(path.to_path_buf()))
        } else {
            Err(no_model(
                path,
                "neither a folder nor a file whose name ends in .gguf",
            ))
        };
    }
    if is_there(&path.join("config.json")) {
        return Ok(Found::Folder(path.to_path_buf()));
    }
    let main = path.join("refs").join("main");
    if is_there(&main) {
        return snapshot(path, read_text(&main)?.trim());
    }
    match &gguf_files(path)?[..] {
        [file] => Ok(Found::Gguf(file.clone())),
        [] => Err(no_model(
            path,
            "it holds neither config.json nor a .gguf file",
        )),
        several => Err(no_model(
            path,
            &format!("it holds {} .gguf files; name one", several.len()),
        )),
    }
}

/// The root of a model in the hub's cache: `refs/main` names the snapshot.
fn snapshot(root: &Path, revision: &str) -> Result<Found, CheckpointError> {
    let is_name = !revision.is_empty() && revision.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let folder = root.join("snapshots").join(revision);
    if is_name && is_there(&folder.join("config.json")) {
        return Ok(Found::Folder(folder));
    }
    Err(no_model(
        root,
        &format!("refs/main names the snapshot {revision:?}, which has no config.json"),
    ))
}

/// Opens the weights of a folder: one file, or shards.
pub(super) fn open_weights(folder: &Path) -> Result<TensorTable, CheckpointError> {
    if is_there(&folder.join(WEIGHTS)) {
        return open_single(&folder.join(WEIGHTS));
    }
    if is_there(&folder.join(WEIGHTS_INDEX)) {
        return open_sharded(&folder.join(WEIGHTS_INDEX));
    }
    let pickled = ["pytorch_model.bin", "pytorch_model.bin.index.json"];
    let hint = match pickled.iter().find(|name| is_there(&folder.join(name))) {
        Some(name) => format!("; {name} is not supported, convert it to safetensors"),
        None => String::new(),
    };
    Err(no_model(
        folder,
        &format!("it holds neither {WEIGHTS} nor {WEIGHTS_INDEX}{hint}"),
    ))
}

/// True for a dangling link too: that is an error of its own, told when the file is opened.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn gguf_files(folder: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let unreadable = |source| CheckpointError::Read {
        file: folder.to_path_buf(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if is_gguf_name(&path) {
            files.push(path);
        }
    }
    Ok(files)
}

fn no_model(path: &Path, detail: &str) -> CheckpointError {
    CheckpointError::NotAModel {
        path: path.to_path_buf(),
        detail: detail.to_owned(),
    }
}
