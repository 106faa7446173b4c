//! RopeWithSinCosCache: rotates the leading elements of each head by a table that is indexed by position.

use super::Executor;
use super::arguments::{
    Arguments, FLOATS, INDICES, Role, not_offered, ranked, required, shaped, typed,
};
use crate::fail::{Fail, mistake};
use crate::task::{Access, Id};
use crate::tensor::Tensor;
use ropeteam_acl_sys::code::{ACL_ERROR_RT_AICORE_EXCEPTION, ACLNN_ERR_PARAM_INVALID};
use std::sync::Arc;

/// What the operator is asked for.
pub struct Rotation {
    /// Handles of positions, query, key, table, query out, key out.
    pub tensors: [Id; 6],
    /// Handle of the sections of a multimodal rotation.
    pub sections: Id,
    /// Elements of a head.
    pub head_size: i64,
    /// Pairs are (i, i + half) instead of (2i, 2i + 1).
    pub neox: bool,
}

/// `aclnnRopeWithSinCosCache`: positions `[t]`, query and key `[t, heads * head_size]`, table `[positions, rotary]` with rows
/// `[cos | sin]`.
pub fn rotate(mut arguments: Arguments<'_>, asked: Rotation) -> Result<Executor, Fail> {
    arguments.not_on_310p()?;
    let [positions, query, key, table, query_out, key_out] = asked.tensors;
    let positions = arguments.tensor(positions, "positions", Role::In)?;
    let query = arguments.tensor(query, "queryIn", Role::In)?;
    let key = arguments.tensor(key, "keyIn", Role::In)?;
    let table = arguments.tensor(table, "cosSinCache", Role::In)?;
    let query_out = arguments.tensor(query_out, "queryOut", Role::Out)?;
    let key_out = arguments.tensor(key_out, "keyOut", Role::Out)?;
    if arguments.numbers(asked.sections, "mropeSection")? != [0, 0, 0] {
        return Err(not_offered("a rotation in sections"));
    }
    let [rows, _] = ranked(&query, "queryIn")?;
    let [count] = ranked(&positions, "positions")?;
    let [_, rotary] = ranked(&table, "cosSinCache")?;
    typed(&positions, "positions", INDICES)?;
    typed(&query, "queryIn", FLOATS)?;
    for (tensor, what) in [
        (&key, "keyIn"),
        (&table, "cosSinCache"),
        (&query_out, "queryOut"),
        (&key_out, "keyOut"),
    ] {
        typed(tensor, what, &[query.data_type])?;
    }
    shaped(&query_out, "queryOut", &query.shape)?;
    shaped(&key_out, "keyOut", &key.shape)?;
    let head_size = usize::try_from(asked.head_size).unwrap_or(0);
    for (tensor, what) in [(&query, "queryIn"), (&key, "keyIn")] {
        let [own_rows, columns] = ranked(tensor, what)?;
        let fits = own_rows == rows && head_size > 0 && columns % head_size == 0;
        required(fits, ACLNN_ERR_PARAM_INVALID, || {
            format!(
                "{what} is {:?} for {rows} rows of heads of {head_size}",
                tensor.shape
            )
        })?;
    }
    required(
        count == rows && rotary % 2 == 0 && rotary <= head_size,
        ACLNN_ERR_PARAM_INVALID,
        || format!("{count} positions and {rotary} of {head_size} elements for {rows} rows"),
    )?;
    let neox = asked.neox;
    let compute = move |access: &mut Access<'_>, tensors: &[Tensor]| {
        rotate_rows(access, tensors, (head_size, neox))
    };
    let bytes = 2 * (query.bytes() + key.bytes());
    Ok(arguments.executor(0, Arc::new(compute)).moving(bytes))
}

fn rotate_rows(
    access: &mut Access<'_>,
    tensors: &[Tensor],
    (head_size, neox): (usize, bool),
) -> Result<(), Fail> {
    let [positions, query, key, table, query_out, key_out] = tensors else {
        return Ok(());
    };
    let angles = angles(access, positions, table)?;
    for (x, out) in [(query, query_out), (key, key_out)] {
        let mut values = x.read(access)?;
        let columns = values.len() / angles.len().max(1);
        for (row, (cos, sin)) in values.chunks_exact_mut(columns).zip(&angles) {
            for head in row.chunks_exact_mut(head_size) {
                turn(head, cos, sin, neox);
            }
        }
        out.write(access, &values)?;
    }
    Ok(())
}

/// Cosines and sines of one position's pairs.
type Angles = (Vec<f32>, Vec<f32>);

/// Those of each position.
fn angles(
    access: &mut Access<'_>,
    positions: &Tensor,
    table: &Tensor,
) -> Result<Vec<Angles>, Fail> {
    let [rows, rotary] = ranked(table, "cosSinCache")?;
    let mut angles = Vec::new();
    for position in positions.read_integers(access)? {
        let row = usize::try_from(position).ok().filter(|row| *row < rows);
        let Some(row) = row else {
            let text = format!("position {position} of a table of {rows}");
            return Err(mistake(ACL_ERROR_RT_AICORE_EXCEPTION, text));
        };
        let line = table.row(row).read(access)?;
        let (cos, sin) = line.split_at(rotary / 2);
        angles.push((cos.to_vec(), sin.to_vec()));
    }
    Ok(angles)
}

/// Rotates the leading pairs of one head.
fn turn(head: &mut [f32], cos: &[f32], sin: &[f32], neox: bool) {
    let half = cos.len();
    for (i, (cos, sin)) in cos.iter().zip(sin).enumerate() {
        let (a, b) = if neox {
            (i, i + half)
        } else {
            (2 * i, 2 * i + 1)
        };
        let (x, y) = (head[a], head[b]);
        head[a] = x * cos - y * sin;
        head[b] = y * cos + x * sin;
    }
}
