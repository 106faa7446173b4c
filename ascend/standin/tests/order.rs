//! Order: streams, events, and work that nothing orders.

// What a test passes to an official function is the test's own to get wrong.
#![allow(clippy::macro_metavars_in_unsafe)]

mod rig;

use rig::Rig;
use ropeteam_acl_sys::types::*;

const H2D: aclrtMemcpyKind = ACL_MEMCPY_HOST_TO_DEVICE;
const D2H: aclrtMemcpyKind = ACL_MEMCPY_DEVICE_TO_HOST;
const D2D: aclrtMemcpyKind = ACL_MEMCPY_DEVICE_TO_DEVICE;

#[test]
fn streams_that_nothing_orders_race() {
    let rig = Rig::new("");
    let (first, second) = (rig.stream(), rig.stream());
    let (host, memory, copy) = (
        rig.pinned_with(&[1; 64]),
        rig.device_with(&[0; 64]),
        rig.device(64),
    );
    assert_eq!(rig.copy(memory, host, 64, H2D, first), 0);
    assert_eq!(rig.copy(copy, memory, 64, D2D, second), 0);
    rig.finish(second);
    assert_eq!(
        rig.read(copy, 64),
        [0; 64],
        "the stream nobody waited for comes last"
    );
    rig.finish(first);
    rig.caught("nothing orders this and aclrtMemcpyAsync");
}

#[test]
fn an_event_orders_two_streams() {
    let rig = Rig::new("");
    let (first, second, event) = (rig.stream(), rig.stream(), rig.event());
    let (host, memory, copy) = (rig.pinned_with(&[1; 64]), rig.device(64), rig.device(64));
    assert_eq!(rig.copy(memory, host, 64, H2D, first), 0);
    ok!(rig.runtime.aclrtRecordEvent(event, first));
    ok!(rig.runtime.aclrtStreamWaitEvent(second, event));
    assert_eq!(rig.copy(copy, memory, 64, D2D, second), 0);
    rig.finish(second);
    assert_eq!(rig.read(copy, 64), [1; 64]);
    rig.clean();
}

#[test]
fn work_after_the_record_is_not_ordered_by_it() {
    let rig = Rig::new("");
    let (first, second, event) = (rig.stream(), rig.stream(), rig.event());
    let (host, memory, copy) = (
        rig.pinned_with(&[1; 64]),
        rig.device_with(&[0; 64]),
        rig.device(64),
    );
    ok!(rig.runtime.aclrtRecordEvent(event, first));
    assert_eq!(rig.copy(memory, host, 64, H2D, first), 0);
    ok!(rig.runtime.aclrtStreamWaitEvent(second, event));
    assert_eq!(rig.copy(copy, memory, 64, D2D, second), 0);
    rig.finish(first);
    rig.finish(second);
    rig.caught("nothing orders");
}

#[test]
fn the_host_that_waited_for_an_event_may_read() {
    let rig = Rig::new("");
    let (stream, event) = (rig.stream(), rig.event());
    let (host, memory) = (rig.pinned_with(&[1; 64]), rig.device(64));
    assert_eq!(rig.copy(memory, host, 64, H2D, stream), 0);
    ok!(rig.runtime.aclrtRecordEvent(event, stream));
    ok!(rig.runtime.aclrtSynchronizeEvent(event));
    assert_eq!(rig.read(memory, 64), [1; 64]);
    rig.clean();
}

#[test]
fn the_host_that_does_not_wait_reads_what_was_there_and_is_caught() {
    let rig = Rig::new("");
    let (stream, host) = (rig.stream(), rig.pinned_with(&[1; 64]));
    let memory = rig.device_with(&[0; 64]);
    assert_eq!(rig.copy(memory, host, 64, H2D, stream), 0);
    assert_eq!(rig.read(memory, 64), [0; 64]);
    rig.finish(stream);
    rig.caught("nothing orders this and aclrtMemcpy");
}

#[test]
fn an_event_that_was_never_recorded_orders_nothing_and_is_caught() {
    let rig = Rig::new("");
    ok!(rig.runtime.aclrtStreamWaitEvent(rig.stream(), rig.event()));
    rig.caught("never recorded");
    ok!(rig.runtime.aclrtSynchronizeEvent(rig.event()));
    rig.caught("never recorded");
}

