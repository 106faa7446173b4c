//! Products in int8: DynamicQuant rounds activations row by row, QuantMatmulV4 multiplies them by int8 weights and scales the sums.

use super::Executor;
use super::arguments::{Arguments, Role, not_offered, ranked, required, shaped, typed};
use crate::fail::Fail;
use crate::task::{Access, Id};
use crate::tensor::Tensor;
use ropeteam_acl_sys::code::{ACLNN_ERR_INNER_TILING_ERROR, ACLNN_ERR_PARAM_INVALID};
use ropeteam_acl_sys::types::*;
use std::sync::Arc;

/// Bytes of workspace that a product asks for.
const WORKSPACE: u64 = 64 << 10;
/// Largest value that a row is scaled to.
const HIGHEST: f32 = 127.0;

/// `aclnnDynamicQuant`: x `[.., n]`, y alike in int8, scale `[..]` in f32.
pub fn dynamic_quant(
    mut arguments: Arguments<'_>,
    [x, y, scale]: [Id; 3],
    smooth: Id,
) -> Result<Executor, Fail> {
    let x = arguments.tensor(x, "x", Role::In)?;
    let y = arguments.tensor(y, "yOut", Role::Out)?;
    let scale = arguments.tensor(scale, "scaleOut", Role::Out)?;
    if smooth != 0 {
        return Err(not_offered("smooth scales"));
    }
    typed(&x, "x", &[ACL_FLOAT16, ACL_BF16])?;
    typed(&y, "yOut", &[ACL_INT8])?;
    typed(&scale, "scaleOut", &[ACL_FLOAT])?;
    shaped(&y, "yOut", &x.shape)?;
    required(x.shape.len() >= 2, ACLNN_ERR_PARAM_INVALID, || {
        format!("x is {:?}, of less than 2 dimensions", x.shape)
    })?;
    let (outer, width) = x.shape.split_at(x.shape.len() - 1);
    shaped(&scale, "scaleOut", outer)?;
    let width = width[0];
    arguments.place(&[0, 2, 3]);
    let compute = move |access: &mut Access<'_>, tensors: &[Tensor]| {
        let [x, y, scale] = tensors else {
            return Ok(());
        };
        let mut values = x.read(access)?;
        let scales: Vec<f32> = values.chunks_exact_mut(width).map(quantise).collect();
        y.write(access, &values)?;
        scale.write(access, &scales)
    };
    Ok(arguments.executor(0, Arc::new(compute)))
}

/// Rounds a row to whole numbers up to 127; gives what one of them stands for.
fn quantise(row: &mut [f32]) -> f32 {
    let highest = row
        .iter()
        .fold(0f32, |highest, value| highest.max(value.abs()));
    let scale = highest / HIGHEST;
    for value in row {
        *value = if scale > 0.0 {
            (*value / scale).round_ties_even()
        } else {
            0.0
        };
    }
    scale
}

/// What `aclnnQuantMatmulV4` is asked for.
pub struct Quantised {
    /// Handles of x1, x2, scale, out.
    pub tensors: [Id; 4],
    /// Handle of the offset, which only int8 results have: null here.
    pub offset: Id,
    /// Factor per row or null.
    pub pertoken_scale: Id,
    /// Bias or null.
    pub bias: Id,
    /// Whether x1 is `[k, m]`.
    pub transpose_x1: bool,
    /// Whether x2 is `[n, k]`.
    pub transpose_x2: bool,
}

