//! Serving on Ascend devices, which the stand-in's library plays. Here: what a machine without CANN is told, and what the others say of
//! it.

mod faults;
mod goldens;
mod lacking;
mod measuring;
mod serving;

use crate::process::{Server, free_port, ropeteam, tiny};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A folder that looks like an installed CANN: the stand-in under the names of its libraries.
struct Cann(TempDir);

impl Cann {
    fn new() -> Self {
        let cann = Self::empty();
        cann.put(|built, name| std::os::unix::fs::symlink(built, name));
        cann
    }

    /// One whose libraries lack some functions: their names are others.
    fn without(functions: &[&str]) -> Self {
        let cann = Self::empty();
        cann.put(|built, name| {
            let mut bytes = std::fs::read(built)?;
            for function in functions {
                let name = format!("\0{function}\0");
                let finder = memchr::memmem::Finder::new(name.as_bytes());
                let places: Vec<usize> = finder.find_iter(&bytes).collect();
                assert!(!places.is_empty(), "{function}");
                for at in places {
                    bytes[at + function.len()] = b'_';
                }
            }
            std::fs::write(name, bytes)
        });
        cann
    }

    fn empty() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn put(&self, put: impl Fn(&Path, &Path) -> std::io::Result<()>) {
        let exe = std::env::current_exe().expect("a test runs");
        let built: PathBuf = exe.with_file_name("libropeteam_ascend_standin.so");
        assert!(built.exists(), "{}", built.display());
        for name in ["libascendcl.so", "libnnopbase.so", "libopapi.so"] {
            put(&built, &self.0.path().join(name)).expect("a library");
        }
    }

    /// The binary with its libraries at hand.
    fn ropeteam(&self, settings: &str) -> Command {
        let mut command = ropeteam();
        command
            .env("LD_LIBRARY_PATH", self.0.path())
            .env("ACL_STANDIN", settings);
        command
    }

    /// A server on its devices. Whatever it does against the contract ends it.
    fn server(&self, model: &str, settings: &str, flags: &[&str]) -> Server {
        let path = self.0.path().to_str().expect("a UTF-8 path");
        let settings = format!("violations=abort;memory_mib=2048;{settings}");
        let variables = [
            ("LD_LIBRARY_PATH", path),
            ("ACL_STANDIN", settings.as_str()),
        ];
        // A fixture's name, or a path.
        let model = tiny(model);
        let mut all = vec!["--model", model.to_str().expect("a UTF-8 path")];
        all.extend(flags);
        Server::start_in(&variables, &all)
    }
}

#[test]
fn a_machine_without_cann_is_told_what_to_do() {
    let output = ropeteam()
        .env_remove("LD_LIBRARY_PATH")
        .args(["serve", "--device", "ascend:0"])
        .args(["--port", &free_port().to_string(), "--model"])
        .arg(tiny("llama"))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(5));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("cannot open libascendcl.so") && errors.contains("ropeteam doctor"),
        "{errors}"
    );
    assert!(!errors.contains("panicked"), "{errors}");
}

#[test]
fn devices_and_doctor_say_what_there_is() {
    let cann = Cann::new();
    let on_with = |variables: &[(&str, &str)], arguments: &[&str]| {
        let output = ropeteam()
            .env("LD_LIBRARY_PATH", cann.0.path())
            .envs(variables.iter().copied())
            .env("ACL_STANDIN", "devices=2;memory_mib=4096")
            .args(arguments)
            .output()
            .expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let on = |arguments: &[&str]| on_with(&[], arguments);
    let second = on_with(&[("ASCEND_RT_VISIBLE_DEVICES", "1")], &["devices"]);
    assert!(
        second.contains("ascend:0 ") && !second.contains("ascend:1 "),
        "{second}"
    );
    let listed = on(&["devices"]);
    assert!(listed.starts_with("cpu "), "{listed}");
    assert!(
        listed.contains("ascend:1  Ascend910B3, 4.0 GiB of 4.0 GiB free"),
        "{listed}"
    );
    let model = tiny("llama");
    let model = model.to_str().expect("a UTF-8 path");
    let doctor = [
        "doctor",
        "--port",
        "0",
        "--management-port",
        "off",
        "--model",
        model,
    ];
    let on_npu = on(&[&doctor[..], &["--device", "ascend:0"]].concat());
    assert!(on_npu.contains("ok       operators: all 14"), "{on_npu}");
    // There is no driver behind the stand-in.
    assert!(
        on_npu.contains("problem  device nodes: /dev/davinci_manager"),
        "{on_npu}"
    );
    let on_cpu = on(&doctor);
    assert!(on_cpu.contains("ok       memory: weights"), "{on_cpu}");
    assert!(on_cpu.contains("0 problems"), "{on_cpu}");
}
