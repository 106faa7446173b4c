//! The activations of a CPU device, and the checks that a buffer is as an operator needs it.

use super::memory::ensure_free;
use super::{ensure, shape_error};
use crate::{Act, DeviceError};

/// All activations; `Act(i)` is the i-th.
#[derive(Default)]
pub(super) struct Buffers(Vec<Buffer>);

struct Buffer {
    rows: usize,
    cols: usize,
    data: Vec<f32>,
}

impl Buffer {
    /// The leading `rows` rows, if the buffer has so many and they are `cols` wide.
    fn check(&self, op: &'static str, rows: usize, cols: usize) -> Result<usize, DeviceError> {
        ensure(rows <= self.rows && cols == self.cols, op, || {
            format!(
                "{rows} rows of {cols} in a buffer of {} rows of {}",
                self.rows, self.cols
            )
        })?;
        Ok(rows * cols)
    }
}

fn missing(op: &'static str, act: Act) -> DeviceError {
    shape_error(op, format!("no activation {}", act.0))
}

impl Buffers {
    pub(super) fn alloc(&mut self, rows: usize, cols: usize) -> Result<Act, DeviceError> {
        let elements = rows
            .checked_mul(cols)
            .filter(|n| *n <= isize::MAX as usize / size_of::<f32>());
        let elements = elements
            .ok_or_else(|| shape_error("alloc", format!("{rows} rows of {cols} overflow")))?;
        ensure_free("activations", elements as u64 * size_of::<f32>() as u64)?;
        self.0.push(Buffer {
            rows,
            cols,
            data: vec![0.0; elements],
        });
        Ok(Act(self.0.len() as u32 - 1))
    }

    fn get(&self, op: &'static str, act: Act) -> Result<&Buffer, DeviceError> {
        self.0.get(act.0 as usize).ok_or_else(|| missing(op, act))
    }

    /// Columns of a buffer.
    pub(super) fn cols(&self, op: &'static str, act: Act) -> Result<usize, DeviceError> {
        Ok(self.get(op, act)?.cols)
    }

    /// The leading `rows` rows of `cols` columns, to write.
    pub(super) fn rows_mut(
        &mut self,
        op: &'static str,
        act: Act,
        rows: usize,
        cols: usize,
    ) -> Result<&mut [f32], DeviceError> {
        let buffer = self
            .0
            .get_mut(act.0 as usize)
            .ok_or_else(|| missing(op, act))?;
        let len = buffer.check(op, rows, cols)?;
        Ok(&mut buffer.data[..len])
    }

    /// The leading `rows` rows of two different buffers, `cols[i]` columns each.
    pub(super) fn pair(
        &mut self,
        op: &'static str,
        acts: [Act; 2],
        rows: usize,
        cols: [usize; 2],
    ) -> Result<[&mut [f32]; 2], DeviceError> {
        for act in acts {
            self.get(op, act)?;
        }
        let [a, b] = self
            .0
            .get_disjoint_mut(acts.map(|act| act.0 as usize))
            .map_err(|_| shape_error(op, "input and output are the same buffer".to_owned()))?;
        let lens = [a.check(op, rows, cols[0])?, b.check(op, rows, cols[1])?];
        Ok([&mut a.data[..lens[0]], &mut b.data[..lens[1]]])
    }

    /// `rows` rows from `first` on.
    pub(super) fn range(
        &self,
        op: &'static str,
        act: Act,
        first: usize,
        rows: usize,
    ) -> Result<&[f32], DeviceError> {
        let buffer = self.get(op, act)?;
        let end = first.checked_add(rows).filter(|end| *end <= buffer.rows);
        let end = end.ok_or_else(|| {
            shape_error(
                op,
                format!(
                    "rows {first} and {rows} more in a buffer of {} rows",
                    buffer.rows
                ),
            )
        })?;
        Ok(&buffer.data[first * buffer.cols..end * buffer.cols])
    }

    /// `out[i] = x[rows[i]]`.
    pub(super) fn take_rows(&mut self, x: Act, rows: &[u32], out: Act) -> Result<(), DeviceError> {
        let op = "take_rows";
        let (x_rows, cols) = (self.get(op, x)?.rows, self.get(op, x)?.cols);
        if let Some(row) = rows.iter().find(|row| **row as usize >= x_rows) {
            return Err(shape_error(
                op,
                format!("row {row} of a buffer of {x_rows} rows"),
            ));
        }
        self.get(op, out)?.check(op, rows.len(), cols)?;
        let [x, out] = self
            .0
            .get_disjoint_mut([x, out].map(|act| act.0 as usize))
            .map_err(|_| shape_error(op, "input and output are the same buffer".to_owned()))?;
        for (i, row) in rows.iter().enumerate() {
            let row = *row as usize;
            out.data[i * cols..(i + 1) * cols]
                .copy_from_slice(&x.data[row * cols..(row + 1) * cols]);
        }
        Ok(())
    }
}
