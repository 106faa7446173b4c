//! Whether the machine has what a device needs; each refusal says what is missing.

use super::options::AscendOptions;
use ropeteam_acl_sys::Acl;
use ropeteam_device::{DeviceError, Float, Precision};

/// Operators without which nothing can be served.
pub const NEEDED: [&str; 12] = [
    "aclnnEmbedding",
    "aclnnRmsNorm",
    "aclnnInplaceAddRmsNorm",
    "aclnnMatmul",
    "aclnnInplaceAdd",
    "aclnnInplaceCopy",
    "aclnnIndexSelect",
    "aclnnSwiGlu",
    "aclnnRopeWithSinCosCache",
    "aclnnScatterPaKvCache",
    "aclnnFusedInferAttentionScoreV4",
    "aclnnMaxDim",
];

/// Operators that weights in int8 need besides.
pub const NEEDED_BY_INT8: [&str; 2] = ["aclnnDynamicQuant", "aclnnQuantMatmulV4"];

/// Functions of the runtime and of tensors that every life of a device calls.
const FUNCTIONS: [&str; 34] = [
    "aclCreateScalar",
    "aclCreateTensor",
    "aclCreateTensorList",
    "aclDestroyAclOpExecutor",
    "aclDestroyIntArray",
    "aclDestroyScalar",
    "aclDestroyTensor",
    "aclDestroyTensorList",
    "aclInit",
    "aclSetAclOpExecutorRepeatable",
    "aclSetTensorAddr",
    "aclrtCreateContext",
    "aclrtCreateEventExWithFlag",
    "aclrtCreateStreamWithConfig",
    "aclrtDestroyContext",
    "aclrtDestroyEvent",
    "aclrtDestroyStreamForce",
    "aclrtFree",
    "aclrtFreeHost",
    "aclrtGetDeviceCount",
    "aclrtGetMemInfo",
    "aclrtMalloc",
    "aclrtMallocHost",
    "aclrtMemcpyAsync",
    "aclrtMemset",
    "aclrtRecordEvent",
    "aclrtResetDevice",
    "aclrtResetDeviceForce",
    "aclrtSetDevice",
    "aclrtSetStreamFailureMode",
    "aclrtStreamAbort",
    "aclrtStreamWaitEvent",
    "aclrtSynchronizeEventWithTimeout",
    "aclrtSynchronizeStreamWithTimeout",
];

/// What serving fails without, out of the functions that the libraries lack; operators by the name of their second phase, whichever
/// of both is missing.
pub fn lacking(absent: &[&'static str], int8: bool) -> Vec<&'static str> {
    let also: &[&'static str] = if int8 { &NEEDED_BY_INT8 } else { &[] };
    let operators = NEEDED.iter().chain(also);
    let operators = operators.filter(|name| lacks_operator(absent, name));
    let functions = FUNCTIONS.iter().filter(|name| absent.contains(*name));
    operators.chain(functions).copied().collect()
}

/// Whether one of an operator's two phases is missing.
pub fn lacks_operator(absent: &[&str], operator: &str) -> bool {
    let is_phase = |name: &&str| name.strip_suffix("GetWorkspaceSize").unwrap_or(name) == operator;
    absent.iter().any(is_phase)
}

/// The arithmetic is one that the chip has.
pub fn check_arithmetic(options: &AscendOptions) -> Result<(), DeviceError> {
    if options.activations == Float::F32 || options.precision == Precision::F32 {
        let what = "the Ascend device computes in bf16 or f16, not in f32".to_owned();
        return Err(DeviceError::Unavailable(what));
    }
    if matches!(options.precision, Precision::Int8 | Precision::Int4) {
        let what = "the Ascend device does not round weights at load; there are weights as the file holds them, and 16-bit floats".to_owned();
        return Err(DeviceError::Unavailable(what));
    }
    Ok(())
}

/// There is a chip of that number.
pub fn check_number(acl: &Acl, device: u32) -> Result<(), DeviceError> {
    let mut count = 0;
    call!(acl, runtime.aclrtGetDeviceCount(&mut count))?;
    match device < count {
        true => Ok(()),
        false => Err(DeviceError::Unavailable(format!(
            "there is no Ascend device {device}: {count} are visible (ASCEND_RT_VISIBLE_DEVICES={})",
            std::env::var("ASCEND_RT_VISIBLE_DEVICES").unwrap_or_else(|_| "not set".to_owned())
        ))),
    }
}

/// The chip has the operators.
pub fn check_chip(chip: &str) -> Result<(), DeviceError> {
    match chip.starts_with("Ascend310P") {
        false => Ok(()),
        true => Err(DeviceError::Unavailable(format!(
            "{chip} has no attention over a paged cache in aclnn; there are Atlas A2 and A3 (910B, 910C)"
        ))),
    }
}

/// The installed functions are enough: for all models, or for one with weights in int8.
pub fn check_functions(acl: &Acl, int8: bool) -> Result<(), DeviceError> {
    let lacking = lacking(&acl.absent(), int8);
    match lacking.is_empty() {
        true => Ok(()),
        false => Err(DeviceError::Unavailable(format!(
            "the installed CANN lacks {}{}; CANN 8.3 or later with the operator package of the chip has them",
            lacking.join(", "),
            if int8 {
                ", which weights in int8 need"
            } else {
                ""
            }
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Lacking them costs speed or words, no answer.
    const SPARED: [&str; 7] = [
        "aclnnTopk",
        "aclnnWeightQuantBatchMatmulV2",
        "aclGetRecentErrMsg",
        "aclrtGetSocName",
        "aclrtGetVersion",
        "aclnnDynamicQuant",
        "aclnnQuantMatmulV4",
    ];

    #[test]
    fn either_phase_of_an_operator_is_missed_by_its_name() {
        assert_eq!(lacking(&["aclnnMatmul"], false), ["aclnnMatmul"]);
        let first = ["aclnnMatmulGetWorkspaceSize", "aclnnTopk"];
        assert_eq!(lacking(&first, false), ["aclnnMatmul"]);
        let quant = ["aclnnQuantMatmulV4GetWorkspaceSize"];
        assert!(lacking(&quant, false).is_empty());
        assert_eq!(lacking(&quant, true), ["aclnnQuantMatmulV4"]);
        let wait = "aclrtSynchronizeEventWithTimeout";
        assert_eq!(lacking(&[wait], false), [wait]);
    }

    /// The C functions that a source names: of the tables of runtime and tensors, and operators.
    fn called(text: &str) -> impl Iterator<Item = &str> {
        ["runtime.acl", "meta.acl", "aclnn"]
            .into_iter()
            .flat_map(move |place| {
                text.match_indices(place).map(move |(at, _)| {
                    let name = &text[at + place.rfind("acl").unwrap_or(0)..];
                    let end = name.find(|c: char| !c.is_ascii_alphanumeric());
                    &name[..end.unwrap_or(name.len())]
                })
            })
    }

    #[test]
    fn whatever_is_called_is_asked_for() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut folders = vec![source];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).expect("a source");
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                for name in called(code).filter(|name| name.len() > "aclnn".len()) {
                    let name = name.strip_suffix("GetWorkspaceSize").unwrap_or(name);
                    let known = NEEDED.contains(&name)
                        || FUNCTIONS.contains(&name)
                        || SPARED.contains(&name);
                    assert!(known, "{name} of {} is not asked for", path.display());
                }
            }
        }
    }
}
