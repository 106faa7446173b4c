//! Rules about what Ropeteam does not call: memory that other processes have by a key, functions of the host in streams.

// What a test passes to an official function is the test's own to get wrong.
#![allow(clippy::macro_metavars_in_unsafe)]

mod rig;

use rig::Rig;
use ropeteam_acl_sys::types::*;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

const KEY_BYTES: usize = 65;

/// A key, as C has it.
type Key = [c_char; KEY_BYTES];

fn export(rig: &Rig, address: *mut c_void, room: usize, flags: u64) -> (i32, Key) {
    type Export = unsafe extern "C" fn(*mut c_void, usize, *mut c_char, usize, u64) -> i32;
    let mut key = [0; KEY_BYTES];
    // SAFETY: the key has at least the room that is said.
    let code = rig.with("aclrtIpcMemGetExportKey", |export: Export| unsafe {
        export(address, 64, key.as_mut_ptr(), room, flags)
    });
    (code, key)
}

fn allow(rig: &Rig, key: &Key, pid: i32) -> i32 {
    type Allow = unsafe extern "C" fn(*const c_char, *mut i32, usize) -> i32;
    let mut pids = [pid];
    // SAFETY: a string and one number.
    rig.with("aclrtIpcMemSetImportPid", |allow: Allow| unsafe {
        allow(key.as_ptr(), pids.as_mut_ptr(), 1)
    })
}

fn import(rig: &Rig, key: &Key) -> (i32, *mut c_void) {
    type Import = unsafe extern "C" fn(*mut *mut c_void, *const c_char, u64) -> i32;
    let mut address = null_mut();
    // SAFETY: a place and a string.
    let code = rig.with("aclrtIpcMemImportByKey", |import: Import| unsafe {
        import(&mut address, key.as_ptr(), 0)
    });
    (code, address)
}

fn close(rig: &Rig, key: &Key) -> i32 {
    // SAFETY: a string.
    rig.with(
        "aclrtIpcMemClose",
        |close: unsafe extern "C" fn(*const c_char) -> i32| unsafe { close(key.as_ptr()) },
    )
}

#[test]
fn a_key_opens_for_whom_it_was_made_and_until_it_is_closed() {
    let rig = Rig::new("");
    let memory = rig.device(64);
    assert_eq!(export(&rig, memory, 64, 0).0, 107000);
    rig.caught("a key takes 65 bytes, not 64");
    assert_eq!(export(&rig, rig.pinned(64), KEY_BYTES, 0).0, 107000);
    rig.caught("are no allocation of a device");
    let (code, key) = export(&rig, memory, KEY_BYTES, 0);
    assert_eq!(code, 0);
    assert_eq!(import(&rig, &key).0, 207006);
    rig.caught("is none of those that may have the memory");
    assert_eq!(allow(&rig, &key, std::process::id() as i32), 0);
    assert_eq!(import(&rig, &key), (0, memory));
    assert_eq!((close(&rig, &key), close(&rig, &key)), (0, 0));
    rig.clean();
    assert_eq!(import(&rig, &key).0, 107000);
    rig.caught("is no key (any more)");
    assert_eq!(close(&rig, &key), 107000);
    // SAFETY: a string.
    let text = unsafe { CStr::from_ptr(key.as_ptr()) }.to_string_lossy();
    rig.caught(&format!("{text:?} is no key"));
}

#[test]
fn memory_that_another_process_has_is_not_freed() {
    let rig = Rig::new("");
    let memory = rig.device(64);
    // 1: whoever knows the key may have it.
    let (code, key) = export(&rig, memory, KEY_BYTES, 1);
    assert_eq!((code, import(&rig, &key)), (0, (0, memory)));
    ok!(rig.runtime.aclrtFree(memory));
    rig.caught("another process, which has them by a key");
}

type Function = unsafe extern "C" fn(*mut c_void);

fn launch(rig: &Rig, stream: aclrtStream, function: Function, argument: *mut c_void) {
    type Launch = unsafe extern "C" fn(aclrtStream, Option<Function>, *mut c_void) -> i32;
    // SAFETY: function and argument live until the test ends.
    let code = rig.with("aclrtLaunchHostFunc", |launch: Launch| unsafe {
        launch(stream, Some(function), argument)
    });
    assert_eq!(code, 0);
}

unsafe extern "C" fn count(argument: *mut c_void) {
    // SAFETY: the test's own number, which nobody else touches meanwhile.
    unsafe { *argument.cast::<u32>() += 1 };
}

/// Waits and allocates, which such a function must not.
unsafe extern "C" fn misbehave(argument: *mut c_void) {
    // SAFETY: the test's own rig, which lives on.
    let rig = unsafe { &*argument.cast::<Rig>() };
    let mut address = null_mut();
    assert_ne!(code!(rig.runtime.aclrtSynchronizeDevice()), 0);
    let policy = ACL_MEM_MALLOC_HUGE_FIRST;
    assert_ne!(code!(rig.runtime.aclrtMalloc(&mut address, 64, policy)), 0);
}

#[test]
fn a_stream_calls_a_function_in_its_order() {
    let rig = Rig::new("");
    let (stream, mut calls) = (rig.stream(), 0u32);
    let argument = (&raw mut calls).cast();
    launch(&rig, stream, count, argument);
    launch(&rig, stream, count, argument);
    // SAFETY: the number above, which no task touches now.
    assert_eq!(unsafe { *argument.cast::<u32>() }, 0, "nobody waited yet");
    rig.finish(stream);
    assert_eq!(calls, 2);
    rig.clean();
}

#[test]
fn a_function_that_a_stream_calls_may_not_wait_or_allocate() {
    let rig = Rig::new("");
    let stream = rig.stream();
    launch(&rig, stream, misbehave, (&raw const rig).cast_mut().cast());
    rig.finish(stream);
    let found = rig.violations();
    let of = ["aclrtSynchronizeDevice", "aclrtMalloc"];
    assert_eq!(found.len(), of.len(), "{found:?}");
    for (line, call) in found.iter().zip(of) {
        assert!(
            line.starts_with(call) && line.contains("that a stream calls"),
            "{line}"
        );
    }
}
