//! What operators compute, against values that can be worked out by hand, and what they refuse.

// What a test passes to an official function is the test's own to get wrong.
#![allow(clippy::macro_metavars_in_unsafe)]

mod rig;

use rig::Rig;
use rig::tensors::View;
use ropeteam_acl_sys::types::*;
use std::ptr::null;

const KEEP: i8 = 0;

#[test]
fn a_product_takes_a_weight_seen_transposed() {
    let rig = Rig::new("");
    let stream = rig.stream();
    let x = rig.bf16(&[1.0, 2.0, 3.0, 4.0], &[2, 2]);
    let weight = rig.bf16(&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0], &[3, 2]);
    let transposed = View {
        data_type: ACL_BF16,
        shape: &[2, 3],
        strides: Some(&[1, 2]),
        offset: 0,
        storage: 6,
    };
    let mat2 = rig.view(weight.address, &transposed);
    let out = rig.empty(ACL_BF16, &[2, 3]);
    let code = compute!(
        rig,
        stream,
        aclnnMatmulGetWorkspaceSize,
        aclnnMatmul(x.tensor, mat2, out.tensor, KEEP)
    );
    assert_eq!(code, 0, "{}", rig.message());
    assert_eq!(rig.values(&out), [1.0, 2.0, 3.0, 3.0, 4.0, 7.0]);
    let untransposed =
        phase1!(rig.aclnnMatmulGetWorkspaceSize(x.tensor, weight.tensor, out.tensor, KEEP));
    assert_eq!(untransposed.0, 161002);
    rig.caught("self is [2, 2] and mat2 [3, 2]");
}

#[test]
fn a_norm_adds_first_and_gives_both() {
    let rig = Rig::new("");
    let stream = rig.stream();
    let (x1, x2) = (
        rig.bf16(&[2.0, 0.0], &[1, 2]),
        rig.bf16(&[1.0, 4.0], &[1, 2]),
    );
    let gamma = rig.bf16(&[1.0, 2.0], &[2]);
    let (y, sum) = (rig.empty(ACL_BF16, &[1, 2]), rig.empty(ACL_BF16, &[1, 2]));
    let rstd = rig.empty(ACL_FLOAT, &[1, 1]);
    let code = compute!(
        rig,
        stream,
        aclnnAddRmsNormGetWorkspaceSize,
        aclnnAddRmsNorm(
            x1.tensor,
            x2.tensor,
            gamma.tensor,
            0.0,
            y.tensor,
            rstd.tensor,
            sum.tensor
        )
    );
    assert_eq!(code, 0, "{}", rig.message());
    assert_eq!(rig.values(&sum), [3.0, 4.0]);
    let root = (12.5f32).sqrt();
    let expected = [3.0 / root, 8.0 / root];
    for (found, expected) in rig.values(&y).iter().zip(expected) {
        assert!((found - expected).abs() < 0.01, "{found} {expected}");
    }
    let wrong = rig.empty(ACL_BF16, &[1, 1]);
    let code = phase1!(rig.aclnnRmsNormGetWorkspaceSize(
        x1.tensor,
        gamma.tensor,
        0.0,
        y.tensor,
        wrong.tensor
    ))
    .0;
    assert_eq!(code, 161002);
    rig.caught("rstdOut has type 27");
}

#[test]
fn rows_are_picked_by_index_and_indices_must_exist() {
    let rig = Rig::new("");
    let stream = rig.stream();
    let table = rig.bf16(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], &[3, 2]);
    let (index, out) = (rig.i32(&[2, 0], &[2]), rig.empty(ACL_BF16, &[2, 2]));
    let code = compute!(
        rig,
        stream,
        aclnnEmbeddingGetWorkspaceSize,
        aclnnEmbedding(table.tensor, index.tensor, out.tensor)
    );
    assert_eq!(code, 0, "{}", rig.message());
    assert_eq!(rig.values(&out), [4.0, 5.0, 0.0, 1.0]);
    let code = compute!(
        rig,
        stream,
        aclnnIndexSelectGetWorkspaceSize,
        aclnnIndexSelect(table.tensor, 0, index.tensor, out.tensor)
    );
    assert_eq!(code, 0, "{}", rig.message());
    assert_eq!(rig.values(&out), [4.0, 5.0, 0.0, 1.0]);
    rig.clean();
    let index = rig.i32(&[0, 3], &[2]);
    let code = compute!(
        rig,
        stream,
        aclnnEmbeddingGetWorkspaceSize,
        aclnnEmbedding(table.tensor, index.tensor, out.tensor)
    );
    assert_eq!(code, 507015);
    rig.caught("index 3 of a table of 3 rows");
}

