//! What goes wrong on a device comes out as a typed error that says what it took with it, and the device can be opened again.

mod rig;

use rig::decoder::{Decoder, SMALL};
use rig::{StandIn, stand_in};
use ropeteam_ascend::{AclDevice, AscendOptions};
use ropeteam_device::{Damage, Device, DeviceError, Dtype, Float, Ids, Precision, TensorView};
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// Steps of a small decoder as graphs, with a fault in their way.
fn steps(options: AscendOptions, stand_in: &StandIn, fault: &str) -> Result<Vec<u32>, DeviceError> {
    let mut decoder = Decoder::new(options, SMALL)?;
    stand_in.configure(fault);
    let mut all = Vec::new();
    for position in 0..6 {
        let rows = decoder.rows(SMALL.rows, position);
        let answer = decoder.enqueue(Ids::Given(&[7; SMALL.rows]), &rows)?;
        all.extend(decoder.collect(answer)?);
    }
    Ok(all)
}

/// Faults are the process's, so one test at a time makes them.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn faults_are_told_apart_and_survived() {
    let _alone = alone();
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

/// A call on the way to a graph that fails leaves nothing behind, whatever was begun: neither in the device's own end nor in its next life.
#[test]
fn a_capture_that_breaks_off_is_cleared_away() {
    let _alone = alone();
    let stand_in = stand_in();
    let options = || stand_in.options(1, Precision::Bf16, Float::Bf16);
    let expected = steps(options(), stand_in, "").expect("steps");
    for call in [
        "aclmdlRICaptureTaskGrpBegin:2",
        "aclmdlRICaptureTaskGrpEnd:1",
        "aclmdlRICaptureTaskGrpEnd:3",
        "aclnnFusedInferAttentionScoreV4:3",
        "aclmdlRICaptureEnd:1",
        "aclmdlRICaptureEnd:2",
        "aclmdlRIExecuteAsync:1",
        "aclmdlRICaptureTaskUpdateBegin:1",
        "aclmdlRICaptureTaskUpdateEnd:2",
        "aclrtStreamWaitEvent:1",
    ] {
        let fault = format!("fail={call}:507899");
        let error = steps(options(), stand_in, &fault).expect_err(call);
        assert!(error.to_string().contains("507899"), "{call}: {error}");
        stand_in.clean();
        assert_eq!(
            steps(options(), stand_in, "").as_ref(),
            Ok(&expected),
            "{call}"
        );
        stand_in.clean();
    }
    // Without a capture there are no graphs, and the steps go on.
    let found = steps(options(), stand_in, "fail=aclmdlRICaptureBegin:1:507899");
    assert_eq!(found, Ok(expected));
    stand_in.clean();
}

/// What was taken before a call of the opening fails is given back.
#[test]
fn a_device_that_does_not_open_leaves_nothing_behind() {
    let _alone = alone();
    let stand_in = stand_in();
    for call in [
        "aclrtSetDevice:1",
        "aclrtCreateContext:1",
        "aclrtCreateStreamWithConfig:2",
        "aclrtSetStreamFailureMode:1",
        "aclrtSetStreamFailureMode:3",
    ] {
        stand_in.configure(&format!("fail={call}:507899"));
        let options = stand_in.options(2, Precision::Bf16, Float::Bf16);
        assert!(AclDevice::open(options).is_err(), "{call}");
        stand_in.clean();
    }
}

#[test]
fn what_is_not_there_is_told() {
    let _alone = alone();
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
