//! What comes back to the host: rows, and the best column of each row.

use super::AclDevice;
use super::weights::decode;
use crate::launch::Launch;
use crate::tensor::View;
use ropeteam_acl_sys::types::*;
use ropeteam_device::checks::ensure;
use ropeteam_device::{Act, ColumnMask, DeviceError};

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
        let [values, columns] = &mut self.scratch.best;
        values.reserve(&mut self.arena, op, rows * 2)?;
        columns.reserve(&mut self.arena, op, rows * 4)?;
        let values = View::new(values.address, float, &[rows]);
        let columns = View::new(columns.address, ACL_INT32, &[rows]);
        self.find_highest(view, values, columns)?;
        let pieces = [(values.address, rows * 2), (columns.address, rows * 4)];
        let found = self.inbox.read(&pieces)?;
        let (high, places) = found.split_at(rows * 2);
        let mut highest = Vec::with_capacity(rows);
        decode(float, high, &mut highest);
        let places = places.as_chunks::<4>().0.iter();
        let places: Vec<u32> = places.map(|bytes| u32::from_le_bytes(*bytes)).collect();
        self.outbox.clear();
        for (row, (value, place)) in highest.into_iter().zip(places).enumerate() {
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

    fn find_highest(&mut self, x: View, values: View, columns: View) -> Result<(), DeviceError> {
        let acl = self.session.acl;
        let launch = Launch {
            operator: operator!(aclnnMaxDim),
            tensors: &[x, values, columns],
            places: &[],
            numbers: &[],
        };
        self.launcher.launch(&launch, |t, made| {
            // SAFETY: tensors that live as long as the executor.
            unsafe {
                acl.operators.aclnnMaxDimGetWorkspaceSize(
                    t[0],
                    -1,
                    false,
                    t[1],
                    t[2],
                    &mut made.workspace,
                    &mut made.executor,
                )
            }
        })
    }
}

/// The highest of all columns is the highest of the allowed ones.
fn is_settled(value: f32, column: u32, allowed: &ColumnMask) -> bool {
    value > f32::NEG_INFINITY
        && (column as usize) < allowed.limit
        && allowed.holes.binary_search(&column).is_err()
}

/// The first of the highest allowed columns; NaN counts as none.
fn best_of(line: &[f32], allowed: &ColumnMask) -> Option<u32> {
    let mut best = (f32::NEG_INFINITY, None);
    for (column, value) in (0u32..).zip(&line[..allowed.limit]) {
        if *value > best.0 && allowed.holes.binary_search(&column).is_err() {
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
