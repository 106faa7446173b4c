//! Process, device, context and thread: who may call what, where and when.

// What a test passes to an official function is the test's own to get wrong.
#![allow(clippy::macro_metavars_in_unsafe)]

mod rig;

use rig::{Rig, number, numbered};
use ropeteam_acl_sys::types::*;
use std::ptr::null;

#[test]
fn a_call_before_init_is_caught() {
    let rig = Rig::untouched("");
    assert_eq!(code!(rig.runtime.aclrtSetDevice(0)), 100001);
    rig.caught("AscendCL does not run");
}

#[test]
fn a_second_init_is_told_and_no_mistake() {
    let rig = Rig::new("");
    assert_eq!(code!(rig.runtime.aclInit(null())), 100002);
    rig.clean();
}

#[test]
fn a_call_after_finalize_is_caught() {
    let rig = Rig::new("");
    ok!(rig.runtime.aclrtResetDevice(0));
    ok!(rig.runtime.aclFinalize());
    rig.clean();
    assert_eq!(code!(rig.runtime.aclrtSetDevice(0)), 100001);
    rig.caught("AscendCL does not run");
}

#[test]
fn finalize_with_a_device_still_set_is_caught() {
    let rig = Rig::new("");
    ok!(rig.runtime.aclFinalize());
    rig.caught("device 0 was not reset");
}

#[test]
fn a_thread_without_a_context_gets_107002() {
    let rig = Rig::new("");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = aclrtStream::NULL;
            assert_eq!(code!(rig.runtime.aclrtCreateStream(&mut stream)), 107002);
            assert!(rig.message().contains("no current context"));
            assert_eq!(rig.message(), "", "read once");
        });
    });
    rig.caught("no current context");
    assert_eq!(rig.message(), "", "messages belong to their thread");
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let rig = Rig::new("devices=2");
    assert_eq!(code!(rig.runtime.aclrtSetDevice(2)), 107001);
    rig.caught("there is no device 2; 2 are visible");
    assert_eq!(code!(rig.runtime.aclrtSetDevice(-1)), 107001);
}

#[test]
fn a_machine_without_devices_says_so() {
    let rig = Rig::untouched("devices=0");
    ok!(rig.runtime.aclInit(null()));
    assert_eq!(code!(rig.runtime.aclrtSetDevice(0)), 207004);
    rig.clean();
}

#[test]
fn what_is_alive_at_the_last_reset_is_reported_and_dead_afterwards() {
    let rig = Rig::new("");
    let (stream, _event, _memory) = (rig.stream(), rig.event(), rig.device(100));
    ok!(rig.runtime.aclrtResetDevice(0));
    let found = rig.violations();
    for what in ["1 streams", "1 events", "1 allocations"] {
        assert!(
            found.iter().any(|v| v.contains(what)),
            "{what} in {found:?}"
        );
    }
    ok!(rig.runtime.aclrtSetDevice(0));
    assert_eq!(code!(rig.runtime.aclrtSynchronizeStream(stream)), 107017);
    rig.caught("is no stream (any more)");
}

#[test]
fn a_device_lives_until_its_last_reference_is_given_back() {
    let rig = Rig::new("");
    ok!(rig.runtime.aclrtSetDevice(0));
    let stream = rig.stream();
    ok!(rig.runtime.aclrtResetDevice(0));
    ok!(rig.runtime.aclrtSynchronizeStream(stream));
    ok!(rig.runtime.aclrtDestroyStream(stream));
    ok!(rig.runtime.aclrtResetDevice(0));
    rig.clean();
    assert_eq!(code!(rig.runtime.aclrtResetDevice(0)), 107000);
    rig.caught("device 0 is not set");
}

#[test]
fn a_stream_of_another_context_gets_107003() {
    let rig = Rig::new("");
    let stream = rig.stream();
    let mut context = aclrtContext::NULL;
    ok!(rig.runtime.aclrtCreateContext(&mut context, 0));
    assert_eq!(
        code!(rig.runtime.aclrtRecordEvent(rig.event(), stream)),
        107003
    );
    rig.caught("not of this thread's current context");
    let (memory, host) = (rig.device(64), rig.pinned_with(&[1; 64]));
    assert_eq!(
        rig.copy(memory, host, 64, ACL_MEMCPY_HOST_TO_DEVICE, stream),
        107003
    );
    rig.caught("not of this thread's current context");
    assert_eq!(code!(rig.runtime.aclrtDestroyStream(stream)), 107003);
    rig.caught("not of this thread's current context");
    ok!(rig.runtime.aclrtSynchronizeStream(stream));
    rig.clean();
}

#[test]
fn a_default_context_cannot_be_destroyed() {
    let rig = Rig::new("");
    let mut context = aclrtContext::NULL;
    ok!(rig.runtime.aclrtGetCurrentContext(&mut context));
    assert_ne!(code!(rig.runtime.aclrtDestroyContext(context)), 0);
    rig.caught("ends with its device");
}

#[test]
fn two_threads_share_the_default_context_of_a_device() {
    let rig = Rig::new("");
    let stream = number(rig.stream());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ok!(rig.runtime.aclrtSetDevice(0));
            ok!(rig.runtime.aclrtRecordEvent(rig.event(), numbered(stream)));
            rig.finish(numbered(stream));
            ok!(rig.runtime.aclrtResetDevice(0));
        });
    });
    rig.clean();
}

#[test]
fn streams_end_where_the_chip_has_no_more() {
    let rig = Rig::new("soc=Ascend310P3");
    let mut stream = aclrtStream::NULL;
    let codes = (0..1024).map(|_| code!(rig.runtime.aclrtCreateStream(&mut stream)));
    assert_eq!(codes.last(), Some(207008));
}

#[test]
fn events_end_where_the_chip_has_no_more() {
    let rig = Rig::new("soc=Ascend310P3");
    let mut event = aclrtEvent::NULL;
    let codes = (0..1024).map(|_| code!(rig.runtime.aclrtCreateEvent(&mut event)));
    assert_eq!(codes.last(), Some(207007));
}
