//! Products with weights of four bits.

// What a test passes to an official function is the test's own to get wrong.
#![allow(clippy::macro_metavars_in_unsafe)]

mod rig;

use rig::Rig;
use rig::tensors::{Held, View};
use ropeteam_acl_sys::types::*;
use std::ptr::null;

const K: usize = 64;

/// x `[1, 64]` of ones; weight `[64, 2]` with column 0 all 3 and column 1 all -2, in groups of 32.
struct Products {
    rig: Rig,
    stream: aclrtStream,
    x: Held,
    weight: *mut aclTensor,
    scale: Held,
    offset: Held,
    out: Held,
}

impl Products {
    fn new() -> Self {
        let rig = Rig::new("");
        let packed = rig.device_with(&[0xE3; K]);
        let view = View {
            data_type: ACL_INT4,
            shape: &[K as i64, 2],
            strides: None,
            offset: 0,
            storage: 2 * K as i64,
        };
        Self {
            stream: rig.stream(),
            x: rig.bf16(&[1.0; K], &[1, K as i64]),
            weight: rig.view(packed, &view),
            scale: rig.bf16(&[0.5, 1.0, 0.25, 2.0], &[2, 2]),
            offset: rig.bf16(&[0.0, 2.0, 1.0, 0.0], &[2, 2]),
            out: rig.empty(ACL_BF16, &[1, 2]),
            rig,
        }
    }

    fn product(&self, weight: *const aclTensor, offset: *const aclTensor, group: i32) -> i32 {
        let (rig, no) = (&self.rig, null::<aclTensor>());
        compute!(
            rig,
            self.stream,
            aclnnWeightQuantBatchMatmulV2GetWorkspaceSize,
            aclnnWeightQuantBatchMatmulV2(
                self.x.tensor,
                weight,
                self.scale.tensor,
                offset,
                no,
                no,
                no,
                group,
                self.out.tensor
            )
        )
    }
}

#[test]
fn groups_are_scaled_after_their_offset() {
    let products = Products::new();
    let rig = &products.rig;
    assert_eq!(
        products.product(products.weight, products.offset.tensor, 32),
        0,
        "{}",
        rig.message()
    );
    // 32 · (3 · 0.5 + 4 · 0.25) and 32 · (0 · 1 - 2 · 2).
    assert_eq!(rig.values(&products.out), [80.0, -128.0]);
    assert_eq!(products.product(products.weight, null(), 32), 0);
    assert_eq!(rig.values(&products.out), [72.0, -192.0]);
    rig.clean();
}

#[test]
fn groups_and_types_that_do_not_fit_are_refused() {
    let products = Products::new();
    let rig = &products.rig;
    for group in [16, 48, 64] {
        assert_eq!(products.product(products.weight, null(), group), 161002);
        rig.caught(&format!("groups of {group} in 64 rows"));
    }
    let wide = rig.i8(&[0; 2 * K], &[K as i64, 2]);
    assert_eq!(products.product(wide.tensor, null(), 32), 161002);
    rig.caught("weight has type 2");
    let view = View {
        data_type: ACL_INT4,
        shape: &[2, 3],
        strides: None,
        offset: 0,
        storage: 6,
    };
    assert!(rig.view(wide.address, &view).is_null());
    rig.caught("an even last dimension");
}
