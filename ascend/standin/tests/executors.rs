//! The protocol of the two phases: executors, workspaces, and the memory that tensors lie in.

// What a test passes to an official function is the test's own to get wrong.
#![allow(clippy::macro_metavars_in_unsafe)]

mod rig;

use rig::Rig;
use rig::tensors::{Held, View};
use ropeteam_acl_sys::types::*;
use std::ptr::null_mut;

/// An operator with workspace.
macro_rules! product {
    ($rig:ident, $x:expr, $out:expr) => {
        phase1!($rig.aclnnMatmulGetWorkspaceSize($x.tensor, $x.tensor, $out.tensor, 0))
    };
}

fn operands(rig: &Rig) -> (Held, Held) {
    let x = rig.bf16(&[1.0, 2.0, 3.0, 4.0], &[2, 2]);
    (x, rig.empty(ACL_BF16, &[2, 2]))
}

#[test]
fn an_executor_is_launched_once() {
    let rig = Rig::new("");
    let (stream, (x, out)) = (rig.stream(), operands(&rig));
    let (_, size, executor) = product!(rig, x, out);
    let workspace = rig.workspace(size);
    ok!(rig.operators.aclnnMatmul(workspace, size, executor, stream));
    assert_ne!(
        code!(rig.operators.aclnnMatmul(workspace, size, executor, stream)),
        0
    );
    rig.caught("is none (any more)");
    rig.finish(stream);
    assert_eq!(rig.values(&out), [7.0, 10.0, 15.0, 22.0]);
}

#[test]
fn a_repeatable_executor_is_launched_again_with_other_addresses() {
    let rig = Rig::new("");
    let (stream, (x, out)) = (rig.stream(), operands(&rig));
    let (_, size, executor) = product!(rig, x, out);
    ok!(rig.meta.aclSetAclOpExecutorRepeatable(executor));
    let workspace = rig.workspace(size);
    ok!(rig.operators.aclnnMatmul(workspace, size, executor, stream));
    let other = rig.empty(ACL_BF16, &[2, 2]);
    ok!(rig
        .meta
        .aclSetTensorAddr(executor, 2, out.tensor, other.address));
    ok!(rig.operators.aclnnMatmul(workspace, size, executor, stream));
    rig.finish(stream);
    assert_eq!(rig.values(&other), rig.values(&out));
    assert_eq!(
        code!(
            rig.meta
                .aclSetTensorAddr(executor, 3, out.tensor, other.address)
        ),
        161002
    );
    rig.caught("tensor 3 of 3");
    ok!(rig.meta.aclDestroyAclOpExecutor(executor));
    assert_ne!(
        code!(rig.operators.aclnnMatmul(workspace, size, executor, stream)),
        0
    );
    rig.caught("is none (any more)");
}

#[test]
fn repeatable_set_late_is_caught() {
    let rig = Rig::new("");
    let (x, out) = operands(&rig);
    let (_, _, first) = product!(rig, x, out);
    let (_, _, _second) = product!(rig, x, out);
    assert_ne!(code!(rig.meta.aclSetAclOpExecutorRepeatable(first)), 0);
    rig.caught("right after its first phase");
}

#[test]
fn a_workspace_must_be_large_enough_and_device_memory() {
    let rig = Rig::new("");
    let (stream, (x, out)) = (rig.stream(), operands(&rig));
    let (_, size, executor) = product!(rig, x, out);
    for (workspace, given, text) in [
        (rig.workspace(size), size - 1, "bytes where"),
        (rig.device(64), size, "has 96"),
        (null_mut(), size, "is not allocated"),
    ] {
        assert_ne!(
            code!(
                rig.operators
                    .aclnnMatmul(workspace, given, executor, stream)
            ),
            0
        );
        rig.caught(text);
    }
}

#[test]
fn a_workspace_shared_by_unordered_streams_races_and_keeps_nothing() {
    let rig = Rig::new("");
    let (first, second) = (rig.stream(), rig.stream());
    let ((x, out), other) = (operands(&rig), rig.empty(ACL_BF16, &[2, 2]));
    let (_, size, one) = product!(rig, x, out);
    let (_, _, two) = product!(rig, x, other);
    let workspace = rig.workspace(size);
    ok!(rig.operators.aclnnMatmul(workspace, size, one, first));
    ok!(rig.operators.aclnnMatmul(workspace, size, two, second));
    rig.finish(first);
    rig.finish(second);
    rig.caught("nothing orders this and aclnnMatmul");
    assert_eq!(rig.read(workspace, 4), [0xFF; 4]);
    rig.caught("never written");
}

#[test]
fn another_operators_executor_is_refused() {
    let rig = Rig::new("");
    let (stream, (x, out)) = (rig.stream(), operands(&rig));
    let (_, size, executor) = product!(rig, x, out);
    let workspace = rig.workspace(size);
    assert_ne!(
        code!(rig.operators.aclnnCast(workspace, size, executor, stream)),
        0
    );
    rig.caught("the executor is of aclnnMatmul");
}

