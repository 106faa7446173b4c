//! Whether the machine has what a device needs; each refusal says what is missing.

use super::options::AscendOptions;
use ropeteam_acl_sys::Acl;
use ropeteam_device::{DeviceError, Float, Precision};

/// Operators without which nothing can be served.
pub const NEEDED: [&str; 11] = [
    "aclnnEmbedding",
    "aclnnRmsNorm",
    "aclnnInplaceAddRmsNorm",
    "aclnnMatmul",
    "aclnnInplaceAdd",
    "aclnnInplaceCopy",
    "aclnnSwiGlu",
    "aclnnRopeWithSinCosCache",
    "aclnnScatterPaKvCache",
    "aclnnFusedInferAttentionScoreV4",
    "aclnnMaxDim",
];

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

/// The chip and the installed operators are enough.
pub fn check_chip(acl: &Acl, chip: &str) -> Result<(), DeviceError> {
    if chip.starts_with("Ascend310P") {
        return Err(DeviceError::Unavailable(format!(
            "{chip} has no attention over a paged cache in aclnn; there are Atlas A2 and A3 (910B, 910C)"
        )));
    }
    let absent = acl.operators.absent();
    let lacking: Vec<_> = NEEDED
        .iter()
        .filter(|name| absent.contains(*name))
        .copied()
        .collect();
    match lacking.is_empty() {
        true => Ok(()),
        false => Err(DeviceError::Unavailable(format!(
            "the installed CANN lacks {}; CANN 8.3 or later with the operator package of the chip has them",
            lacking.join(", ")
        ))),
    }
}
