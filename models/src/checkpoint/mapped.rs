//! Model files in memory: mapped weights and small text files, with errors that tell a dangling link from a missing file.

use super::error::CheckpointError;
use memmap2::Mmap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Largest JSON file that is read whole. The index of the largest sharded models is some megabytes.
const MAX_TEXT_BYTES: u64 = 64 << 20;

/// A read-only view of a file.
///
/// The pages belong to the file: when somebody shortens it while it is mapped, reading beyond its new end kills the
/// process. So weights are copied to the device at once and the mapping is dropped when the model is loaded.
pub(crate) struct MappedFile {
    path: PathBuf,
    // An empty file cannot be mapped.
    map: Option<Mmap>,
}

impl MappedFile {
    /// Maps `path`, following links.
    pub(crate) fn open(path: &Path) -> Result<Self, CheckpointError> {
        let file = open_file(path)?;
        let len = file
            .metadata()
            .map_err(|source| read_error(path, source))?
            .len();
        let map = if len == 0 {
            None
        } else {
            // SAFETY: the map is read-only and private to this struct; the caller keeps it only while loading, and a
            // model's files are not rewritten while they are loaded (stated above, as for every mapped file).
            Some(unsafe { Mmap::map(&file) }.map_err(|source| read_error(path, source))?)
        };
        Ok(Self {
            path: path.to_path_buf(),
            map,
        })
    }

    /// The name it was opened by (a link's own name).
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// All of it.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }
}

/// Reads a small UTF-8 file.
pub(crate) fn read_text(path: &Path) -> Result<String, CheckpointError> {
    let file = open_file(path)?;
    let len = file
        .metadata()
        .map_err(|source| read_error(path, source))?
        .len();
    if len > MAX_TEXT_BYTES {
        let detail = format!("{len} bytes, at most {MAX_TEXT_BYTES} are expected of such a file");
        return Err(CheckpointError::malformed(path, detail));
    }
    io::read_to_string(file).map_err(|source| read_error(path, source))
}

/// Like `read_text`, but a file that is not there is `None`. A dangling link is an error all the same.
pub(crate) fn read_text_if_there(path: &Path) -> Result<Option<String>, CheckpointError> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(None);
    }
    read_text(path).map(Some)
}

fn open_file(path: &Path) -> Result<File, CheckpointError> {
    let file = File::open(path).map_err(|source| read_error(path, source))?;
    match file.metadata() {
        Ok(meta) if meta.is_dir() => {
            let source = io::Error::new(io::ErrorKind::IsADirectory, "it is a directory");
            Err(read_error(path, source))
        }
        Ok(_) => Ok(file),
        Err(source) => Err(read_error(path, source)),
    }
}

fn read_error(path: &Path, source: io::Error) -> CheckpointError {
    if source.kind() == io::ErrorKind::NotFound
        && let Ok(target) = fs::read_link(path)
    {
        return CheckpointError::DanglingLink {
            link: path.to_path_buf(),
            target,
        };
    }
    CheckpointError::Read {
        file: path.to_path_buf(),
        source,
    }
}