/// `aclnnQuantMatmulV4`: x1 `[m, k]` and x2 `[k, n]` (or `[n, k]`) in int8, scale `[n]` or `[1]`, pertoken `[m]` in f32, bias `[n]`,
/// out `[m, n]` in a 16-bit float.
pub fn quant_matmul(mut arguments: Arguments<'_>, asked: Quantised) -> Result<Executor, Fail> {
    let [x1, x2, scale, out] = asked.tensors;
    let x1 = arguments.tensor(x1, "x1", Role::In)?;
    let x2 = arguments.tensor(x2, "x2", Role::In)?;
    let scale = arguments.tensor(scale, "scale", Role::In)?;
    let out = arguments.tensor(out, "out", Role::Out)?;
    if asked.transpose_x1 || asked.offset != 0 {
        return Err(not_offered("x1 transposed, or results in int8"));
    }
    let [m, k] = ranked(&x1, "x1")?;
    let [rows, columns] = ranked(&x2, "x2")?;
    let (inner, n) = if asked.transpose_x2 {
        (columns, rows)
    } else {
        (rows, columns)
    };
    typed(&x1, "x1", &[ACL_INT8])?;
    typed(&x2, "x2", &[ACL_INT8])?;
    required(inner == k, ACLNN_ERR_PARAM_INVALID, || {
        format!("x1 is {:?} and x2 {:?}", x1.shape, x2.shape)
    })?;
    required(k <= 65535, ACLNN_ERR_INNER_TILING_ERROR, || {
        format!("{k} inputs")
    })?;
    shaped(&out, "out", &[m, n])?;
    let [factors] = ranked(&scale, "scale")?;
    required([1, n].contains(&factors), ACLNN_ERR_PARAM_INVALID, || {
        format!("{factors} scales for {n} outputs")
    })?;
    if asked.pertoken_scale != 0 {
        let pertoken = arguments.tensor(asked.pertoken_scale, "pertokenScale", Role::In)?;
        typed(&pertoken, "pertokenScale", &[ACL_FLOAT])?;
        shaped(&pertoken, "pertokenScale", &[m])?;
    }
    if asked.bias != 0 {
        let bias = arguments.tensor(asked.bias, "bias", Role::In)?;
        typed(
            &bias,
            "bias",
            &[ACL_INT32, ACL_BF16, ACL_FLOAT16, ACL_FLOAT],
        )?;
        shaped(&bias, "bias", &[n])?;
    }
    check_types(&scale, &out, asked.pertoken_scale != 0)?;
    let optional = [(asked.pertoken_scale, 4), (asked.bias, 5)];
    let given = optional.into_iter().filter(|(handle, _)| *handle != 0);
    let places: Vec<usize> = [0, 1, 2, 6]
        .into_iter()
        .chain(given.map(|(_, place)| place))
        .collect();
    arguments.place(&places);
    let compute =
        move |access: &mut Access<'_>, tensors: &[Tensor]| multiply(access, tensors, &asked);
    // int8 runs at twice the rate of 16 bits.
    let executor = arguments.executor(WORKSPACE, Arc::new(compute));
    Ok(executor.computing(m * n * k))
}

/// Which scales go with which result.
fn check_types(scale: &Tensor, out: &Tensor, pertoken: bool) -> Result<(), Fail> {
    typed(out, "out", &[ACL_BF16, ACL_FLOAT16])?;
    match (out.data_type, pertoken) {
        (ACL_FLOAT16, false) => Err(not_offered(
            "scales packed in 64 bits, for fp16 without pertokenScale",
        )),
        (ACL_FLOAT16, true) => typed(scale, "scale", &[ACL_FLOAT]),
        _ => typed(scale, "scale", &[ACL_FLOAT, ACL_BF16]),
    }
}

fn multiply(access: &mut Access<'_>, tensors: &[Tensor], asked: &Quantised) -> Result<(), Fail> {
    let [x1, x2, scale, out, optional @ ..] = tensors else {
        return Ok(());
    };
    let (pertoken, bias) = match (asked.pertoken_scale != 0, optional) {
        (true, [pertoken, bias @ ..]) => (Some(pertoken), bias.first()),
        (_, bias) => (None, bias.first()),
    };
    let [m, k] = ranked(x1, "x1")?;
    let [_, n] = ranked(out, "out")?;
    let (rows, columns) = (
        x1.read_i8(access)?,
        by_output(x2, asked.transpose_x2).read_i8(access)?,
    );
    let scales = scale.read(access)?;
    let row_scales = pertoken.map_or(Ok(vec![1.0; m]), |scale| scale.read(access))?;
    let biases = bias.map_or(Ok(vec![0.0; n]), |bias| bias.read(access))?;
    let before_scale = bias.is_some_and(|bias| bias.data_type == ACL_INT32);
    let mut values = Vec::with_capacity(m * n);
    for (row, row_scale) in rows.chunks_exact(k).zip(row_scales) {
        for (output, column) in columns.chunks_exact(k).enumerate() {
            let products = row.iter().zip(column);
            let sum: i32 = products.map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
            let factor = scales[output % scales.len()] * row_scale;
            let bias = biases[output];
            values.push(match before_scale {
                true => (sum as f32 + bias) * factor,
                false => sum as f32 * factor + bias,
            });
        }
    }
    out.write(access, &values)
}

/// The weight with one output per row.
fn by_output(x2: &Tensor, is_transposed: bool) -> Tensor {
    let mut weight = x2.clone();
    if !is_transposed {
        weight.shape.reverse();
        weight.strides.reverse();
    }
    weight
}
