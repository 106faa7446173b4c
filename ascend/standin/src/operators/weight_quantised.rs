//! WeightQuantBatchMatmulV2 with int4 weights in groups: out `[m, n]` = x `[m, k]` · (weight `[k, n]` + offset) · scale, where each
//! column has a scale and an offset for every group of rows.

use super::Executor;
use super::arguments::{Arguments, Role, contiguous, not_offered, ranked, required, shaped, typed};
use super::matmul::dot;
use crate::fail::Fail;
use crate::task::{Access, Id};
use crate::tensor::Tensor;
use ropeteam_acl_sys::code::ACLNN_ERR_PARAM_INVALID;
use ropeteam_acl_sys::types::{ACL_BF16, ACL_FLOAT, ACL_FLOAT16, ACL_INT4, aclDataType};
use std::sync::Arc;

/// Bytes of workspace that a product asks for.
const WORKSPACE: u64 = 64 << 10;
/// Groups are multiples of so many rows.
const GROUP_STEP: usize = 32;
/// Most rows and columns of a weight.
const LARGEST: usize = 65_535;

/// What the operator is asked for.
pub struct WeightQuantised {
    /// Handles of x, weight, scale, y.
    pub tensors: [Id; 4],
    /// Handle of the offset, or null.
    pub offset: Id,
    /// Handles of what only int8 results have; null here.
    pub result: [Id; 2],
    /// Handle of the bias, or null.
    pub bias: Id,
    /// Rows of the weight that have a scale in common; 0 for all.
    pub group: i32,
}

/// `aclnnWeightQuantBatchMatmulV2`.
pub fn weight_quant_matmul(
    mut arguments: Arguments<'_>,
    asked: WeightQuantised,
) -> Result<Executor, Fail> {
    arguments.not_on_310p()?;
    let [x, weight, scale, y] = asked.tensors;
    let x = arguments.tensor(x, "x", Role::In)?;
    let weight = arguments.tensor(weight, "weight", Role::In)?;
    let scale = arguments.tensor(scale, "antiquantScale", Role::In)?;
    let y = arguments.tensor(y, "y", Role::Out)?;
    let mut places = vec![0, 1, 2, 7];
    if asked.result != [0; 2] || asked.group == 0 {
        return Err(not_offered("results in int8, or weights without groups"));
    }
    let [m, k] = ranked(&x, "x")?;
    let [inner, n] = ranked(&weight, "weight")?;
    let fits = |holds: bool, text: String| required(holds, ACLNN_ERR_PARAM_INVALID, || text);
    typed(&x, "x", &[ACL_BF16, ACL_FLOAT16])?;
    typed(&weight, "weight", &[ACL_INT4])?;
    contiguous(&x, "x")?;
    fits(
        inner == k,
        format!("x is {:?} and weight {:?}", x.shape, weight.shape),
    )?;
    fits(
        k <= LARGEST && n <= LARGEST,
        format!("weight is {:?}", weight.shape),
    )?;
    let group = usize::try_from(asked.group).unwrap_or(0);
    fits(
        group >= GROUP_STEP && group < k && group.is_multiple_of(GROUP_STEP),
        format!("groups of {} in {k} rows", asked.group),
    )?;
    let scales = [k.div_ceil(group), n];
    let mut check = |handle: Id, what: &str, shape: &[usize], data_type: aclDataType, place| {
        if handle != 0 {
            let tensor = arguments.tensor(handle, what, Role::In)?;
            typed(&tensor, what, &[data_type])?;
            shaped(&tensor, what, shape)?;
            places.push(place);
        }
        Ok(())
    };
    check(asked.offset, "antiquantOffset", &scales, x.data_type, 3)?;
    let bias = match x.data_type {
        ACL_BF16 => ACL_FLOAT,
        other => other,
    };
    check(asked.bias, "bias", &[n], bias, 6)?;
    typed(&scale, "antiquantScale", &[x.data_type])?;
    shaped(&scale, "antiquantScale", &scales)?;
    typed(&y, "y", &[x.data_type])?;
    shaped(&y, "y", &[m, n])?;
    arguments.place(&places);
    let has_offset = asked.offset != 0;
    let compute = move |access: &mut Access<'_>, tensors: &[Tensor]| {
        multiply(access, tensors, (group, has_offset))
    };
    let executor = arguments.executor(WORKSPACE, Arc::new(compute));
    Ok(executor.computing(2 * m * n * k))
}

fn multiply(
    access: &mut Access<'_>,
    tensors: &[Tensor],
    (group, has_offset): (usize, bool),
) -> Result<(), Fail> {
    let [x, weight, scale, y, optional @ ..] = tensors else {
        return Ok(());
    };
    let (offset, bias) = match (has_offset, optional) {
        (true, [offset, bias @ ..]) => (Some(offset), bias.first()),
        (_, bias) => (None, bias.first()),
    };
    let [_, k] = ranked(x, "x")?;
    let [_, n] = ranked(weight, "weight")?;
    let rows = x.read(access)?;
    let numbers = weight.read_i4(access)?;
    let scales = scale.read(access)?;
    let offsets = offset.map_or(Ok(vec![0.0; scales.len()]), |offset| offset.read(access))?;
    let biases = bias.map_or(Ok(vec![0.0; n]), |bias| bias.read(access))?;
    let mut columns = vec![0f32; n * k];
    for (at, number) in numbers.iter().enumerate() {
        let (row, column) = (at / n, at % n);
        let place = row / group * n + column;
        columns[column * k + row] = (f32::from(*number) + offsets[place]) * scales[place];
    }
    let mut values = Vec::with_capacity(y.elements());
    for row in rows.chunks_exact(k) {
        let outputs = columns.chunks_exact(k).zip(&biases);
        values.extend(outputs.map(|(column, bias)| dot(row, column) + bias));
    }
    y.write(access, &values)
}
