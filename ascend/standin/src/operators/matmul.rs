//! Matmul: out `[m, n]` = x `[m, k]` · mat2 `[k, n]`; mat2 is usually a weight `[n, k]` seen transposed.

use super::Executor;
use super::arguments::{Arguments, FLOATS, Role, ranked, required, shaped, typed};
use crate::fail::Fail;
use crate::task::{Access, Id};
use crate::tensor::Tensor;
use ropeteam_acl_sys::code::ACLNN_ERR_PARAM_INVALID;
use std::sync::Arc;

/// Bytes of workspace that a product asks for.
const WORKSPACE: u64 = 64 << 10;

/// `aclnnMatmul`.
pub fn matmul(
    mut arguments: Arguments<'_>,
    [x, mat2, out]: [Id; 3],
    cube_math_type: i8,
) -> Result<Executor, Fail> {
    let x = arguments.tensor(x, "self", Role::In)?;
    let mat2 = arguments.tensor(mat2, "mat2", Role::In)?;
    let out = arguments.tensor(out, "out", Role::Out)?;
    let [m, k] = ranked(&x, "self")?;
    let [inner, n] = ranked(&mat2, "mat2")?;
    typed(&x, "self", FLOATS)?;
    typed(&mat2, "mat2", &[x.data_type])?;
    typed(&out, "out", &[x.data_type])?;
    required(inner == k, ACLNN_ERR_PARAM_INVALID, || {
        format!("self is {:?} and mat2 {:?}", x.shape, mat2.shape)
    })?;
    required(
        (0..=3).contains(&cube_math_type),
        ACLNN_ERR_PARAM_INVALID,
        || format!("cubeMathType {cube_math_type}"),
    )?;
    shaped(&out, "out", &[m, n])?;
    let executor = arguments.executor(WORKSPACE, Arc::new(multiply));
    Ok(executor.computing(2 * m * n * k))
}

fn multiply(access: &mut Access<'_>, tensors: &[Tensor]) -> Result<(), Fail> {
    let [x, mat2, out] = tensors else {
        return Ok(());
    };
    let [m, k] = ranked(x, "self")?;
    let [_, n] = ranked(mat2, "mat2")?;
    let rows = x.read(access)?;
    let columns = transposed(mat2).read(access)?;
    let mut values = vec![0f32; m * n];
    for (row, out) in rows.chunks_exact(k).zip(values.chunks_exact_mut(n)) {
        for (column, value) in columns.chunks_exact(k).zip(out) {
            *value = dot(row, column);
        }
    }
    out.write(access, &values)
}

/// The same memory with its two dimensions exchanged.
fn transposed(matrix: &Tensor) -> Tensor {
    let mut other = matrix.clone();
    other.shape.reverse();
    other.strides.reverse();
    other
}

/// Sum of products, in lanes that a compiler turns into vectors.
pub fn dot(left: &[f32], right: &[f32]) -> f32 {
    const LANES: usize = 16;
    let (left, left_rest) = left.as_chunks::<LANES>();
    let (right, right_rest) = right.as_chunks::<LANES>();
    let mut sums = [0f32; LANES];
    for (a, b) in left.iter().zip(right) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = left_rest.iter().zip(right_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}
