//! The clients that people use, unmodified: a virtual environment with the packages of `tests/clients/requirements.txt`
//! runs the Python tests there against the real server process. Needs Python 3 with venv, and pip's index once. Where Node.js 20 stands,
//! npm's clients run, too (`tests/clients/npm`); else pytest's summary counts them as skipped and says why.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes the virtual environment unless one with these very requirements stands already; returns its Python.
fn environment(requirements: &Path) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("clients-venv");
    let python = folder.join("bin/python");
    let installed = folder.join("requirements.txt");
    let wanted = std::fs::read(requirements).expect("the requirements");
    if std::fs::read(&installed).is_ok_and(|have| have == wanted) {
        return python;
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&folder));
    run(Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "-r"])
        .arg(requirements));
    std::fs::write(installed, wanted).expect("a writable environment");
    python
}

fn run(command: &mut Command) {
    let status = command
        .status()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(status.success(), "{command:?} ended with {status}");
}

#[test]
fn unmodified_clients_work() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let python = environment(&tests.join("requirements.txt"));
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients-npm");
    run(Command::new(python)
        .args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"])
        .arg(&tests)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("ROPETEAM_CLIENTS_NPM", packages)
        .env("ROPETEAM_BIN", env!("CARGO_BIN_EXE_ropeteam")));
}
