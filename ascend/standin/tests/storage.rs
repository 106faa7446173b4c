//! Memory: allocation, freeing, copies with the wrong ends, reads of what was never written.

// What a test passes to an official function is the test's own to get wrong.
#![allow(clippy::macro_metavars_in_unsafe)]

mod rig;

use rig::{Rig, look};
use ropeteam_acl_sys::types::*;
use std::ffi::c_void;
use std::ptr::null_mut;

const H2D: aclrtMemcpyKind = ACL_MEMCPY_HOST_TO_DEVICE;
const D2H: aclrtMemcpyKind = ACL_MEMCPY_DEVICE_TO_HOST;
const D2D: aclrtMemcpyKind = ACL_MEMCPY_DEVICE_TO_DEVICE;

fn at(address: *mut c_void, offset: usize) -> *mut c_void {
    address.wrapping_byte_add(offset)
}

#[test]
fn no_bytes_cannot_be_allocated() {
    let rig = Rig::new("");
    let mut address = null_mut();
    assert_eq!(
        code!(
            rig.runtime
                .aclrtMalloc(&mut address, 0, ACL_MEM_MALLOC_HUGE_FIRST)
        ),
        100000
    );
    rig.caught("0 bytes");
    assert_eq!(
        code!(
            rig.runtime
                .aclrtMalloc(null_mut(), 64, ACL_MEM_MALLOC_HUGE_FIRST)
        ),
        100000
    );
    rig.caught("null place");
}

#[test]
fn memory_ends_at_the_advertised_size_and_is_counted_exactly() {
    let rig = Rig::new("memory_mib=8");
    let (mut free, mut total) = (0, 0);
    let first = rig.device(3 << 20);
    ok!(rig
        .runtime
        .aclrtGetMemInfo(ACL_HBM_MEM, &mut free, &mut total));
    assert_eq!(
        (free, total),
        (4 << 20, 8 << 20),
        "3 MiB and padding take two huge pages"
    );
    let mut address = null_mut();
    assert_eq!(
        code!(
            rig.runtime
                .aclrtMalloc(&mut address, 5 << 20, ACL_MEM_MALLOC_HUGE_FIRST)
        ),
        207001
    );
    assert!(rig.message().contains("4194304 of 8388608 are free"));
    ok!(rig.runtime.aclrtFree(first));
    ok!(rig
        .runtime
        .aclrtGetMemInfo(ACL_HBM_MEM, &mut free, &mut total));
    assert_eq!(free, total);
    rig.clean();
}

#[test]
fn every_wrong_way_to_free_is_caught() {
    let rig = Rig::new("devices=2");
    let address = rig.device(100);
    for (wrong, text) in [
        (null_mut(), "no device address"),
        (at(address, 64), "inside the allocation"),
        (rig.pinned(64), "no device address"),
    ] {
        assert_ne!(code!(rig.runtime.aclrtFree(wrong)), 0);
        rig.caught(text);
    }
    ok!(rig.runtime.aclrtSetDevice(1));
    assert_ne!(code!(rig.runtime.aclrtFree(address)), 0);
    rig.caught("not of Device(1)");
    ok!(rig.runtime.aclrtSetDevice(0));
    ok!(rig.runtime.aclrtFree(address));
    assert_ne!(code!(rig.runtime.aclrtFree(address)), 0);
    rig.caught("not allocated (any more)");
}

#[test]
fn a_copy_with_the_wrong_ends_is_caught() {
    let rig = Rig::new("");
    let (device, host) = (rig.device(64), rig.pinned(64));
    for (to, from, kind, code) in [
        (device, host, D2H, 107000),
        (host, host, H2D, 107000),
        (device, host, D2D, 107000),
        (device, host, aclrtMemcpyKind(77), 100000),
        (device, null_mut(), H2D, 100000),
    ] {
        assert_eq!(code!(rig.runtime.aclrtMemcpy(to, 64, from, 64, kind)), code);
        assert_eq!(rig.violations().len(), 1, "{kind:?}");
    }
    assert_eq!(
        code!(rig.runtime.aclrtMemcpy(device, 63, host, 64, H2D)),
        107000
    );
    rig.caught("64 bytes into room for 63");
    ok!(rig.runtime.aclrtMemcpy(device, 0, host, 0, H2D));
    rig.clean();
}

#[test]
fn what_was_never_written_is_poison_and_caught() {
    let rig = Rig::new("");
    let memory = rig.device(64);
    assert_eq!(rig.read(memory, 8), [0xFF; 8]);
    rig.caught("was never written");
    ok!(rig.runtime.aclrtMemset(memory, 64, 7, 32));
    assert_eq!(rig.read(memory, 32), [7; 32]);
    rig.clean();
    rig.read(memory, 33);
    rig.caught("byte 32..");
}

#[test]
fn a_read_may_reach_into_the_padding_and_no_further() {
    let rig = Rig::new("");
    let memory = rig.device(40);
    ok!(rig.runtime.aclrtMemset(memory, 96, 0, 96));
    let mut bytes = [0u8; 97];
    let to = bytes.as_mut_ptr().cast();
    ok!(rig.runtime.aclrtMemcpy(to, 97, memory, 96, D2H));
    rig.clean();
    assert_ne!(code!(rig.runtime.aclrtMemcpy(to, 97, memory, 97, D2H)), 0);
    rig.caught("byte 0 to 97 of an allocation of 96 with padding");
}

