//! The folder that a quantised model is written to: made under another name and renamed when it is whole, so that there never is
//! half a model under its name.

use super::error::QuantizeError;
use serde_json::{Map, Value};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;

/// A folder in the making.
pub(super) struct NewFolder {
    out: PathBuf,
    making: TempDir,
}

/// Folders in the making, for a process that ends before they are whole.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes every folder that is not whole yet. For a process that is about to end: whoever writes to one fails.
pub fn remove_unfinished() {
    for folder in std::mem::take(&mut *unfinished()) {
        // A file that is written at this moment may make it fail; the next time it is gone.
        let removed = || fs::remove_dir_all(&folder).is_ok() || !folder.exists();
        let _ = (0..100).any(|_| removed());
    }
}

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Beginnings of the names of files that belong to a model beside its weights and its configuration.
const COPIED: [&str; 9] = [
    "tokenizer",
    "special_tokens_map",
    "added_tokens",
    "vocab.",
    "merges.txt",
    "generation_config.json",
    "chat_template",
    "LICENSE",
    "NOTICE",
];

impl NewFolder {
    /// Begins a folder that is going to be called `out`; it must not be there, or be empty.
    pub fn begin(out: &Path) -> Result<Self, QuantizeError> {
        if let Ok(mut entries) = fs::read_dir(out)
            && entries.next().is_some()
        {
            return Err(QuantizeError::write(out, "the folder is not empty"));
        }
        if out.exists() && !out.is_dir() {
            return Err(QuantizeError::write(out, "there is a file of that name"));
        }
        let parent = match out.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(|error| QuantizeError::write(parent, error))?;
        let making = tempfile::Builder::new()
            .prefix(".quantizing-")
            .tempdir_in(parent)
            .map_err(|error| QuantizeError::write(parent, error))?;
        unfinished().push(making.path().to_path_buf());
        Ok(Self {
            out: out.to_path_buf(),
            making,
        })
    }

    /// Where its files go for now.
    pub fn path(&self) -> &Path {
        self.making.path()
    }

    /// Writes `config.json`.
    pub fn write_config(&self, config: &Map<String, Value>) -> Result<(), QuantizeError> {
        let file = self.path().join("config.json");
        let text = serde_json::to_string_pretty(config)
            .map_err(|error| QuantizeError::write(&file, error))?;
        fs::write(&file, text + "\n").map_err(|error| QuantizeError::write(&file, error))
    }

    /// Copies what belongs to the model in `source` beside its weights and its configuration. Links are followed.
    pub fn copy_texts(&self, source: &Path) -> Result<(), QuantizeError> {
        let unreadable = |error| QuantizeError::Source {
            path: source.to_path_buf(),
            problem: format!("cannot be listed: {error}"),
        };
        for entry in fs::read_dir(source).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(name) = name.filter(|name| COPIED.iter().any(|start| name.starts_with(start)))
            else {
                continue;
            };
            if path.is_file() {
                let copy = self.path().join(name);
                fs::copy(&path, &copy).map_err(|error| QuantizeError::write(&copy, error))?;
            }
        }
        Ok(())
    }

    /// Gives it its name.
    pub fn finish(self) -> Result<(), QuantizeError> {
        let failed = |error| QuantizeError::write(&self.out, error);
        if self.out.is_dir() {
            fs::remove_dir(&self.out).map_err(failed)?;
        }
        readable(self.path()).map_err(failed)?;
        // Its name is gone from here on; without one, it is removed with this.
        fs::rename(self.path(), &self.out).map_err(failed)
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        unfinished().retain(|folder| folder != self.making.path());
    }
}

/// Temporary folders and files are for their owner alone; a model is for everybody.
#[cfg(unix)]
fn readable(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder)? {
        fs::set_permissions(entry?.path(), fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn readable(_: &Path) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_whole_is_removed_and_what_is_stays() {
        let parent = tempfile::tempdir().expect("a folder");
        let begin = |name| NewFolder::begin(&parent.path().join(name)).expect("a new folder");
        let (half, whole) = (begin("half"), begin("whole"));
        whole.finish().expect("it is named");
        fs::write(half.path().join("shard"), "half of it").expect("a file");
        remove_unfinished();
        let left = fs::read_dir(parent.path()).expect("a folder");
        let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["whole"]);
    }
}
