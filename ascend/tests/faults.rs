//! What goes wrong on a device comes out as a typed error that says what it took with it, and the device can be opened again.

mod rig;

use rig::{StandIn, stand_in};
use ropeteam_ascend::{AclDevice, AscendOptions};
use ropeteam_device::{Damage, Device, DeviceError, Dtype, Float, Precision, TensorView};

const NUMBERS: [f32; 6] = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0];

/// A product on a fresh device, with a fault in its way.
fn product(
    options: AscendOptions,
    stand_in: &StandIn,
    fault: &str,
) -> Result<Vec<f32>, DeviceError> {
    let mut device = AclDevice::open(options)?;
    let bytes: Vec<u8> = NUMBERS.iter().flat_map(|x| x.to_le_bytes()).collect();
    let view = TensorView {
        dtype: Dtype::F32,
        shape: [3, 2],
        bytes: &bytes,
        row_order: None,
        scales: None,
    };
    let weight = device.load_embedding(&view, true)?;
    let (x, out) = (device.alloc(2, 2)?, device.alloc(2, 3)?);
    stand_in.configure(fault);
    device.embed(weight, &[2, 0], x)?;
    device.linear(x, weight, 2, out)?;
    let mut found = Vec::new();
    device.read_rows(out, 0, 2, &mut found)?;
    Ok(found)
}

/// Faults are the process's, so one test makes them one after the other.
#[test]
fn faults_are_told_apart_and_survived() {
    let stand_in = stand_in();
    let options = |patience_ms| AscendOptions {
        patience_ms: Some(patience_ms),
        ..stand_in.options(0, Precision::Bf16, Float::Bf16)
    };
    let works = || {
        let found = product(options(10_000), stand_in, "");
        assert_eq!(found, Ok(vec![1.0, 1.0, 2.0, 1.0, 0.0, 1.0]));
        stand_in.clean();
    };
    works();
    for (fault, expected, damage) in [
        ("fail=task:3:507015", 507_015, Damage::Device),
        (
            "fail=aclnnMatmulGetWorkspaceSize:1:161002",
            161_002,
            Damage::Call,
        ),
        ("fail=aclnnMatmul:1:561003", 561_003, Damage::Call),
        ("fail=aclrtMemcpyAsync:2:507899", 507_899, Damage::Process),
        ("hang=task:2", 507_046, Damage::Device),
    ] {
        let error = product(options(300), stand_in, fault).expect_err(fault);
        match &error {
            DeviceError::Op {
                code, damage: took, ..
            } => assert_eq!((*code, *took), (expected, damage), "{fault}: {error}"),
            other => panic!("{fault}: {other}"),
        }
        let advised = error.to_string().contains("npu-smi");
        assert_eq!(advised, damage == Damage::Process, "{error}");
        works();
    }
}

#[test]
fn what_is_not_there_is_told() {
    let stand_in = stand_in();
    let told = |options| AclDevice::open(options).err().expect("refused").to_string();
    let ninth = stand_in.options(9, Precision::Bf16, Float::Bf16);
    assert!(told(ninth).contains("no Ascend device 9: 8 are visible"));
    let in_f32 = stand_in.options(7, Precision::F32, Float::Bf16);
    assert!(told(in_f32).contains("not in f32"));
    let mut device = stand_in.open(7, Precision::Bf16, Float::Bf16);
    match device.alloc(1 << 20, 1 << 12) {
        Err(DeviceError::OutOfMemory { free_bytes, .. }) => assert!(free_bytes > 0),
        other => panic!("8 GiB of 4: {other:?}"),
    }
}
