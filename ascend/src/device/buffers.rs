//! Activations: which buffer is where, and the checks that it is as an operator needs it.

use crate::memory::{Address, Arena, pointer};
use crate::session::Session;
use crate::tensor::View;
use ropeteam_acl_sys::types::aclDataType;
use ropeteam_device::checks::{ensure, shape_error};
use ropeteam_device::{Act, DeviceError};

/// Bytes of an activation.
pub const ELEMENT: usize = 2;

/// All activations; `Act(i)` is the i-th.
#[derive(Default)]
pub struct Buffers(Vec<Buffer>);

#[derive(Clone, Copy)]
struct Buffer {
    address: Address,
    rows: usize,
    cols: usize,
}

impl Buffers {
    /// A buffer of zeros.
    pub fn alloc(
        &mut self,
        session: &Session,
        arena: &mut Arena,
        rows: usize,
        cols: usize,
    ) -> Result<Act, DeviceError> {
        let bytes = rows
            .checked_mul(cols)
            .and_then(|elements| elements.checked_mul(ELEMENT))
            .filter(|bytes| *bytes <= isize::MAX as usize / 2);
        let bytes =
            bytes.ok_or_else(|| shape_error("alloc", format!("{rows} rows of {cols} overflow")))?;
        let address = arena.piece("activations", bytes)?;
        let filled = call!(
            session.acl,
            runtime.aclrtMemset(pointer(address), bytes, 0, bytes)
        );
        session.noted(filled)?;
        self.0.push(Buffer {
            address,
            rows,
            cols,
        });
        Ok(Act(self.0.len() as u32 - 1))
    }

    fn get(&self, op: &'static str, act: Act) -> Result<Buffer, DeviceError> {
        let found = self.0.get(act.0 as usize).copied();
        found.ok_or_else(|| shape_error(op, format!("no activation {}", act.0)))
    }

    /// Columns of a buffer.
    pub fn cols(&self, op: &'static str, act: Act) -> Result<usize, DeviceError> {
        Ok(self.get(op, act)?.cols)
    }

    /// Rows that a buffer has room for.
    pub fn capacity(&self, op: &'static str, act: Act) -> Result<usize, DeviceError> {
        Ok(self.get(op, act)?.rows)
    }

    /// The leading `rows` rows of `cols` columns.
    pub fn rows(
        &self,
        op: &'static str,
        float: aclDataType,
        act: Act,
        rows: usize,
        cols: usize,
    ) -> Result<View, DeviceError> {
        let buffer = self.get(op, act)?;
        ensure(rows <= buffer.rows && cols == buffer.cols, op, || {
            let Buffer {
                rows: most,
                cols: width,
                ..
            } = buffer;
            format!("{rows} rows of {cols} in a buffer of {most} rows of {width}")
        })?;
        Ok(View::new(buffer.address, float, &[rows, cols]))
    }

    /// The leading `rows` rows of two different buffers, `cols[i]` columns each.
    pub fn pair(
        &self,
        op: &'static str,
        float: aclDataType,
        [a, b]: [Act; 2],
        rows: usize,
        cols: [usize; 2],
    ) -> Result<[View; 2], DeviceError> {
        let views = [
            self.rows(op, float, a, rows, cols[0])?,
            self.rows(op, float, b, rows, cols[1])?,
        ];
        ensure(a != b, op, || {
            "input and output are the same buffer".to_owned()
        })?;
        Ok(views)
    }

    /// `rows` rows from `first` on.
    pub fn range(
        &self,
        op: &'static str,
        float: aclDataType,
        act: Act,
        (first, rows): (usize, usize),
    ) -> Result<View, DeviceError> {
        let buffer = self.get(op, act)?;
        let end = first.checked_add(rows);
        ensure(end.is_some_and(|end| end <= buffer.rows), op, || {
            format!(
                "rows {first} and {rows} more in a buffer of {} rows",
                buffer.rows
            )
        })?;
        let view = View::new(buffer.address, float, &[buffer.rows, buffer.cols]);
        Ok(view.row_range(first, rows))
    }
}
