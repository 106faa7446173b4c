//! RmsNorm, AddRmsNorm and InplaceAddRmsNorm over the last dimension.

use super::Executor;
use super::arguments::{Arguments, FLOATS, Role, contiguous, ranked, required, shaped, typed};
use crate::fail::Fail;
use crate::task::{Access, Id};
use crate::tensor::Tensor;
use ropeteam_acl_sys::code::ACLNN_ERR_PARAM_INVALID;
use ropeteam_acl_sys::types::ACL_FLOAT;
use std::sync::Arc;

/// `aclnnRmsNorm`: x `[.., n]`, gamma `[n]`, y like x, rstd `[.., 1]` in f32.
pub fn rms_norm(
    mut arguments: Arguments<'_>,
    [x, gamma, y, rstd]: [Id; 4],
    epsilon: f64,
) -> Result<Executor, Fail> {
    let x = arguments.tensor(x, "x", Role::In)?;
    let gamma = arguments.tensor(gamma, "gamma", Role::In)?;
    let y = arguments.tensor(y, "yOut", Role::Out)?;
    let rstd = arguments.tensor(rstd, "rstdOut", Role::Out)?;
    check(&x, &gamma, &y, &rstd)?;
    let compute = move |access: &mut Access<'_>, tensors: &[Tensor]| {
        let [x, gamma, y, rstd] = tensors else {
            return Ok(());
        };
        let (mut values, gamma) = (x.read(access)?, gamma.read(access)?);
        let factors = norm(&mut values, &gamma, epsilon);
        y.write(access, &values)?;
        rstd.write(access, &factors)
    };
    Ok(arguments.executor(0, Arc::new(compute)))
}

/// `aclnnAddRmsNorm`: sum = x1 + x2, y = norm of sum; all `[.., n]`.
pub fn add_rms_norm(
    mut arguments: Arguments<'_>,
    [x1, x2, gamma, y, rstd, sum]: [Id; 6],
    epsilon: f64,
) -> Result<Executor, Fail> {
    let x1 = arguments.tensor(x1, "x1", Role::In)?;
    let x2 = arguments.tensor(x2, "x2", Role::In)?;
    let gamma = arguments.tensor(gamma, "gamma", Role::In)?;
    let y = arguments.tensor(y, "yOut", Role::Out)?;
    let rstd = arguments.tensor(rstd, "rstdOut", Role::Out)?;
    let sum = arguments.tensor(sum, "xOut", Role::Out)?;
    for (tensor, what) in [(&x2, "x2"), (&sum, "xOut")] {
        typed(tensor, what, &[x1.data_type])?;
        shaped(tensor, what, &x1.shape)?;
    }
    check(&x1, &gamma, &y, &rstd)?;
    let compute = move |access: &mut Access<'_>, tensors: &[Tensor]| {
        let [x1, x2, gamma, y, rstd, sum] = tensors else {
            return Ok(());
        };
        let mut values = x1.read(access)?;
        for (value, other) in values.iter_mut().zip(x2.read(access)?) {
            *value += other;
        }
        sum.write(access, &values)?;
        let factors = norm(&mut values, &gamma.read(access)?, epsilon);
        y.write(access, &values)?;
        rstd.write(access, &factors)
    };
    Ok(arguments.executor(32 << 10, Arc::new(compute)))
}

/// `aclnnInplaceAddRmsNorm`: x2 += x1, then x1 = norm of x2; both `[.., n]` in one piece.
pub fn inplace_add_rms_norm(
    mut arguments: Arguments<'_>,
    [x1, x2, gamma, rstd]: [Id; 4],
    epsilon: f64,
) -> Result<Executor, Fail> {
    let x1 = arguments.tensor(x1, "x1Ref", Role::InOut)?;
    let x2 = arguments.tensor(x2, "x2Ref", Role::InOut)?;
    let gamma = arguments.tensor(gamma, "gamma", Role::In)?;
    let rstd = arguments.tensor(rstd, "rstdOut", Role::Out)?;
    typed(&x2, "x2Ref", &[x1.data_type])?;
    shaped(&x2, "x2Ref", &x1.shape)?;
    contiguous(&x1, "x1Ref")?;
    contiguous(&x2, "x2Ref")?;
    check(&x1, &gamma, &x1, &rstd)?;
    let compute = move |access: &mut Access<'_>, tensors: &[Tensor]| {
        let [x1, x2, gamma, rstd] = tensors else {
            return Ok(());
        };
        let mut values = x1.read(access)?;
        for (value, other) in values.iter_mut().zip(x2.read(access)?) {
            *value += other;
        }
        x2.write(access, &values)?;
        let factors = norm(&mut values, &gamma.read(access)?, epsilon);
        x1.write(access, &values)?;
        rstd.write(access, &factors)
    };
    Ok(arguments.executor(32 << 10, Arc::new(compute)))
}

fn check(x: &Tensor, gamma: &Tensor, y: &Tensor, rstd: &Tensor) -> Result<(), Fail> {
    typed(x, "x", FLOATS)?;
    typed(y, "yOut", &[x.data_type])?;
    typed(gamma, "gamma", &[x.data_type, ACL_FLOAT])?;
    typed(rstd, "rstdOut", &[ACL_FLOAT])?;
    let [width] = ranked(gamma, "gamma")?;
    required(
        x.shape.last() == Some(&width),
        ACLNN_ERR_PARAM_INVALID,
        || format!("gamma is [{width}] and x {:?}", x.shape),
    )?;
    shaped(y, "yOut", &x.shape)?;
    let outer = &x.shape[..x.shape.len() - 1];
    shaped(rstd, "rstdOut", &[outer, &[1]].concat())
}

/// v / sqrt(mean(v^2) + eps) * gamma, row by row of gamma's length, in place; gives `1 / sqrt(..)` of each row.
fn norm(values: &mut [f32], gamma: &[f32], epsilon: f64) -> Vec<f32> {
    let mut factors = Vec::new();
    for row in values.chunks_exact_mut(gamma.len()) {
        let squares: f32 = row.iter().map(|v| v * v).sum();
        let factor = 1.0 / (squares / gamma.len() as f32 + epsilon as f32).sqrt();
        for (value, weight) in row.iter_mut().zip(gamma) {
            *value *= factor * weight;
        }
        factors.push(factor);
    }
    factors
}
