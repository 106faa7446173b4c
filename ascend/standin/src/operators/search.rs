//! ArgMax, MaxDim and Topk over the last dimension.

use super::Executor;
use super::arguments::{Arguments, FLOATS, INDICES, Role, not_offered, required, shaped, typed};
use crate::fail::{Fail, mistake};
use crate::task::{Access, Id};
use crate::tensor::Tensor;
use ropeteam_acl_sys::code::ACLNN_ERR_PARAM_INVALID;
use ropeteam_acl_sys::types::ACL_INT64;
use std::sync::Arc;

/// Width and outer dimensions of a tensor whose last dimension is searched.
fn searched(x: &Tensor, dim: i64) -> Result<(usize, Vec<usize>), Fail> {
    let last = x.shape.len() as i64 - 1;
    match x.shape.split_last() {
        Some((width, outer)) if dim == -1 || dim == last => Ok((*width, outer.to_vec())),
        _ => Err(not_offered("a search but along the last dimension")),
    }
}

/// `aclnnArgMax`: x `[.., n]`, out `[..]` or, with `keep`, `[.., 1]`; the first of equals.
pub fn argmax(
    mut arguments: Arguments<'_>,
    [x, out]: [Id; 2],
    dim: i64,
    keep: bool,
) -> Result<Executor, Fail> {
    let x = arguments.tensor(x, "self", Role::In)?;
    let out = arguments.tensor(out, "out", Role::Out)?;
    let (width, mut outer) = searched(&x, dim)?;
    typed(&x, "self", FLOATS)?;
    typed(&out, "out", INDICES)?;
    if keep {
        outer.push(1);
    }
    shaped(&out, "out", &outer)?;
    let compute = move |access: &mut Access<'_>, tensors: &[Tensor]| {
        let [x, out] = tensors else {
            return Ok(());
        };
        let values = x.read(access)?;
        let best: Vec<f32> = values.chunks_exact(width).map(highest).collect();
        out.write(access, &best)
    };
    Ok(arguments.executor(0, Arc::new(compute)))
}

/// `aclnnMaxDim`: x `[.., n]`, values and indices `[..]` or, with `keep`, `[.., 1]`; the first of equals, NaN before all numbers.
pub fn max_dim(
    mut arguments: Arguments<'_>,
    [x, values, indices]: [Id; 3],
    dim: i64,
    keep: bool,
) -> Result<Executor, Fail> {
    let x = arguments.tensor(x, "self", Role::In)?;
    let values = arguments.tensor(values, "out", Role::Out)?;
    let indices = arguments.tensor(indices, "indices", Role::Out)?;
    let (width, mut outer) = searched(&x, dim)?;
    typed(&x, "self", FLOATS)?;
    typed(&values, "out", &[x.data_type])?;
    typed(&indices, "indices", INDICES)?;
    if keep {
        outer.push(1);
    }
    shaped(&values, "out", &outer)?;
    shaped(&indices, "indices", &outer)?;
    let compute = move |access: &mut Access<'_>, tensors: &[Tensor]| {
        let [x, values, indices] = tensors else {
            return Ok(());
        };
        let all = x.read(access)?;
        let places: Vec<f32> = all.chunks_exact(width).map(highest).collect();
        let rows = all.chunks_exact(width).zip(&places);
        let best: Vec<f32> = rows.map(|(row, place)| row[*place as usize]).collect();
        values.write(access, &best)?;
        indices.write(access, &places)
    };
    Ok(arguments.executor(0, Arc::new(compute)))
}

/// What `aclnnTopk` is asked for.
pub struct Wanted {
    /// How many.
    pub k: i64,
    /// Along which dimension.
    pub dim: i64,
    /// The highest ones.
    pub largest: bool,
    /// In order.
    pub sorted: bool,
}

/// `aclnnTopk`: x `[.., n]`, values and indices `[.., k]`, highest first.
pub fn topk(
    mut arguments: Arguments<'_>,
    [x, values, indices]: [Id; 3],
    wanted: Wanted,
) -> Result<Executor, Fail> {
    let x = arguments.tensor(x, "self", Role::In)?;
    let values = arguments.tensor(values, "valuesOut", Role::Out)?;
    let indices = arguments.tensor(indices, "indicesOut", Role::Out)?;
    let (width, mut shape) = searched(&x, wanted.dim)?;
    typed(&x, "self", FLOATS)?;
    typed(&values, "valuesOut", &[x.data_type])?;
    typed(&indices, "indicesOut", &[ACL_INT64])?;
    required(wanted.sorted, ACLNN_ERR_PARAM_INVALID, || {
        "sorted must be true".to_owned()
    })?;
    if !wanted.largest {
        return Err(not_offered("Topk of the lowest"));
    }
    let k = usize::try_from(wanted.k).ok().filter(|k| *k <= width);
    let k =
        k.ok_or_else(|| mistake(ACLNN_ERR_PARAM_INVALID, format!("{} of {width}", wanted.k)))?;
    shape.push(k);
    shaped(&values, "valuesOut", &shape)?;
    shaped(&indices, "indicesOut", &shape)?;
    let compute = move |access: &mut Access<'_>, tensors: &[Tensor]| {
        let [x, values, indices] = tensors else {
            return Ok(());
        };
        let (mut best, mut places) = (Vec::new(), Vec::new());
        for row in x.read(access)?.chunks_exact(width) {
            for place in highest_first(row).into_iter().take(k) {
                best.push(row[place]);
                places.push(place as f32);
            }
        }
        values.write(access, &best)?;
        indices.write(access, &places)
    };
    Ok(arguments.executor(0, Arc::new(compute)))
}

/// Place of a row's highest value, the first among equals.
fn highest(row: &[f32]) -> f32 {
    let places = row.iter().enumerate();
    let best = places.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
    best.map_or(0.0, |(place, _)| place as f32)
}

/// Places of a row, highest value first, lower places first among equals.
fn highest_first(row: &[f32]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..row.len()).collect();
    places.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
    places
}
