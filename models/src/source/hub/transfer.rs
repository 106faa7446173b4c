//! One file of the hub: fetched in several attempts if need be, each going on where the one before stopped, and checked.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use hf_hub::api::sync::{Api, ApiError, ApiRepo};
use hf_hub::{Cache, CacheRepo, Repo};

use super::super::progress::Meter;
use super::super::sha256;

/// Attempts per file.
const ATTEMPTS: u32 = 5;
/// Wait before the second attempt; doubled before each further one.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// Fetches files of one commit of a model.
pub(super) struct Transfer<'a> {
    api: &'a Api,
    remote: ApiRepo,
    cached: CacheRepo,
}

/// Why a file did not come.
pub(super) enum Failure {
    /// It may come when asked again.
    Passing(String),
    /// It will not.
    Final(String),
}

impl<'a> Transfer<'a> {
    pub fn new(api: &'a Api, cache: &Cache, pinned: &Repo) -> Self {
        Self {
            api,
            remote: api.repo(pinned.clone()),
            cached: cache.repo(pinned.clone()),
        }
    }

    /// Fetches one file unless it is cached; returns its path in the cache, or why it did not come.
    pub fn file(&self, name: &str) -> Result<PathBuf, String> {
        if let Some(path) = self.cached.get(name) {
            return Ok(path);
        }
        let mut wait = FIRST_WAIT;
        let mut attempt = 1;
        loop {
            let reason = match self.attempt(name) {
                Ok(path) => return Ok(path),
                Err(Failure::Passing(reason)) if attempt < ATTEMPTS => reason,
                Err(Failure::Passing(reason) | Failure::Final(reason)) => return Err(reason),
            };
            tracing::warn!(
                file = name,
                attempt,
                reason,
                "download interrupted, going on"
            );
            thread::sleep(wait);
            wait *= 2;
            attempt += 1;
        }
    }

    fn attempt(&self, name: &str) -> Result<PathBuf, Failure> {
        let size = Arc::new(AtomicU64::new(0));
        let meter = Meter::new(size.clone());
        let path = self
            .remote
            .download_with_progress(name, meter)
            .map_err(|error| {
                if nothing_follows(&error) {
                    self.forget_part(name);
                }
                judge(&error)
            })?;
        let Some(reason) = damage(&path, size.load(Ordering::Relaxed)) else {
            return Ok(path);
        };
        // Neither the link nor what it points to may be taken for the file.
        if let Ok(blob) = path.canonicalize() {
            let _ = fs::remove_file(blob);
        }
        let _ = fs::remove_file(&path);
        Err(Failure::Passing(reason))
    }

    /// Removes what is there of an incomplete file, so that the next attempt starts anew.
    fn forget_part(&self, name: &str) {
        if let Ok(metadata) = self.api.metadata(&self.remote.url(name)) {
            let mut part = self.cached.blob_path(metadata.etag());
            part.set_extension("part");
            let _ = fs::remove_file(part);
        }
    }
}

/// Whether asking again can help.
pub(super) fn judge(error: &ApiError) -> Failure {
    match status(error) {
        Some(code @ (401 | 403 | 404)) => Failure::Final(format!("HTTP status {code}")),
        _ => Failure::Passing(error.to_string()),
    }
}

/// Whether the hub says that nothing can follow what is there of a file.
fn nothing_follows(error: &ApiError) -> bool {
    status(error) == Some(416) || matches!(error, ApiError::InvalidResume)
}

/// The HTTP status that an error stands for.
fn status(error: &ApiError) -> Option<u16> {
    match error {
        ApiError::RequestError(error) => match **error {
            ureq::Error::StatusCode(code) => Some(code),
            _ => None,
        },
        _ => None,
    }
}

/// What is wrong with a fetched file. The hub names large files by their SHA-256.
fn damage(path: &Path, size: u64) -> Option<String> {
    let length = path.metadata().map_or(0, |m| m.len());
    if length != size {
        return Some(format!("{length} of {size} bytes came"));
    }
    let blob = path.canonicalize().ok()?;
    let name = blob.file_name()?.to_str()?;
    let is_sum = name.len() == 64 && name.chars().all(|c| c.is_ascii_hexdigit());
    if is_sum && sha256::of_file(&blob).ok()? != name {
        return Some("its SHA-256 is not the one that the hub names".to_owned());
    }
    None
}
