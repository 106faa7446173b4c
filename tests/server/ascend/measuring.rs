//! `ropeteam perplexity` on an NPU, as the checklist of docs/ascend.md has it done.

use super::Cann;
use crate::process::tiny;
use serde_json::Value;

#[test]
fn perplexity_on_an_npu_is_that_of_the_cpu() {
    let cann = Cann::new();
    let text = cann.0.path().join("text.txt");
    std::fs::write(&text, "The lighthouse keeper wrote a letter. ".repeat(4)).expect("a text");
    let measure = |flags: &[&str]| -> Value {
        let mut command = cann.ropeteam("memory_mib=2048;violations=abort");
        command.arg("perplexity").arg(tiny("llama"));
        command.arg("--text").arg(&text).arg("--json").args(flags);
        let output = command.output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let on_cpu = measure(&["--device", "cpu", "--dtype", "bf16"]);
    for (dtype, name) in [("bf16", "bfloat16"), ("f16", "float16")] {
        let on_npu = measure(&["--device", "ascend:0", "--dtype", dtype]);
        assert_eq!(on_npu["model"]["dtype"], name);
        assert_eq!(on_npu["reference"]["dtype"], "float32");
        // Not the perplexity itself: that of random weights is beyond all measure, and its exponent shows what differs.
        let nll = |of: &Value, which: &str| of[which]["nll"].as_f64().expect("one");
        for (found, wanted) in [
            (nll(&on_npu, "model"), nll(&on_cpu, "model")),
            (nll(&on_npu, "reference"), nll(&on_cpu, "reference")),
        ] {
            let off = (found / wanted - 1.0).abs();
            assert!(off < 0.01, "{found} for {wanted} in {dtype}");
        }
    }
}