#[test]
fn an_executor_of_another_device_is_refused() {
    let rig = Rig::new("devices=2");
    let (x, out) = operands(&rig);
    let (_, size, executor) = product!(rig, x, out);
    ok!(rig.runtime.aclrtSetDevice(1));
    let (workspace, stream) = (rig.workspace(size), rig.stream());
    assert_ne!(
        code!(rig.operators.aclnnMatmul(workspace, size, executor, stream)),
        0
    );
    rig.caught("prepared on device 0");
}

#[test]
fn a_tensor_begins_aligned_and_leaves_room_for_what_kernels_read_beyond() {
    let rig = Rig::new("");
    let stream = rig.stream();
    let memory = rig.device_with(&[0; 256]);
    let out = rig.empty(ACL_FLOAT, &[16]);
    let launch = |offset| {
        let x = rig.whole(memory.wrapping_byte_add(offset), ACL_BF16, &[16]);
        let (_, _, executor) = phase1!(rig.aclnnCastGetWorkspaceSize(x, ACL_FLOAT, out.tensor));
        code!(rig.operators.aclnnCast(null_mut(), 0, executor, stream))
    };
    assert_eq!(
        launch(224),
        0,
        "the last 32 bytes are padded by the allocation itself"
    );
    assert_eq!(launch(16), 161002);
    rig.caught("no multiple of 32");
    assert_eq!(launch(256), 161002);
    rig.caught("needs 64 bytes with padding and has 32");
}

#[test]
fn a_view_that_leaves_its_memory_is_refused() {
    let rig = Rig::new("");
    let memory = rig.device(64);
    let view = View {
        data_type: ACL_BF16,
        shape: &[4, 4],
        strides: Some(&[8, 1]),
        offset: 0,
        storage: 27,
    };
    assert!(rig.view(memory, &view).is_null());
    rig.caught("the view ends at element 28 of 27");
}

#[test]
fn an_output_over_an_input_is_caught() {
    let rig = Rig::new("");
    let (x, _) = operands(&rig);
    assert_ne!(product!(rig, x, x).0, 0);
    rig.caught("tensor 2 is written over tensor 0");
}

#[test]
fn columns_of_one_matrix_are_no_overlap() {
    let rig = Rig::new("");
    let stream = rig.stream();
    let both = rig.bf16(&[1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0], &[2, 4]);
    let half = |offset| View {
        data_type: ACL_BF16,
        shape: &[2, 2],
        strides: Some(&[4, 1]),
        offset,
        storage: 8,
    };
    let (x, out) = (
        rig.view(both.address, &half(0)),
        rig.view(both.address, &half(2)),
    );
    assert_eq!(
        compute!(
            rig,
            stream,
            aclnnCastGetWorkspaceSize,
            aclnnCast(x, ACL_BF16, out)
        ),
        0,
        "{}",
        rig.message()
    );
    assert_eq!(rig.values(&both), [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
}

#[test]
fn what_an_operator_reads_must_have_been_written() {
    let rig = Rig::new("");
    let (stream, x, out) = (
        rig.stream(),
        rig.empty(ACL_BF16, &[2, 2]),
        rig.empty(ACL_FLOAT, &[2, 2]),
    );
    assert_eq!(
        compute!(
            rig,
            stream,
            aclnnCastGetWorkspaceSize,
            aclnnCast(x.tensor, ACL_FLOAT, out.tensor)
        ),
        0
    );
    rig.caught("aclnnCast: reads 8 bytes");
}

#[test]
fn a_tensor_lives_until_the_launch_and_no_handle_dies_twice() {
    let rig = Rig::new("");
    let (stream, (x, out)) = (rig.stream(), operands(&rig));
    let (_, size, executor) = product!(rig, x, out);
    rig.forget(&[&x]);
    let workspace = rig.workspace(size);
    assert_ne!(
        code!(rig.operators.aclnnMatmul(workspace, size, executor, stream)),
        0
    );
    rig.caught("destroyed before the launch");
    assert_ne!(code!(rig.meta.aclDestroyTensor(x.tensor)), 0);
    rig.caught("is no tensor (any more)");
    ok!(rig.meta.aclDestroyTensor(std::ptr::null()));
    let list = code!(
        rig.meta
            .aclCreateTensorList([out.tensor.cast_const()].as_ptr(), 1)
    );
    assert_ne!(code!(rig.meta.aclDestroyTensor(out.tensor)), 0);
    rig.caught("belongs to a list");
    ok!(rig.meta.aclDestroyTensorList(list));
    rig.clean();
}

#[test]
fn what_is_alive_at_the_end_is_reported() {
    let rig = Rig::new("");
    let (x, out) = operands(&rig);
    product!(rig, x, out);
    rig.numbers(&[1]);
    ok!(rig.runtime.aclrtFree(x.address));
    ok!(rig.runtime.aclrtFree(out.address));
    ok!(rig.runtime.aclrtResetDevice(0));
    rig.clean();
    ok!(rig.runtime.aclFinalize());
    let found = rig.violations().join(" ");
    for what in ["2 tensors", "1 arrays", "1 executors"] {
        assert!(found.contains(what), "{what} in {found}");
    }
}
