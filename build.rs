//! Puts the version into the binary, in a release with the commit it was built from if that is known.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let version = match commit().filter(|_| release) {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo:rustc-env=SERVER_VERSION={version}");
    // Grows with each commit and checkout.
    let log = Path::new(".git/logs/HEAD");
    if release && log.exists() {
        println!("cargo:rerun-if-changed={}", log.display());
    }
}

fn commit() -> Option<String> {
    let output = Command::new("git")
        .args(["rev-parse", "--short=10", "HEAD"])
        .output()
        .ok()?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !commit.is_empty()).then_some(commit)
}
