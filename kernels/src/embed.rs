//! Rows of an embedding table.

use crate::{Machine, Matrix};

/// `out[r] = table[ids[r]]`.
///
/// # Panics
/// When an id lies outside the table or the lengths do not fit together.
pub fn embed(machine: &mut Machine, table: Matrix<'_>, ids: &[u32], out: &mut [f32]) {
    let cols = table.inputs();
    assert_eq!(out.len(), ids.len() * cols, "a row for each id");
    machine.for_rows(out, cols, |first, out| {
        for (id, row) in ids[first..].iter().zip(out.chunks_exact_mut(cols)) {
            table.read_row(*id as usize, row);
        }
    });
}
