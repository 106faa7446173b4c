//! Captured graphs: what may be captured and how, what a replay uses, and how arguments change.

// What a test passes to an official function is the test's own to get wrong.
#![allow(clippy::macro_metavars_in_unsafe)]

mod rig;

use rig::tensors::Held;
use rig::{Rig, number, numbered};
use ropeteam_acl_sys::types::*;
use std::ptr::null_mut;

const GLOBAL: aclmdlRICaptureMode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
const RELAXED: aclmdlRICaptureMode = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
const H2D: aclrtMemcpyKind = ACL_MEMCPY_HOST_TO_DEVICE;
const D2D: aclrtMemcpyKind = ACL_MEMCPY_DEVICE_TO_DEVICE;

/// Captures a conversion of `x` to f32 into `out`, as a group when asked to.
fn capture(rig: &Rig, stream: aclrtStream, x: &Held, out: &Held) -> (aclmdlRI, aclrtTaskGrp) {
    let (mut graph, mut group) = (aclmdlRI::NULL, aclrtTaskGrp::NULL);
    ok!(rig.graphs.aclmdlRICaptureBegin(stream, GLOBAL));
    ok!(rig.graphs.aclmdlRICaptureTaskGrpBegin(stream));
    cast(rig, stream, x, out);
    ok!(rig.graphs.aclmdlRICaptureTaskGrpEnd(stream, &mut group));
    ok!(rig.graphs.aclmdlRICaptureEnd(stream, &mut graph));
    (graph, group)
}

fn cast(rig: &Rig, stream: aclrtStream, x: &Held, out: &Held) {
    let (code, _, executor) =
        phase1!(rig.aclnnCastGetWorkspaceSize(x.tensor, ACL_FLOAT, out.tensor));
    assert_eq!(code, 0, "{}", rig.message());
    ok!(rig.operators.aclnnCast(null_mut(), 0, executor, stream));
}

fn first(rig: &Rig, out: &Held) -> f32 {
    f32::from_le_bytes(rig.read(out.address, 4).try_into().expect("four bytes"))
}

fn end(rig: &Rig, stream: aclrtStream) -> i32 {
    let mut graph = aclmdlRI::NULL;
    code!(rig.graphs.aclmdlRICaptureEnd(stream, &mut graph))
}

#[test]
fn a_capture_runs_nothing_and_a_replay_all_of_it_as_often_as_asked() {
    let rig = Rig::new("");
    let (stream, x, out) = (
        rig.stream(),
        rig.bf16(&[3.0], &[1]),
        rig.empty(ACL_FLOAT, &[1]),
    );
    let (graph, _) = capture(&rig, stream, &x, &out);
    rig.finish(stream);
    assert!(first(&rig, &out).is_nan(), "captured, not run");
    rig.caught("never written");
    ok!(rig.graphs.aclmdlRIExecuteAsync(graph, stream));
    rig.finish(stream);
    assert_eq!(first(&rig, &out), 3.0);
    let five = rig.pinned_with(&0x40A0u16.to_le_bytes());
    assert_eq!(rig.copy(x.address, five, 2, H2D, stream), 0);
    ok!(rig.graphs.aclmdlRIExecuteAsync(graph, stream));
    rig.finish(stream);
    assert_eq!(
        first(&rig, &out),
        5.0,
        "what stands at the captured address"
    );
    ok!(rig.graphs.aclmdlRIDestroy(graph));
    rig.clean();
}

