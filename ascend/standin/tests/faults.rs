//! Faults on demand, and what a broken device answers until it is reset.

// What a test passes to an official function is the test's own to get wrong.
#![allow(clippy::macro_metavars_in_unsafe)]

mod rig;

use rig::{Rig, number, numbered};
use ropeteam_acl_sys::types::*;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

const H2D: aclrtMemcpyKind = ACL_MEMCPY_HOST_TO_DEVICE;

#[test]
fn a_call_fails_when_it_was_asked_to_and_nobody_is_to_blame() {
    let rig = Rig::new("fail=aclrtMalloc:2:207001");
    rig.device(64);
    let mut address = null_mut();
    assert_eq!(
        code!(
            rig.runtime
                .aclrtMalloc(&mut address, 64, ACL_MEM_MALLOC_HUGE_FIRST)
        ),
        207001
    );
    rig.device(64);
    rig.clean();
}

#[test]
fn a_fault_for_one_process_is_made_by_the_first_at_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let once = folder.path().join("made");
    let settings = format!("fail=aclrtCreateStream:1:207008;once={}", once.display());
    for code in [207008, 0] {
        let rig = Rig::new(&settings);
        let mut stream = aclrtStream::NULL;
        assert_eq!(code!(rig.runtime.aclrtCreateStream(&mut stream)), code);
    }
}

#[test]
fn a_device_that_broke_says_so_until_it_is_reset() {
    let rig = Rig::new("fail=task:2:507015");
    let (stream, other, host) = (rig.stream(), rig.stream(), rig.pinned_with(&[1; 64]));
    let memory = rig.device(64);
    assert_eq!(rig.copy(memory, host, 64, H2D, stream), 0);
    rig.finish(stream);
    assert_eq!(rig.copy(memory, host, 64, H2D, stream), 0);
    assert_eq!(code!(rig.runtime.aclrtSynchronizeStream(stream)), 507015);
    assert_eq!(code!(rig.runtime.aclrtSynchronizeStream(stream)), 507015);
    assert_eq!(
        code!(rig.runtime.aclrtSynchronizeStream(other)),
        507015,
        "all of the device"
    );
    ok!(rig.runtime.aclrtResetDeviceForce(0));
    ok!(rig.runtime.aclrtSetDevice(0));
    rig.finish(rig.stream());
    rig.clean();
}

#[test]
fn a_stream_that_stops_drops_the_tasks_after_a_failed_one() {
    let rig = Rig::new("fail=task:1:507014");
    let (stream, host) = (rig.stream(), rig.pinned_with(&[1; 64]));
    ok!(rig
        .runtime
        .aclrtSetStreamFailureMode(stream, ACL_STOP_ON_FAILURE));
    for _ in 0..3 {
        assert_eq!(rig.copy(rig.device(64), host, 64, H2D, stream), 0);
    }
    assert_eq!(code!(rig.runtime.aclrtSynchronizeStream(stream)), 507014);
    ok!(rig.runtime.aclrtDestroyStream(stream));
    rig.clean();
}

#[test]
fn a_hung_task_is_waited_for_as_long_as_was_said() {
    let rig = Rig::new("hang=task:1");
    let (stream, host) = (rig.stream(), rig.pinned_with(&[1; 64]));
    assert_eq!(rig.copy(rig.device(64), host, 64, H2D, stream), 0);
    let since = Instant::now();
    assert_eq!(
        code!(rig.runtime.aclrtSynchronizeStreamWithTimeout(stream, 20)),
        507046
    );
    assert!(since.elapsed() >= Duration::from_millis(20));
    rig.clean();
}

#[test]
fn aborting_a_hung_stream_wakes_who_waits_for_it() {
    let rig = Rig::new("hang=task:1");
    let (stream, host) = (rig.stream(), rig.pinned_with(&[1; 64]));
    assert_eq!(rig.copy(rig.device(64), host, 64, H2D, stream), 0);
    let waited = number(stream);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            ok!(rig.runtime.aclrtSetDevice(0));
            code!(rig.runtime.aclrtSynchronizeStream(numbered(waited)))
        });
        std::thread::sleep(Duration::from_millis(20));
        ok!(rig.runtime.aclrtStreamAbort(stream));
        assert_eq!(waiter.join().expect("it wakes"), 107023);
    });
    rig.clean();
}

#[test]
fn resetting_a_device_by_force_wakes_who_waits_for_it() {
    let rig = Rig::new("hang=task:1");
    let (stream, host) = (rig.stream(), rig.pinned_with(&[1; 64]));
    assert_eq!(rig.copy(rig.device(64), host, 64, H2D, stream), 0);
    let waited = number(stream);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            ok!(rig.runtime.aclrtSetDevice(0));
            code!(rig.runtime.aclrtSynchronizeStream(numbered(waited)))
        });
        std::thread::sleep(Duration::from_millis(20));
        ok!(rig.runtime.aclrtResetDeviceForce(0));
        assert_eq!(waiter.join().expect("it wakes"), 107017);
    });
}
