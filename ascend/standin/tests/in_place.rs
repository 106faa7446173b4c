//! Operators that write over what they read, and views with gaps on either side of a copy.

// What a test passes to an official function is the test's own to get wrong.
#![allow(clippy::macro_metavars_in_unsafe)]

mod rig;

use rig::Rig;
use rig::tensors::View;
use ropeteam_acl_sys::types::*;

#[test]
fn a_norm_in_place_leaves_the_sum_behind() {
    let rig = Rig::new("");
    let stream = rig.stream();
    let x1 = rig.bf16(&[2.0, 0.0], &[1, 2]);
    let x2 = rig.bf16(&[1.0, 4.0], &[1, 2]);
    let gamma = rig.bf16(&[1.0, 2.0], &[2]);
    let rstd = rig.empty(ACL_FLOAT, &[1, 1]);
    let code = compute!(
        rig,
        stream,
        aclnnInplaceAddRmsNormGetWorkspaceSize,
        aclnnInplaceAddRmsNorm(x1.tensor, x2.tensor, gamma.tensor, 0.0, rstd.tensor)
    );
    assert_eq!(code, 0, "{}", rig.message());
    assert_eq!(rig.values(&x2), [3.0, 4.0]);
    let root = (12.5f32).sqrt();
    for (found, expected) in rig.values(&x1).iter().zip([3.0 / root, 8.0 / root]) {
        assert!((found - expected).abs() < 0.01, "{found} {expected}");
    }
    rig.clean();
    let code = phase1!(rig.aclnnInplaceAddRmsNormGetWorkspaceSize(
        x1.tensor,
        x1.tensor,
        gamma.tensor,
        0.0,
        rstd.tensor
    ))
    .0;
    assert_eq!(code, 161002);
    rig.caught("is written over");
}

#[test]
fn a_copy_goes_from_a_view_with_gaps_into_one() {
    let rig = Rig::new("");
    let stream = rig.stream();
    let source = rig.bf16(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
    let target = rig.bf16(&[0.0; 8], &[2, 4]);
    let columns = |address, width: i64, first| {
        let view = View {
            data_type: ACL_BF16,
            shape: &[2, 2],
            strides: Some(&[width, 1]),
            offset: first,
            storage: 2 * width,
        };
        rig.view(address, &view)
    };
    let (from, to) = (columns(source.address, 3, 1), columns(target.address, 4, 2));
    let code = compute!(
        rig,
        stream,
        aclnnInplaceCopyGetWorkspaceSize,
        aclnnInplaceCopy(to, from)
    );
    assert_eq!(code, 0, "{}", rig.message());
    assert_eq!(
        rig.values(&target),
        [0.0, 0.0, 2.0, 3.0, 0.0, 0.0, 5.0, 6.0]
    );
    rig.clean();
}

#[test]
fn the_highest_comes_with_its_place_the_first_of_equals_and_nan_before_all() {
    let rig = Rig::new("");
    let stream = rig.stream();
    let x = rig.bf16(&[1.0, 7.0, 7.0, 2.0, f32::NAN, 9.0], &[2, 3]);
    let (values, places) = (rig.empty(ACL_BF16, &[2]), rig.empty(ACL_INT32, &[2]));
    let code = compute!(
        rig,
        stream,
        aclnnMaxDimGetWorkspaceSize,
        aclnnMaxDim(x.tensor, -1, false, values.tensor, places.tensor)
    );
    assert_eq!(code, 0, "{}", rig.message());
    let found = rig.values(&values);
    assert!(found[0] == 7.0 && found[1].is_nan(), "{found:?}");
    let places = rig.read(places.address, 8);
    assert_eq!(places, [1, 0, 0, 0, 1, 0, 0, 0]);
    rig.clean();
}
