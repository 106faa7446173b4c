//! The best column of a row of logits.

use crate::Machine;
use crate::aligned::LANES;
use crate::disjoint::Disjoint;
use crate::simd::{Bf16, Kernel, Simd};

/// Rows of logits, and which of their columns count.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    /// The rows.
    pub x: &'a [f32],
    /// Width of a row.
    pub cols: usize,
    /// Columns from here on do not count.
    pub limit: usize,
    /// Columns below `limit` that do not count either, ascending.
    pub holes: &'a [u32],
}

/// Per row the column with the highest value, lowest among equals. NaN counts as minus infinity; `None` when no column is left that
/// holds more than that.
///
/// # Panics
/// When there are fewer rows than places in `out`, or rows are narrower than `limit`.
pub fn argmax(machine: &mut Machine, rows: Candidates<'_>, out: &mut [Option<u32>]) {
    let isa = machine.isa;
    let count = out.len();
    let out = Disjoint::new(out);
    machine.pool.run(count, &|row| {
        let best = isa.dispatch(Argmax {
            row: &rows.x[row * rows.cols..][..rows.cols][..rows.limit],
            holes: rows.holes,
        });
        // SAFETY: each row belongs to one task.
        unsafe { out.part(row, 1)[0] = best };
    });
}

struct Argmax<'a> {
    row: &'a [f32],
    holes: &'a [u32],
}

impl Kernel for Argmax<'_> {
    type Output = Option<u32>;
    #[inline(always)]
    fn run<S: Bf16>(self, simd: S) -> Option<u32> {
        let mut best: Option<(usize, f32)> = None;
        let mut start = 0;
        let ends = self
            .holes
            .iter()
            .map(|hole| *hole as usize)
            .filter(|hole| *hole < self.row.len());
        for end in ends.chain([self.row.len()]) {
            // Between two holes; empty where holes are neighbours.
            if let Some(run) = self.row.get(start..end).filter(|run| !run.is_empty()) {
                let highest = highest(simd, run);
                if highest > best.map_or(f32::NEG_INFINITY, |(_, value)| value) {
                    let at = run.iter().position(|x| *x == highest).unwrap_or(0);
                    best = Some((start + at, highest));
                }
            }
            start = end + 1;
        }
        best.map(|(column, _)| column as u32)
    }
}

/// The highest value, minus infinity if all are NaN.
#[inline(always)]
fn highest<S: Simd>(simd: S, run: &[f32]) -> f32 {
    let lowest = simd.splat(f32::NEG_INFINITY);
    let (whole, rest) = run.as_chunks::<LANES>();
    // The running maximum stands second, where it survives a NaN.
    let mut top = simd.max(simd.load_padded(rest, f32::NEG_INFINITY), lowest);
    for x in whole {
        top = simd.max(simd.load(x), top);
    }
    simd.highest(top)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    /// The row stands between two others.
    fn check(row: &[f32], holes: &[u32], expected: Option<u32>) {
        let cols = row.len() + 1;
        let mut x = vec![9.0; 3 * cols];
        x[cols..][..row.len()].copy_from_slice(row);
        for isa in Isa::all() {
            let rows = Candidates {
                x: &x,
                cols,
                limit: row.len(),
                holes,
            };
            let mut out = [None; 3];
            argmax(&mut Machine::new(isa, 2), rows, &mut out);
            assert_eq!(out[1], expected, "{row:?} without {holes:?}");
        }
    }

    #[test]
    fn the_lowest_of_equal_columns_wins_and_holes_never_do() {
        check(&[1.0, 3.0, 2.0, 3.0], &[], Some(1));
        check(&[1.0, 3.0, 2.0, 3.0], &[1], Some(3));
        check(&[1.0, 3.0, 2.0, 3.0], &[1, 3], Some(2));
        check(&[1.0, 3.0], &[0, 1], None);
        check(&[], &[], None);
        let mut long = vec![0.0; 100];
        long[97] = 5.0;
        check(&long, &[3, 4, 5], Some(97));
        check(&long, &[97, 200], Some(0));
    }

    #[test]
    fn nan_never_wins_over_a_number() {
        let mut row = vec![f32::NAN; 40];
        check(&row, &[], None);
        check(&row, &[0], None);
        row[33] = f32::NEG_INFINITY;
        check(&row, &[], None);
        row[20] = -7.0;
        row[38] = -7.0;
        check(&row, &[], Some(20));
        check(&[f32::NEG_INFINITY; 3], &[0], None);
    }
}