#[test]
fn memory_used_after_its_end_is_caught() {
    let rig = Rig::new("");
    let memory = rig.device_with(&[1; 64]);
    ok!(rig.runtime.aclrtFree(memory));
    let mut bytes = [0u8; 64];
    assert_ne!(
        code!(
            rig.runtime
                .aclrtMemcpy(bytes.as_mut_ptr().cast(), 64, memory, 64, D2H)
        ),
        0
    );
    rig.caught("not allocated (any more)");
}

#[test]
fn memory_freed_under_a_queued_task_is_caught() {
    let rig = Rig::new("");
    let (stream, host) = (rig.stream(), rig.pinned_with(&[1; 64]));
    let memory = rig.device(64);
    assert_eq!(rig.copy(memory, host, 64, H2D, stream), 0);
    ok!(rig.runtime.aclrtFree(memory));
    rig.caught("while aclrtMemcpyAsync still needs them");
    assert_ne!(
        code!(rig.runtime.aclrtSynchronizeStream(stream)),
        0,
        "the task has no target"
    );
    rig.caught("not allocated (any more)");
}

#[test]
fn pinned_memory_freed_under_a_queued_copy_is_caught_and_reads_poison() {
    let rig = Rig::new("");
    let (stream, host) = (rig.stream(), rig.pinned_with(&[1; 64]));
    let memory = rig.device(64);
    assert_eq!(rig.copy(memory, host, 64, H2D, stream), 0);
    ok!(rig.runtime.aclrtFreeHost(host));
    rig.caught("aclrtFreeHost: 64 bytes");
    assert_ne!(code!(rig.runtime.aclrtSynchronizeStream(stream)), 0);
}

#[test]
fn a_copy_between_devices_needs_access_in_its_direction() {
    let rig = Rig::new("devices=2");
    let here = rig.device_with(&[5; 64]);
    ok!(rig.runtime.aclrtSetDevice(1));
    let (there, stream) = (rig.device(64), rig.stream());
    assert_eq!(rig.copy(there, here, 64, D2D, stream), 0);
    assert_eq!(code!(rig.runtime.aclrtSynchronizeStream(stream)), 507013);
    rig.caught("without peer access");
    ok!(rig.runtime.aclrtResetDeviceForce(1));
    ok!(rig.runtime.aclrtSetDevice(1));
    let (there, stream) = (rig.device(64), rig.stream());
    ok!(rig.runtime.aclrtDeviceEnablePeerAccess(0, 0));
    assert_eq!(rig.copy(there, here, 64, D2D, stream), 0);
    rig.finish(stream);
    assert_eq!(rig.read(there, 64), [5; 64]);
    rig.clean();
    // The other device may not reach back.
    ok!(rig.runtime.aclrtSetDevice(0));
    let stream = rig.stream();
    assert_eq!(rig.copy(there, here, 64, D2D, stream), 0);
    assert_eq!(code!(rig.runtime.aclrtSynchronizeStream(stream)), 507013);
    rig.caught("without peer access");
}

#[test]
fn a_chip_has_its_own_kind_of_memory() {
    let (mut free, mut total) = (0, 0);
    let rig = Rig::new("soc=Ascend310P3;memory_mib=16");
    ok!(rig
        .runtime
        .aclrtGetMemInfo(ACL_DDR_MEM, &mut free, &mut total));
    assert_eq!(total, 16 << 20);
    assert_ne!(
        code!(
            rig.runtime
                .aclrtGetMemInfo(ACL_HBM_MEM, &mut free, &mut total)
        ),
        0
    );
    rig.caught("has no memory of kind 1");
}

#[test]
fn what_an_asynchronous_copy_brings_is_not_there_before_somebody_waits() {
    let rig = Rig::new("");
    let (stream, memory, host) = (
        rig.stream(),
        rig.device_with(&[9; 64]),
        rig.pinned_with(&[1; 64]),
    );
    assert_eq!(rig.copy(host, memory, 64, D2H, stream), 0);
    assert_eq!(look(host, 64), [0xFF; 64], "neither old nor new");
    rig.finish(stream);
    assert_eq!(look(host, 64), [9; 64]);
    rig.clean();
}

#[test]
fn a_pinned_source_is_read_when_the_copy_runs_and_may_not_change_before() {
    let rig = Rig::new("");
    let (stream, memory, host) = (rig.stream(), rig.device(4), rig.pinned_with(&[1; 4]));
    assert_eq!(rig.copy(memory, host, 4, H2D, stream), 0);
    // SAFETY: the test's own memory.
    unsafe { host.cast::<[u8; 4]>().write([2; 4]) };
    rig.finish(stream);
    rig.caught("the pinned source changed");
    assert_eq!(rig.read(memory, 4), [2; 4]);
}

#[test]
fn a_pageable_copy_is_done_when_the_call_returns() {
    let rig = Rig::new("");
    let (stream, memory) = (rig.stream(), rig.device_with(&[3; 16]));
    let mut bytes = [0u8; 16];
    assert_eq!(
        rig.copy(bytes.as_mut_ptr().cast(), memory, 16, D2H, stream),
        0
    );
    assert_eq!(bytes, [3; 16]);
    rig.clean();
}
