//! What operators refuse of their arguments, where each mistake is one that real hardware would answer with garbage or another message.

// What a test passes to an official function is the test's own to get wrong.
#![allow(clippy::macro_metavars_in_unsafe)]

mod rig;

use rig::Rig;
use rig::tensors::View;
use ropeteam_acl_sys::types::*;
use std::ptr::{null, null_mut};

const KEEP: i8 = 0;

#[test]
fn a_product_takes_two_matrices_of_one_type() {
    let rig = Rig::new("");
    let x = rig.bf16(&[1.0; 4], &[2, 2]);
    let (other, out) = (
        rig.empty(ACL_FLOAT16, &[2, 2]),
        rig.empty(ACL_BF16, &[2, 2]),
    );
    let mixed = phase1!(rig.aclnnMatmulGetWorkspaceSize(x.tensor, other.tensor, out.tensor, KEEP));
    assert_eq!(mixed.0, 161002);
    rig.caught("mat2 has type 1");
    let unknown = phase1!(rig.aclnnMatmulGetWorkspaceSize(x.tensor, x.tensor, out.tensor, 9));
    assert_eq!(unknown.0, 161002);
    rig.caught("cubeMathType 9");
}

#[test]
fn a_gate_wants_two_halves_in_one_piece() {
    let rig = Rig::new("");
    let (x, out) = (rig.bf16(&[1.0; 12], &[2, 6]), rig.empty(ACL_BF16, &[2, 2]));
    let odd = rig.whole(x.address, ACL_BF16, &[2, 5]);
    let code = phase1!(rig.aclnnSwiGluGetWorkspaceSize(odd, -1, out.tensor)).0;
    assert_eq!(code, 161002);
    rig.caught("5 columns are no two halves");
    let gaps = View {
        data_type: ACL_BF16,
        shape: &[2, 4],
        strides: Some(&[6, 1]),
        offset: 0,
        storage: 12,
    };
    let gaps = rig.view(x.address, &gaps);
    let code = phase1!(rig.aclnnSwiGluGetWorkspaceSize(gaps, -1, out.tensor)).0;
    assert_eq!(code, 161002);
    rig.caught("x is not contiguous");
}

#[test]
fn rows_that_are_selected_must_exist() {
    for row in [3, -1] {
        let rig = Rig::new("");
        let (stream, x) = (rig.stream(), rig.bf16(&[1.0; 6], &[3, 2]));
        let (index, out) = (rig.i32(&[row], &[1]), rig.empty(ACL_BF16, &[1, 2]));
        let code = compute!(
            rig,
            stream,
            aclnnIndexSelectGetWorkspaceSize,
            aclnnIndexSelect(x.tensor, 0, index.tensor, out.tensor)
        );
        assert_eq!(code, 507015);
        rig.caught(&format!("index {row} of a table of 3 rows"));
    }
}

#[test]
fn a_rotation_is_no_wider_than_a_head() {
    let rig = Rig::new("");
    let table = rig.bf16(&[1.0; 12], &[2, 6]);
    let (positions, sections) = (rig.i32(&[1], &[1]), rig.numbers(&[0, 0, 0]));
    let (query, key) = (rig.bf16(&[1.0; 4], &[1, 4]), rig.bf16(&[1.0; 4], &[1, 4]));
    let out = [(); 2].map(|()| rig.empty(ACL_BF16, &[1, 4]));
    let code = phase1!(rig.aclnnRopeWithSinCosCacheGetWorkspaceSize(
        positions.tensor,
        query.tensor,
        key.tensor,
        table.tensor,
        sections,
        4,
        true,
        out[0].tensor,
        out[1].tensor
    ));
    assert_eq!(code.0, 161002);
    rig.caught("6 of 4 elements");
}

/// The scale's type follows from the result's, and which goes with which follows from whether rows have factors.
#[test]
fn a_product_of_int8_has_scales_that_go_with_its_result() {
    let rig = Rig::new("");
    let (x, weight) = (rig.i8(&[1; 4], &[2, 2]), rig.i8(&[1; 4], &[2, 2]));
    let rows = rig.empty(ACL_FLOAT, &[2]);
    let no = null::<aclTensor>();
    for (scale, out, has_rows) in [
        (ACL_BF16, ACL_FLOAT16, true),
        (ACL_INT64, ACL_BF16, true),
        (ACL_FLOAT16, ACL_BF16, false),
    ] {
        let (scale, out) = (rig.empty(scale, &[2]), rig.empty(out, &[2, 2]));
        let rows = if has_rows {
            rows.tensor.cast_const()
        } else {
            no
        };
        let code = phase1!(rig.aclnnQuantMatmulV4GetWorkspaceSize(
            x.tensor,
            weight.tensor,
            scale.tensor,
            no,
            rows,
            no,
            false,
            true,
            out.tensor
        ));
        assert_eq!(code.0, 161002);
        assert_eq!(rig.violations().len(), 1);
    }
}

/// Key, value, their caches and the slots stand in an order of their own.
#[test]
fn arguments_in_another_order_are_refused() {
    let rig = Rig::new("");
    let cache = [1, 128, 1, 16];
    let (keys, values) = (rig.empty(ACL_BF16, &cache), rig.empty(ACL_BF16, &cache));
    let key = rig.bf16(&[1.0; 16], &[1, 1, 16]);
    let value = rig.bf16(&[1.0; 16], &[1, 1, 16]);
    let slots = rig.i32(&[0], &[1]);
    let code = phase1!(rig.aclnnScatterPaKvCacheGetWorkspaceSize(
        key.tensor,
        value.tensor,
        keys.tensor,
        values.tensor,
        slots.tensor,
        null(),
        null(),
        null(),
        null_mut(),
        null_mut(),
        null(),
        null()
    ));
    assert_eq!(code.0, 161002);
    assert_eq!(rig.violations().len(), 1);
}

#[test]
fn another_layout_than_rows_is_not_offered() {
    let rig = Rig::new("");
    let (address, storage) = (rig.device(512), [1i64, 1, 16, 16]);
    let view = code!(rig.meta.aclCreateTensor(
        [16i64, 16].as_ptr(),
        2,
        ACL_BF16,
        [16i64, 1].as_ptr(),
        0,
        ACL_FORMAT_FRACTAL_NZ,
        storage.as_ptr(),
        4,
        address,
    ));
    assert!(view.is_null());
    assert!(
        rig.message()
            .contains("does not offer type 27 in format 29")
    );
    rig.clean();
}