#[test]
fn a_group_takes_other_arguments_and_only_the_same_tasks() {
    let rig = Rig::new("");
    let (stream, x, out) = (
        rig.stream(),
        rig.bf16(&[3.0], &[1]),
        rig.empty(ACL_FLOAT, &[1]),
    );
    let other = rig.bf16(&[4.0], &[1]);
    let (graph, group) = capture(&rig, stream, &x, &out);
    ok!(rig.graphs.aclmdlRICaptureTaskUpdateBegin(stream, group));
    cast(&rig, stream, &other, &out);
    ok!(rig.graphs.aclmdlRICaptureTaskUpdateEnd(stream));
    ok!(rig.graphs.aclmdlRIExecuteAsync(graph, stream));
    rig.finish(stream);
    assert_eq!(first(&rig, &out), 4.0);
    rig.clean();
    ok!(rig.graphs.aclmdlRICaptureTaskUpdateBegin(stream, group));
    assert_eq!(
        code!(rig.graphs.aclmdlRICaptureTaskUpdateEnd(stream)),
        507000
    );
    rig.caught("the update []");
    assert_eq!(
        code!(rig.graphs.aclmdlRICaptureTaskUpdateEnd(stream)),
        107033
    );
    rig.caught("no update was begun");
}

#[test]
fn an_update_that_nothing_orders_before_the_replay_is_caught() {
    let rig = Rig::new("");
    let (stream, aside) = (rig.stream(), rig.stream());
    let (x, out) = (rig.bf16(&[3.0], &[1]), rig.empty(ACL_FLOAT, &[1]));
    let other = rig.bf16(&[4.0], &[1]);
    let (graph, group) = capture(&rig, stream, &x, &out);
    ok!(rig.graphs.aclmdlRICaptureTaskUpdateBegin(aside, group));
    cast(&rig, aside, &other, &out);
    ok!(rig.graphs.aclmdlRICaptureTaskUpdateEnd(aside));
    ok!(rig.graphs.aclmdlRIExecuteAsync(graph, stream));
    rig.finish(stream);
    assert_eq!(first(&rig, &out), 3.0, "stale");
    rig.finish(aside);
    rig.caught("nothing orders it and this change");
}

#[test]
fn calls_that_wait_or_allocate_spoil_a_capture() {
    let wait: &dyn Fn(&Rig, aclrtStream) -> i32 =
        &|rig, stream| code!(rig.runtime.aclrtSynchronizeStream(stream));
    let wait_all: &dyn Fn(&Rig, aclrtStream) -> i32 =
        &|rig, _| code!(rig.runtime.aclrtSynchronizeDevice());
    let allocate: &dyn Fn(&Rig, aclrtStream) -> i32 = &|rig, _| {
        let mut address = null_mut();
        code!(
            rig.runtime
                .aclrtMalloc(&mut address, 64, ACL_MEM_MALLOC_HUGE_FIRST)
        )
    };
    let pageable: &dyn Fn(&Rig, aclrtStream) -> i32 = &|rig, stream| {
        let (bytes, memory) = ([0u8; 8], rig.pinned(8));
        rig.copy(
            memory,
            bytes.as_ptr().cast_mut().cast(),
            8,
            ACL_MEMCPY_HOST_TO_HOST,
            stream,
        )
    };
    for (call, code) in [
        (wait, 107027),
        (wait_all, 107027),
        (allocate, 107030),
        (pageable, 107041),
    ] {
        let rig = Rig::new("");
        let stream = rig.stream();
        ok!(rig.graphs.aclmdlRICaptureBegin(stream, GLOBAL));
        assert_eq!(call(&rig, stream), code);
        assert_eq!(rig.violations().len(), 1);
        let (mut status, mut graph) = (ACL_MODEL_RI_CAPTURE_STATUS_NONE, aclmdlRI::NULL);
        ok!(rig
            .graphs
            .aclmdlRICaptureGetInfo(stream, &mut status, &mut graph));
        assert_eq!(status, ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED);
        assert_eq!(end(&rig, stream), 507903);
    }
}

#[test]
fn a_relaxed_capture_forbids_nobody_to_allocate() {
    let rig = Rig::new("");
    let stream = rig.stream();
    ok!(rig.graphs.aclmdlRICaptureBegin(stream, RELAXED));
    rig.device(64);
    assert_eq!(end(&rig, stream), 0);
    rig.clean();
}

