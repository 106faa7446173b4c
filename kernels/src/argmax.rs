//! The best column of a row of logits.

use crate::Machine;
use crate::aligned::LANES;
use crate::simd::{Bf16, Kernel, Simd};

/// The column with the highest value, lowest among equals, leaving out `holes` (ascending). NaN counts as minus infinity;
/// `None` when no column is left that holds more than that.
pub fn argmax(machine: &Machine, row: &[f32], holes: &[u32]) -> Option<u32> {
    machine.isa.dispatch(Argmax { row, holes })
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

    fn check(row: &[f32], holes: &[u32], expected: Option<u32>) {
        for isa in Isa::all() {
            assert_eq!(
                argmax(&Machine::new(isa, 1), row, holes),
                expected,
                "{row:?} without {holes:?}"
            );
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
