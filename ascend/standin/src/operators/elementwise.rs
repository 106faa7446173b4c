//! InplaceAdd, InplaceCopy, Cast, SwiGlu.

use super::Executor;
use super::arguments::{
    Arguments, FLOATS, INDICES, Role, contiguous, not_offered, required, shaped, typed,
};
use crate::fail::Fail;
use crate::task::{Access, Id};
use crate::tensor::Tensor;
use ropeteam_acl_sys::code::ACLNN_ERR_PARAM_INVALID;
use ropeteam_acl_sys::types::aclDataType;
use std::sync::Arc;

/// `aclnnInplaceAdd`: x += alpha * other, where other has x's last dimensions.
pub fn inplace_add(
    mut arguments: Arguments<'_>,
    [x, other]: [Id; 2],
    alpha: Id,
) -> Result<Executor, Fail> {
    let alpha = arguments.scalar(alpha, "alpha")? as f32;
    let x = arguments.tensor(x, "selfRef", Role::InOut)?;
    let other = arguments.tensor(other, "other", Role::In)?;
    typed(&x, "selfRef", FLOATS)?;
    typed(&other, "other", &[x.data_type])?;
    required(
        x.shape.ends_with(&other.shape),
        ACLNN_ERR_PARAM_INVALID,
        || format!("{:?} does not go into {:?}", other.shape, x.shape),
    )?;
    let compute = move |access: &mut Access<'_>, tensors: &[Tensor]| {
        let [x, other] = tensors else {
            return Ok(());
        };
        let mut values = x.read(access)?;
        let others = other.read(access)?;
        for row in values.chunks_exact_mut(others.len()) {
            for (value, other) in row.iter_mut().zip(&others) {
                *value += alpha * other;
            }
        }
        x.write(access, &values)
    };
    Ok(arguments.executor(0, Arc::new(compute)))
}

/// `aclnnInplaceCopy`: x = source of the same shape and type; both may have gaps.
pub fn inplace_copy(mut arguments: Arguments<'_>, [x, source]: [Id; 2]) -> Result<Executor, Fail> {
    let x = arguments.tensor(x, "selfRef", Role::Out)?;
    let source = arguments.tensor(source, "src", Role::In)?;
    if source.data_type != x.data_type || source.shape != x.shape {
        return Err(not_offered("copies that convert or broadcast"));
    }
    let compute = |access: &mut Access<'_>, tensors: &[Tensor]| {
        let [x, source] = tensors else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        for run in source.runs() {
            bytes.extend_from_slice(access.read(run)?);
        }
        let mut rest = bytes.as_slice();
        for run in x.runs() {
            let (now, later) = rest.split_at(run.len);
            access.write(run)?.copy_from_slice(now);
            rest = later;
        }
        Ok(())
    };
    Ok(arguments.executor(0, Arc::new(compute)))
}

/// `aclnnCast`.
pub fn cast(
    mut arguments: Arguments<'_>,
    [x, out]: [Id; 2],
    data_type: aclDataType,
) -> Result<Executor, Fail> {
    let x = arguments.tensor(x, "self", Role::In)?;
    let out = arguments.tensor(out, "out", Role::Out)?;
    let types = [FLOATS, INDICES].concat();
    typed(&x, "self", &types)?;
    typed(&out, "out", &[data_type])?;
    typed(&out, "out", &types)?;
    shaped(&out, "out", &x.shape)?;
    let compute = |access: &mut Access<'_>, tensors: &[Tensor]| {
        let [x, out] = tensors else {
            return Ok(());
        };
        let values = x.read(access)?;
        out.write(access, &values)
    };
    Ok(arguments.executor(0, Arc::new(compute)))
}

/// `aclnnSwiGlu` over the last dimension: x rows `[gate | up]`, out = gate * sigmoid(gate) * up.
pub fn swiglu(mut arguments: Arguments<'_>, [x, out]: [Id; 2], dim: i64) -> Result<Executor, Fail> {
    let x = arguments.tensor(x, "x", Role::In)?;
    let out = arguments.tensor(out, "out", Role::Out)?;
    let last = x.shape.len() as i64 - 1;
    if dim != -1 && dim != last {
        return Err(not_offered("SwiGlu but over the last dimension"));
    }
    typed(&x, "x", FLOATS)?;
    typed(&out, "out", &[x.data_type])?;
    contiguous(&x, "x")?;
    contiguous(&out, "out")?;
    let width = x.shape.last().copied().unwrap_or(1);
    required(width % 2 == 0, ACLNN_ERR_PARAM_INVALID, || {
        format!("{width} columns are no two halves")
    })?;
    let mut shape = x.shape.clone();
    shape[last as usize] = width / 2;
    shaped(&out, "out", &shape)?;
    let compute = move |access: &mut Access<'_>, tensors: &[Tensor]| {
        let [x, out] = tensors else {
            return Ok(());
        };
        let mut values = Vec::with_capacity(out.elements());
        for row in x.read(access)?.chunks_exact(width) {
            let (gate, up) = row.split_at(width / 2);
            let gated = gate.iter().zip(up);
            values.extend(gated.map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up));
        }
        out.write(access, &values)
    };
    Ok(arguments.executor(0, Arc::new(compute)))
}