#[test]
fn a_default_stream_cannot_be_captured_and_no_stream_twice() {
    let rig = Rig::new("");
    assert_eq!(
        code!(rig.graphs.aclmdlRICaptureBegin(aclrtStream::NULL, GLOBAL)),
        107031
    );
    rig.caught("a default stream");
    let stream = rig.stream();
    assert_eq!(end(&rig, stream), 107029);
    rig.caught("is not captured");
    ok!(rig.graphs.aclmdlRICaptureBegin(stream, GLOBAL));
    assert_eq!(
        code!(rig.graphs.aclmdlRICaptureBegin(stream, GLOBAL)),
        107027
    );
    rig.caught("the stream is captured");
}

#[test]
fn a_capture_ends_on_the_thread_it_began_on_unless_relaxed() {
    for (mode, code) in [(GLOBAL, 107038), (RELAXED, 0)] {
        let rig = Rig::new("");
        let stream = rig.stream();
        let captured = number(stream);
        ok!(rig.graphs.aclmdlRICaptureBegin(stream, mode));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ok!(rig.runtime.aclrtSetDevice(0));
                assert_eq!(end(&rig, numbered(captured)), code);
            });
        });
    }
}

#[test]
fn a_stream_that_joined_must_be_joined() {
    let rig = Rig::new("");
    let (stream, fork) = (rig.stream(), rig.stream());
    let (x, out) = (rig.bf16(&[3.0], &[1]), rig.empty(ACL_FLOAT, &[1]));
    let (begun, ended) = (rig.event(), rig.event());
    for (joined, code) in [(false, 107025), (true, 0)] {
        ok!(rig.graphs.aclmdlRICaptureBegin(stream, GLOBAL));
        ok!(rig.runtime.aclrtRecordEvent(begun, stream));
        ok!(rig.runtime.aclrtStreamWaitEvent(fork, begun));
        cast(&rig, fork, &x, &out);
        if joined {
            ok!(rig.runtime.aclrtRecordEvent(ended, fork));
            ok!(rig.runtime.aclrtStreamWaitEvent(stream, ended));
        }
        assert_eq!(end(&rig, stream), code);
    }
    rig.caught("was not waited for");
}

#[test]
fn captured_memory_must_outlive_its_graph_and_a_running_graph_is_not_destroyed() {
    let rig = Rig::new("");
    let (stream, x, out) = (
        rig.stream(),
        rig.bf16(&[3.0], &[1]),
        rig.empty(ACL_FLOAT, &[1]),
    );
    let (graph, _) = capture(&rig, stream, &x, &out);
    ok!(rig.graphs.aclmdlRIExecuteAsync(graph, stream));
    assert_eq!(code!(rig.graphs.aclmdlRIDestroy(graph)), 107037);
    rig.caught("the graph is running");
    rig.finish(stream);
    ok!(rig.runtime.aclrtFree(x.address));
    rig.caught("which a graph needs as long as it lives");
    ok!(rig.graphs.aclmdlRIDestroy(graph));
    assert_eq!(
        code!(rig.graphs.aclmdlRIExecuteAsync(graph, stream)),
        107017
    );
    rig.caught("is no graph (any more)");
}

#[test]
fn an_event_from_outside_cannot_be_waited_for_in_a_capture() {
    let rig = Rig::new("");
    let (stream, aside, event) = (rig.stream(), rig.stream(), rig.event());
    assert_eq!(
        rig.copy(rig.device(8), rig.device_with(&[1; 8]), 8, D2D, aside),
        0
    );
    ok!(rig.runtime.aclrtRecordEvent(event, aside));
    ok!(rig.graphs.aclmdlRICaptureBegin(stream, GLOBAL));
    assert_eq!(
        code!(rig.runtime.aclrtStreamWaitEvent(stream, event)),
        107024
    );
    rig.caught("from outside the capture");
    assert_eq!(end(&rig, stream), 507903);
}