#[test]
fn an_event_does_only_what_its_kind_allows() {
    let rig = Rig::new("");
    let stream = rig.stream();
    let mut timed = aclrtEvent::NULL;
    ok!(rig
        .runtime
        .aclrtCreateEventWithFlag(&mut timed, ACL_EVENT_TIME_LINE));
    ok!(rig.runtime.aclrtRecordEvent(timed, stream));
    assert_ne!(code!(rig.runtime.aclrtStreamWaitEvent(stream, timed)), 0);
    rig.caught("without ACL_EVENT_SYNC");
    ok!(rig.runtime.aclrtResetEvent(timed, stream));

    let extended = rig.event();
    assert_ne!(code!(rig.runtime.aclrtResetEvent(extended, stream)), 0);
    rig.caught("can be reset");
    let mut status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    assert_ne!(
        code!(rig.runtime.aclrtQueryEventStatus(extended, &mut status)),
        0
    );
    rig.caught("cannot be asked");
    let mut time = 0.0;
    assert_eq!(
        code!(
            rig.runtime
                .aclrtEventElapsedTime(&mut time, extended, extended)
        ),
        107006
    );
    rig.caught("without ACL_EVENT_TIME_LINE");
}

#[test]
fn time_between_events_is_that_of_the_chip() {
    let rig = Rig::new("");
    let stream = rig.stream();
    let events = [(); 2].map(|()| {
        let mut event = aclrtEvent::NULL;
        ok!(rig.runtime.aclrtCreateEvent(&mut event));
        event
    });
    let (from, to) = (rig.device_with(&vec![1; 1 << 20]), rig.device(1 << 20));
    ok!(rig.runtime.aclrtRecordEvent(events[0], stream));
    assert_eq!(rig.copy(to, from, 1 << 20, D2D, stream), 0);
    ok!(rig.runtime.aclrtRecordEvent(events[1], stream));
    let mut time = 0.0;
    assert_eq!(
        code!(
            rig.runtime
                .aclrtEventElapsedTime(&mut time, events[0], events[1])
        ),
        107006
    );
    rig.caught("recorded and passed");
    rig.finish(stream);
    ok!(rig
        .runtime
        .aclrtEventElapsedTime(&mut time, events[0], events[1]));
    assert!(
        (0.005..0.011).contains(&time),
        "2 MiB at about 1 TB/s, dispatch, and 4 µs until the host had asked for them: {time} ms"
    );
}

#[test]
fn what_is_destroyed_with_work_pending_is_caught() {
    let rig = Rig::new("");
    let (stream, event, host) = (rig.stream(), rig.event(), rig.pinned_with(&[1; 64]));
    assert_eq!(rig.copy(rig.device(64), host, 64, H2D, stream), 0);
    ok!(rig.runtime.aclrtRecordEvent(event, stream));
    ok!(rig.runtime.aclrtDestroyEvent(event));
    rig.caught("has not come by yet");
    ok!(rig.runtime.aclrtDestroyStream(stream));
    rig.caught("2 tasks of the stream are not done");
    assert_eq!(code!(rig.runtime.aclrtDestroyEvent(event)), 107017);
    rig.caught("is no event (any more)");
}

#[test]
fn asking_lets_a_stream_go_on_step_by_step() {
    let rig = Rig::new("");
    let (stream, host, memory) = (rig.stream(), rig.pinned_with(&[1; 64]), rig.device(64));
    assert_eq!(rig.copy(memory, host, 64, H2D, stream), 0);
    assert_eq!(rig.copy(rig.device(64), memory, 64, D2D, stream), 0);
    let mut status = ACL_STREAM_STATUS_COMPLETE;
    ok!(rig.runtime.aclrtStreamQuery(stream, &mut status));
    assert_eq!(status, ACL_STREAM_STATUS_NOT_READY);
    ok!(rig.runtime.aclrtStreamQuery(stream, &mut status));
    assert_eq!(status, ACL_STREAM_STATUS_COMPLETE);
    assert_eq!(
        rig.read(memory, 64),
        [1; 64],
        "who saw it complete may read"
    );
    rig.clean();
}

#[test]
fn two_streams_that_fill_one_pinned_buffer_race() {
    let rig = Rig::new("");
    let (first, second, host) = (rig.stream(), rig.stream(), rig.pinned(64));
    let memory = rig.device_with(&[1; 64]);
    assert_eq!(rig.copy(host, memory, 64, D2H, first), 0);
    assert_eq!(rig.copy(host, memory, 64, D2H, second), 0);
    rig.finish(first);
    rig.finish(second);
    rig.caught("nothing orders");
}

#[test]
fn a_wait_of_no_time_is_refused() {
    let rig = Rig::new("");
    let stream = rig.stream();
    for time in [0, -2] {
        assert_eq!(
            code!(rig.runtime.aclrtSynchronizeStreamWithTimeout(stream, time)),
            107000
        );
        rig.caught("a time of");
    }
    ok!(rig.runtime.aclrtSynchronizeStreamWithTimeout(stream, -1));
}
