//! The model's files, and whether it fits.

use super::Finding;
use super::machine::{gib, space};
use crate::config::Config;
use crate::start_error::StartError;
use crate::wiring;
use ropeteam_models::Checkpoint;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Others may write.
const OTHERS_WRITE: u32 = 0o022;

/// Looks at the model; whether it fits is asked only when the device can be opened.
pub fn examine(config: &Config, device_stands: bool, findings: &mut Vec<Finding>) {
    let model = &config.model_config;
    let path = Path::new(&model.model);
    if model.device == "simulated" {
        return;
    }
    if !path.exists() {
        findings.push(not_here(&model.model));
        return;
    }
    let before = findings.len();
    findings.extend(permissions(path));
    findings.push(integrity(path));
    let stands = |finding: &Finding| finding.level != super::Level::Bad;
    if device_stands && findings[before..].iter().all(stands) {
        findings.push(fit(config));
    }
}

fn not_here(name: &str) -> Finding {
    let free = space(Path::new(".")).map_or("unknown".to_owned(), |(free, _)| gib(free));
    Finding::good(
        "model",
        format!(
            "{name} is no folder or file here; it is looked for in the cache or downloaded ({free} free on this disk)"
        ),
    )
}

/// The files of a folder, or the one file.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| p.is_file()).collect();
    files.sort();
    files
}

fn permissions(path: &Path) -> Vec<Finding> {
    let about = "model files";
    let mut findings = Vec::new();
    for file in files(path) {
        if let Err(error) = File::open(&file) {
            findings.push(Finding::bad(
                about,
                format!("{}: {error}", file.display()),
                format!(
                    "chown to the user that serves, then chmod 640 {} (750 for its folder)",
                    file.display()
                ),
            ));
            continue;
        }
        let mode = fs::metadata(&file).map_or(0, |meta| meta.permissions().mode());
        if mode & OTHERS_WRITE != 0 {
            findings.push(Finding::doubtful(
                about,
                format!(
                    "{} may be written by others ({:o})",
                    file.display(),
                    mode & 0o777
                ),
                format!(
                    "chmod 640 {}: who can change it can change every answer",
                    file.display()
                ),
            ));
        }
    }
    if findings.is_empty() {
        let found = format!(
            "{} can be read, and written by their owner only",
            path.display()
        );
        findings.push(Finding::good(about, found));
    }
    findings
}

fn integrity(path: &Path) -> Finding {
    match Checkpoint::open(path) {
        Ok(checkpoint) => Finding::good(
            "model integrity",
            format!(
                "{} tensors, none cut off",
                checkpoint.tensor_names().count()
            ),
        ),
        Err(error) => Finding::bad(
            "model integrity",
            error.to_string(),
            "download the file again and compare its sha256 with the source's",
        ),
    }
}

/// Whether weights, cache and activations fit, by the very sizing that serving does.
fn fit(config: &Config) -> Finding {
    match wiring::load(config) {
        Ok(loaded) => {
            let footprint = loaded.footprint;
            Finding::good(
                "memory",
                format!(
                    "weights {}, KV cache {} for {} tokens on {}",
                    footprint.weights,
                    footprint.kv_memory,
                    footprint.sizes.kv_tokens(),
                    footprint.device
                ),
            )
        }
        Err(error) => unfit(&error),
    }
}

fn unfit(error: &StartError) -> Finding {
    let (about, remedy) = match error {
        StartError::Config(_) | StartError::Usage(_) => (
            "options",
            "change the option; `ropeteam config reference` lists all with their ranges",
        ),
        StartError::Model(_) => (
            "model",
            "compare the folder with its source; the README names the families that are served",
        ),
        StartError::Device(_) => (
            "device",
            "free memory, choose a quantised model, or lower --kv-memory, --max-prefill-tokens or --max-running; \
             another device with --device",
        ),
        _ => ("machine", "mend what the operating system says"),
    };
    Finding::bad(about, error.to_string(), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn a_file_that_others_can_write_is_doubtful_and_a_cut_one_is_bad() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny/llama");
        for file in files(&source) {
            let copy = folder.path().join(file.file_name().expect("a name"));
            fs::copy(&file, &copy).expect("a copy");
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o640)).expect("a mode");
        }
        assert_eq!(permissions(folder.path())[0].level, Level::Good);
        assert_eq!(integrity(folder.path()).level, Level::Good);
        let weights = folder.path().join("model.safetensors");
        fs::set_permissions(&weights, fs::Permissions::from_mode(0o666)).expect("a mode");
        let found = permissions(folder.path());
        assert_eq!((found.len(), found[0].level), (1, Level::Doubtful));
        assert!(found[0].remedy.contains("chmod 640"), "{found:?}");
        let length = fs::metadata(&weights).expect("a file").len();
        let file = fs::OpenOptions::new()
            .write(true)
            .open(&weights)
            .expect("a file");
        file.set_len(length / 2).expect("cut");
        assert_eq!(integrity(folder.path()).level, Level::Bad);
    }
}
