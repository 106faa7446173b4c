//! Libraries that lack functions: what a model needs is named before it is served, and by the doctor.

use super::Cann;
use crate::process::{free_port, ropeteam, tiny};
use std::path::Path;
use std::process::Output;

fn words(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// What doctor and server say of a model on an NPU whose libraries lack one function.
fn told(function: &str, model: &Path) -> [String; 2] {
    let cann = Cann::without(&[function]);
    let run = |arguments: &[&str]| {
        let mut command = cann.ropeteam("memory_mib=2048");
        command.args(arguments).arg("--model").arg(model);
        command.args(["--device", "ascend:0"]);
        command.output().expect("it runs")
    };
    let doctor = run(&["doctor", "--port", "0", "--management-port", "off"]);
    let served = run(&["serve", "--port", &free_port().to_string()]);
    assert_eq!(served.status.code(), Some(5), "{}", words(&served));
    [words(&doctor), words(&served)]
}

#[test]
fn what_a_model_needs_is_missed_before_it_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let int8 = folder.path().join("int8");
    let written = ropeteam()
        .args(["quantize", "--to", "int8", "--out"])
        .arg(&int8)
        .arg(tiny("llama"))
        .output()
        .expect("it runs");
    assert!(written.status.success(), "{}", words(&written));
    for (function, model) in [
        ("aclnnQuantMatmulV4", int8),
        ("aclrtSynchronizeEventWithTimeout", tiny("llama")),
    ] {
        let [doctor, served] = told(function, &model);
        let named = format!("the installed CANN lacks {function}");
        assert!(
            doctor.contains(&format!("problem  operators: {named}")),
            "{doctor}"
        );
        assert!(served.contains(&named), "{served}");
    }
}
