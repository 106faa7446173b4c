//! What comes back to the host: rows, and the best column of each row.

use super::AclDevice;
use super::weights::decode;
use crate::memory::Address;
use crate::tensor::View;
use ropeteam_acl_sys::types::*;
use ropeteam_device::checks::ensure;
use ropeteam_device::{Act, Answer, ColumnMask, DeviceError};

impl AclDevice {
    /// See `Device::read_rows`.
    pub(super) fn read(
        &mut self,
        x: Act,
        first: usize,
        rows: usize,
        out: &mut Vec<f32>,
    ) -> Result<(), DeviceError> {
        let op = "read_rows";
        let float = self.float();
        let view = self.buffers.range(op, float, x, (first, rows))?;
        let bytes = rows * self.buffers.cols(op, x)? * 2;
        if bytes == 0 {
            return Ok(());
        }
        let found = self.inbox.read(&[(view.first_byte(), bytes)])?;
        decode(float, found, out);
        self.outbox.clear();
        Ok(())
    }

    /// See `Device::read_argmax`. The device looks for the highest of all columns. Where that is NaN or a column without a token,
    /// which trained models hardly ever bring about, the row itself is read and searched here.
    pub(super) fn read_best(
        &mut self,
        x: Act,
        (first, rows): (usize, usize),
        allowed: &ColumnMask,
        out: &mut Vec<Option<u32>>,
    ) -> Result<(), DeviceError> {
        let op = "read_argmax";
        let (cols, float) = (self.buffers.cols(op, x)?, self.float());
        ensure(allowed.limit <= cols, op, || {
            format!("limit {} in rows of {cols}", allowed.limit)
        })?;
        let view = self.buffers.range(op, float, x, (first, rows))?;
        if rows == 0 {
            return Ok(());
        }
        let pieces = self.highest_of(view)?;
        let found = self.inbox.read(&pieces)?;
        let found = highest(float, found, rows);
        self.outbox.clear();
        for (row, (value, place)) in found.into_iter().enumerate() {
            let best = match is_settled(value, place, allowed) {
                true => Some(place),
                false => {
                    let mut line = Vec::new();
                    self.read(x, first + row, 1, &mut line)?;
                    best_of(&line, allowed)
                }
            };
            out.push(best);
        }
        Ok(())
    }

    /// See `Device::find_best`.
    pub(super) fn ask_best(&mut self, x: Act, rows: usize) -> Result<Answer, DeviceError> {
        let op = "find_best";
        let view = self.buffers.range(op, self.float(), x, (0, rows))?;
        ensure(rows > 0, op, || "no rows".to_owned())?;
        let pieces = self.highest_of(view)?;
        let number = self.answers.ask(&pieces)?;
        self.outbox.turn()?;
        Ok(Answer { number, rows })
    }

    /// See `Device::collect_best`.
    pub(super) fn await_best(
        &mut self,
        answer: Answer,
        allowed: &ColumnMask,
        out: &mut Vec<Option<u32>>,
    ) -> Result<bool, DeviceError> {
        let float = self.float();
        let found = highest(float, self.answers.wait(answer.number)?, answer.rows);
        let settled = found
            .iter()
            .all(|(value, place)| is_settled(*value, *place, allowed));
        if settled {
            out.extend(found.into_iter().map(|(_, place)| Some(place)));
        }
        Ok(settled)
    }

    /// Looks for the highest column of each row; where its value and its number will be, in bytes.
    fn highest_of(&mut self, x: View) -> Result<[(Address, usize); 2], DeviceError> {
        let [rows, _] = x.matrix();
        let [values, columns] = &mut self.scratch.best;
        values.reserve(&mut self.arena, "best columns", rows * 2)?;
        columns.reserve(&mut self.arena, "best columns", rows * 4)?;
        let values = View::new(values.address, x.data_type, &[rows]);
        let columns = View::new(columns.address, ACL_INT32, &[rows]);
        self.find_highest(x, values, columns)?;
        Ok([(values.address, rows * 2), (columns.address, rows * 4)])
    }

    fn find_highest(&mut self, x: View, values: View, columns: View) -> Result<(), DeviceError> {
        launch!(
            self,
            aclnnMaxDimGetWorkspaceSize,
            aclnnMaxDim,
            [x, values, columns],
            [],
            |t| (t[0], -1, false, t[1], t[2])
        )
    }
}

/// Value and column of each row's highest, from the bytes of both.
fn highest(float: aclDataType, bytes: &[u8], rows: usize) -> Vec<(f32, u32)> {
    let (values, columns) = bytes.split_at(rows * 2);
    let mut highest = Vec::with_capacity(rows);
    decode(float, values, &mut highest);
    let columns = columns.as_chunks::<4>().0.iter();
    let columns = columns.map(|bytes| u32::from_le_bytes(*bytes));
    highest.into_iter().zip(columns).collect()
}

/// The highest of all columns is the highest of the allowed ones.
fn is_settled(value: f32, column: u32, allowed: &ColumnMask) -> bool {
    value > f32::NEG_INFINITY && allowed.allows(column)
}

/// The first of the highest allowed columns; NaN counts as none.
fn best_of(line: &[f32], allowed: &ColumnMask) -> Option<u32> {
    let mut best = (f32::NEG_INFINITY, None);
    for (column, value) in (0u32..).zip(&line[..allowed.limit]) {
        if *value > best.0 && allowed.allows(column) {
            best = (*value, Some(column));
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_searched_as_the_trait_says() {
        let mask = |limit, holes: &[u32]| ColumnMask {
            limit,
            holes: holes.to_vec(),
        };
        let line = [f32::NAN, 2.0, 7.0, 7.0, 9.0];
        assert_eq!(best_of(&line, &mask(4, &[])), Some(2));
        assert_eq!(best_of(&line, &mask(4, &[2])), Some(3));
        assert_eq!(best_of(&line, &mask(1, &[])), None);
        assert_eq!(best_of(&[f32::NEG_INFINITY], &mask(1, &[])), None);
        assert!(!is_settled(f32::NAN, 0, &mask(4, &[])));
        assert!(!is_settled(9.0, 4, &mask(4, &[])));
        assert!(is_settled(7.0, 2, &mask(4, &[1])));
    }
}
