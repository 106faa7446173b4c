//! Rows by index: Embedding and IndexSelect.

use super::Executor;
use super::arguments::{Arguments, FLOATS, INDICES, Role, not_offered, ranked, shaped, typed};
use crate::fail::{Fail, mistake};
use crate::task::{Access, Id};
use crate::tensor::Tensor;
use ropeteam_acl_sys::code::ACL_ERROR_RT_AICORE_EXCEPTION;
use std::sync::Arc;

/// `aclnnEmbedding`: weight `[rows, dim]`, indices of any shape, out `[indices.., dim]`.
pub fn embedding(
    mut arguments: Arguments<'_>,
    [weight, indices, out]: [Id; 3],
) -> Result<Executor, Fail> {
    let weight = arguments.tensor(weight, "weight", Role::In)?;
    let indices = arguments.tensor(indices, "indices", Role::In)?;
    let out = arguments.tensor(out, "out", Role::Out)?;
    let [_, dim] = ranked(&weight, "weight")?;
    typed(&weight, "weight", FLOATS)?;
    typed(&indices, "indices", INDICES)?;
    typed(&out, "out", &[weight.data_type])?;
    shaped(&out, "out", &[indices.shape.as_slice(), &[dim]].concat())?;
    let bytes = 2 * out.bytes();
    Ok(arguments.executor(0, Arc::new(pick_rows)).moving(bytes))
}

/// `aclnnIndexSelect` along the first dimension of a matrix: x `[rows, dim]`, index `[n]`, out `[n, dim]`.
pub fn index_select(
    mut arguments: Arguments<'_>,
    [x, index, out]: [Id; 3],
    dim: i64,
) -> Result<Executor, Fail> {
    let x = arguments.tensor(x, "self", Role::In)?;
    let index = arguments.tensor(index, "index", Role::In)?;
    let out = arguments.tensor(out, "out", Role::Out)?;
    if dim != 0 || x.shape.len() != 2 {
        return Err(not_offered("IndexSelect but of a matrix's rows"));
    }
    let [_, width] = ranked(&x, "self")?;
    let [count] = ranked(&index, "index")?;
    typed(&index, "index", INDICES)?;
    typed(&out, "out", &[x.data_type])?;
    shaped(&out, "out", &[count, width])?;
    let bytes = 2 * out.bytes();
    Ok(arguments.executor(0, Arc::new(pick_rows)).moving(bytes))
}

fn pick_rows(access: &mut Access<'_>, tensors: &[Tensor]) -> Result<(), Fail> {
    let [table, indices, out] = tensors else {
        return Ok(());
    };
    let [rows, _] = ranked(table, "table")?;
    let mut values = Vec::with_capacity(out.elements());
    for index in indices.read_integers(access)? {
        let row = usize::try_from(index).ok().filter(|row| *row < rows);
        let Some(row) = row else {
            let text = format!("index {index} of a table of {rows} rows");
            return Err(mistake(ACL_ERROR_RT_AICORE_EXCEPTION, text));
        };
        values.extend(table.row(row).read(access)?);
    }
    out.write(access, &values)
}