#[test]
fn elementwise_operators_compute() {
    let rig = Rig::new("");
    let stream = rig.stream();
    let x = rig.bf16(&[0.0, 1.0, 2.0, 3.0], &[2, 2]);
    let (bias, out) = (rig.bf16(&[10.0, 20.0], &[2]), rig.empty(ACL_BF16, &[2, 1]));
    let mut one = 1.0f32;
    let alpha = code!(rig.meta.aclCreateScalar((&raw mut one).cast(), ACL_FLOAT));
    assert_eq!(
        compute!(
            rig,
            stream,
            aclnnSwiGluGetWorkspaceSize,
            aclnnSwiGlu(x.tensor, -1, out.tensor)
        ),
        0
    );
    let gated = 2.0 / (1.0 + (-2.0f32).exp()) * 3.0;
    let found = rig.values(&out);
    assert!(
        found[0] == 0.0 && (found[1] - gated).abs() < 0.05,
        "{found:?}"
    );
    assert_eq!(
        compute!(
            rig,
            stream,
            aclnnInplaceAddGetWorkspaceSize,
            aclnnInplaceAdd(x.tensor, bias.tensor, alpha)
        ),
        0
    );
    assert_eq!(rig.values(&x), [10.0, 21.0, 12.0, 23.0]);
    let floats = rig.empty(ACL_FLOAT, &[2, 2]);
    assert_eq!(
        compute!(
            rig,
            stream,
            aclnnCastGetWorkspaceSize,
            aclnnCast(x.tensor, ACL_FLOAT, floats.tensor)
        ),
        0
    );
    assert_eq!(rig.read(floats.address, 4), 10f32.to_le_bytes());
    rig.clean();
    assert_eq!(
        phase1!(rig.aclnnCastGetWorkspaceSize(x.tensor, ACL_FLOAT16, floats.tensor)).0,
        161002
    );
    rig.caught("out has type 0");
    assert_eq!(
        phase1!(rig.aclnnSwiGluGetWorkspaceSize(bias.tensor, -1, null())).0,
        161001
    );
    rig.caught("no out is given");
}

#[test]
fn the_highest_are_found_first_of_equals_first() {
    let rig = Rig::new("");
    let stream = rig.stream();
    let x = rig.bf16(&[1.0, 7.0, 7.0, 3.0], &[1, 4]);
    let (best, values, places) = (
        rig.empty(ACL_INT64, &[1]),
        rig.empty(ACL_BF16, &[1, 3]),
        rig.empty(ACL_INT64, &[1, 3]),
    );
    assert_eq!(
        compute!(
            rig,
            stream,
            aclnnArgMaxGetWorkspaceSize,
            aclnnArgMax(x.tensor, -1, false, best.tensor)
        ),
        0
    );
    assert_eq!(rig.read(best.address, 8), 1i64.to_le_bytes());
    let code = compute!(
        rig,
        stream,
        aclnnTopkGetWorkspaceSize,
        aclnnTopk(x.tensor, 3, -1, true, true, values.tensor, places.tensor)
    );
    assert_eq!(code, 0);
    assert_eq!(rig.values(&values), [7.0, 7.0, 3.0]);
    let expected: Vec<u8> = [1i64, 2, 3].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(rig.read(places.address, 24), expected);
    rig.clean();
    let unsorted = phase1!(rig.aclnnTopkGetWorkspaceSize(
        x.tensor,
        3,
        -1,
        true,
        false,
        values.tensor,
        places.tensor
    ));
    assert_eq!(unsorted.0, 161002);
    rig.caught("sorted must be true");
    assert_eq!(
        phase1!(rig.aclnnTopkGetWorkspaceSize(
            x.tensor,
            5,
            -1,
            true,
            true,
            values.tensor,
            places.tensor
        ))
        .0,
        161002
    );
    rig.caught("5 of 4");
}

