//! The highest columns of rows: `Topk` finds a few more than are wanted, so that those tied with the last one show. Where that is not
//! enough (columns without a token among them, more ties, NaN) the row itself is read and searched here.

use super::AclDevice;
use super::fit::lacks_operator;
use super::weights::decode;
use crate::tensor::View;
use ropeteam_acl_sys::types::*;
use ropeteam_device::checks::ensure;
use ropeteam_device::{Act, ColumnMask, DeviceError, highest_columns, lowest_tied};

/// Most columns that are looked for; whole rows tell about more.
const MOST: usize = 128;
/// Looked for beside twice the wanted ones.
const SPARE: usize = 32;
/// The operator without which whole rows are read.
const OPERATOR: &str = "aclnnTopk";

impl AclDevice {
    /// See `Device::highest_max`.
    pub(super) fn most_highest(&self) -> usize {
        match lacks_operator(&self.session.acl.operators.absent(), OPERATOR) {
            true => 0,
            false => MOST,
        }
    }

    /// See `Device::read_highest`.
    pub(super) fn read_top(
        &mut self,
        x: Act,
        first: usize,
        counts: &[usize],
        allowed: &ColumnMask,
        out: &mut Vec<Vec<(u32, f32)>>,
    ) -> Result<(), DeviceError> {
        let op = "read_highest";
        let (cols, float, rows) = (self.buffers.cols(op, x)?, self.float(), counts.len());
        ensure(allowed.limit <= cols, op, || {
            format!("limit {} in rows of {cols}", allowed.limit)
        })?;
        let view = self.buffers.range(op, float, x, (first, rows))?;
        let most = counts.iter().copied().max().unwrap_or(0);
        ensure(most <= MOST, op, || {
            format!("{most} columns, at most {MOST} are possible")
        })?;
        // Few different widths, so that few executors do.
        let width = (2 * most + SPARE).next_power_of_two();
        let found = match rows > 0 && width < cols {
            true => self.top(view, width)?,
            false => Vec::new(),
        };
        for (row, count) in counts.iter().enumerate() {
            let found = found.get(row * width..(row + 1) * width);
            let settled = found.and_then(|found| settled(found, *count, allowed));
            out.push(match settled {
                Some(highest) => highest,
                None => {
                    let mut line = Vec::with_capacity(cols);
                    self.read(x, first + row, 1, &mut line)?;
                    highest_columns(&line, *count, allowed)
                }
            });
        }
        Ok(())
    }

    /// The `width` highest columns of each row, highest first.
    fn top(&mut self, x: View, width: usize) -> Result<Vec<(u32, f32)>, DeviceError> {
        let ([rows, _], float) = (x.matrix(), x.data_type);
        let (heights, places) = (rows * width * 2, rows * width * 8);
        let [values, columns] = &mut self.scratch.highest;
        values.reserve(&mut self.arena, "highest columns", heights)?;
        columns.reserve(&mut self.arena, "highest columns", places)?;
        let values = View::new(values.address, float, &[rows, width]);
        let columns = View::new(columns.address, ACL_INT64, &[rows, width]);
        self.launch_top(x, values, columns)?;
        let pieces = [(values.address, heights), (columns.address, places)];
        let (values, columns) = self.inbox.read(&pieces)?.split_at(heights);
        let mut found = Vec::with_capacity(rows * width);
        decode(float, values, &mut found);
        let columns = columns.as_chunks::<8>().0.iter();
        let columns = columns.map(|at| i64::from_le_bytes(*at) as u32);
        let found = columns.zip(found).collect();
        self.outbox.clear();
        Ok(found)
    }

    fn launch_top(&mut self, x: View, values: View, columns: View) -> Result<(), DeviceError> {
        let [_, width] = values.matrix();
        launch!(
            self,
            aclnnTopkGetWorkspaceSize,
            aclnnTopk,
            [x, values, columns],
            [],
            |t| (t[0], width as i64, -1, true, true, t[1], t[2])
        )
    }
}

/// The highest columns of a row by what was found of it, highest first; `None` where that does not tell.
fn settled(found: &[(u32, f32)], count: usize, allowed: &ColumnMask) -> Option<Vec<(u32, f32)>> {
    if found.iter().any(|(_, value)| value.is_nan()) {
        return None;
    }
    let mut highest = found.to_vec();
    highest.retain(|(at, _)| allowed.allows(*at));
    let (_, last) = *highest.get(count.checked_sub(1)?)?;
    let lowest = lowest_tied(last);
    // What was not found is at most as high as the last that was.
    let is_complete = found.last().is_some_and(|(_, value)| *value < lowest);
    is_complete.then(|| {
        highest.retain(|(_, value)| *value >= lowest);
        highest.sort_unstable_by_key(|(at, _)| *at);
        highest
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_tells_where_all_ties_show() {
        let mask = ColumnMask {
            limit: 10,
            holes: vec![4],
        };
        let of = |values: [f32; 5], count| {
            let found: Vec<_> = [7, 4, 2, 9, 1].into_iter().zip(values).collect();
            settled(&found, count, &mask)
        };
        let values = [9.0, 8.0, 7.0, 7.0, 1.0];
        assert_eq!(of(values, 1), Some(vec![(7, 9.0)]));
        assert_eq!(of(values, 2), Some(vec![(2, 7.0), (7, 9.0), (9, 7.0)]));
        assert_eq!(of(values, 4), None, "the last one may be tied");
        assert_eq!(of(values, 5), None, "one has no token");
        assert_eq!(of([f32::NAN, 8.0, 7.0, 7.0, 1.0], 1), None);
    }
}