#[test]
fn heads_turn_by_their_position() {
    let rig = Rig::new("");
    let stream = rig.stream();
    // Position 0: no turn; position 1: a quarter, so (x, y) becomes (-y, x). Two of four elements turn.
    let table = rig.bf16(&[1.0, 0.0, 0.0, 1.0], &[2, 2]);
    let (positions, sections) = (rig.i32(&[1, 0], &[2]), rig.numbers(&[0, 0, 0]));
    let query = rig.bf16(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &[2, 4]);
    let key = rig.bf16(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &[2, 4]);
    let (query_out, key_out) = (rig.empty(ACL_BF16, &[2, 4]), rig.empty(ACL_BF16, &[2, 4]));
    let code = compute!(
        rig,
        stream,
        aclnnRopeWithSinCosCacheGetWorkspaceSize,
        aclnnRopeWithSinCosCache(
            positions.tensor,
            query.tensor,
            key.tensor,
            table.tensor,
            sections,
            4,
            true,
            query_out.tensor,
            key_out.tensor
        )
    );
    assert_eq!(code, 0, "{}", rig.message());
    assert_eq!(
        rig.values(&query_out),
        [-2.0, 1.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    );
    assert_eq!(rig.values(&key_out), rig.values(&query_out));
    rig.clean();
    let positions = rig.i32(&[1, 2], &[2]);
    let code = compute!(
        rig,
        stream,
        aclnnRopeWithSinCosCacheGetWorkspaceSize,
        aclnnRopeWithSinCosCache(
            positions.tensor,
            query.tensor,
            key.tensor,
            table.tensor,
            sections,
            4,
            true,
            query_out.tensor,
            key_out.tensor
        )
    );
    assert_eq!(code, 507015);
    rig.caught("position 2 of a table of 2");
}

#[test]
fn a_small_chip_lacks_bf16_and_operators() {
    let rig = Rig::new("soc=Ascend310P3");
    let x = rig.bf16(&[1.0, 2.0], &[1, 2]);
    let out = rig.empty(ACL_BF16, &[1, 1]);
    assert_eq!(
        phase1!(rig.aclnnSwiGluGetWorkspaceSize(x.tensor, -1, out.tensor)).0,
        161002
    );
    rig.caught("which this chip lacks");
    let nothing = null();
    let absent = phase1!(rig.aclnnRopeWithSinCosCacheGetWorkspaceSize(
        nothing,
        nothing,
        nothing,
        nothing,
        null(),
        4,
        true,
        nothing,
        nothing
    ));
    assert_eq!(absent.0, 561003);
    rig.clean();
}

#[test]
fn rows_are_rounded_to_int8_and_products_scaled_back() {
    let rig = Rig::new("");
    let stream = rig.stream();
    let x = rig.bf16(&[127.0, -63.5, 0.5, 2.0], &[2, 2]);
    let (y, scale) = (rig.empty(ACL_INT8, &[2, 2]), rig.empty(ACL_FLOAT, &[2]));
    let code = compute!(
        rig,
        stream,
        aclnnDynamicQuantGetWorkspaceSize,
        aclnnDynamicQuant(x.tensor, null(), y.tensor, scale.tensor)
    );
    assert_eq!(code, 0, "{}", rig.message());
    assert_eq!(
        rig.read(y.address, 4),
        [127, -64i8 as u8, 32, 127],
        "ties go to even"
    );
    // [n, k] = [[1, 1], [2, 0]], scaled by 0.5 and 1.
    let weight = rig.i8(&[1, 1, 2, 0], &[2, 2]);
    let factors = rig.bf16(&[0.5, 1.0], &[2]);
    let bias = rig.i32(&[1, 0], &[2]);
    let out = rig.empty(ACL_BF16, &[2, 2]);
    let (no, transposed) = (null::<aclTensor>(), true);
    let code = compute!(
        rig,
        stream,
        aclnnQuantMatmulV4GetWorkspaceSize,
        aclnnQuantMatmulV4(
            y.tensor,
            weight.tensor,
            factors.tensor,
            no,
            scale.tensor,
            bias.tensor,
            false,
            transposed,
            out.tensor
        )
    );
    assert_eq!(code, 0, "{}", rig.message());
    let row_scale = 2.0 / 127.0;
    let expected = [32.0, 254.0, 160.0 * 0.5 * row_scale, 64.0 * row_scale];
    for (found, expected) in rig.values(&out).iter().zip(expected) {
        assert!(
            (found - expected).abs() < 0.01 * expected,
            "{found} {expected}"
        );
    }
    rig.clean();
    let code = phase1!(rig.aclnnQuantMatmulV4GetWorkspaceSize(
        y.tensor,
        weight.tensor,
        factors.tensor,
        no,
        no,
        no,
        false,
        false,
        scale.tensor
    ));
    assert_eq!(code.0, 161002);
    rig.caught("out is [2], not [2, 2]");
}
