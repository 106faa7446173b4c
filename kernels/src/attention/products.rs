//! The register tile of attention: like that under `linear`, but its rows stand at equal distances and its panels anywhere in the
//! cache, so that a few numbers say where they are. Tiles are small here, and setting them up must cost next to nothing.

use crate::aligned::Line;
use crate::simd::Bf16;
use crate::tile::{Element, panels_per_tile};

/// Rows of prepared inputs, starting with the first one, `STRIDE` words apart. A constant: then one register finds them all.
#[derive(Clone, Copy)]
pub(super) struct InputRows<'a, const STRIDE: usize>(pub &'a [u32]);

/// Panels of sixteen outputs.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a, const P: usize> {
    pub lines: &'a [Line],
    /// Where each panel starts.
    pub starts: [usize; P],
    /// Where those start that will be asked for next, to be brought nearer meanwhile: blocks lie scattered, and the hardware sees no
    /// pattern in them.
    pub next: [usize; P],
    /// Lines of each.
    pub steps: usize,
}

/// Adds the products of all steps to `acc[row][panel]`, in their order.
///
/// Its loops count: iterators that take arrays or are zipped are compiled without the instructions of the kernel, and then this takes
/// twice as long.
///
/// # Panics
/// When a row or a panel reaches beyond its slice.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
pub(super) fn add_products<
    S: Bf16,
    E: Element<S>,
    const R: usize,
    const P: usize,
    const STRIDE: usize,
>(
    simd: S,
    rows: InputRows<'_, STRIDE>,
    panels: Panels<'_, P>,
    acc: &mut [[S::V; P]; R],
) {
    // Known at compile time: shapes that an instruction set does not use cost no code.
    assert!(
        R <= S::TILE.0 && (P == 1 || P == panels_per_tile::<S>(R)),
        "shape of a tile"
    );
    let (lines, steps) = (panels.lines, panels.steps);
    assert!(
        (R - 1) * STRIDE + steps * E::WORDS <= rows.0.len(),
        "inputs of a tile"
    );
    for start in panels.starts.into_iter().chain(panels.next) {
        assert!(
            start <= lines.len() && steps <= lines.len() - start,
            "panels of a tile"
        );
    }
    let mut sums = *acc;
    for step in 0..steps {
        // SAFETY: `start + steps` is at most the number of lines, for every panel (asserted above).
        let first = unsafe { lines.get_unchecked(panels.starts[0] + step) };
        let mut w = [E::line(simd, first); P];
        for p in 1..P {
            // SAFETY: as above.
            w[p] = E::line(simd, unsafe {
                lines.get_unchecked(panels.starts[p] + step)
            });
        }
        // A full tile of rows has enough to compute, and others like it read the same panels.
        if R < S::TILE.0 {
            for p in 0..P {
                // SAFETY: as above.
                simd.prefetch(unsafe { lines.get_unchecked(panels.next[p] + step) });
            }
        }
        for r in 0..R {
            let word = r * STRIDE + step * E::WORDS;
            // SAFETY: the last word of the last row lies within the slice (asserted above).
            let words = unsafe { rows.0.get_unchecked(word..word + E::WORDS) };
            let inputs = E::inputs(simd, words);
            for p in 0..P {
                sums[r][p] = E::mul_add(simd, inputs, w[p], sums[r][p]);
            }
        }
    }
    *acc = sums;
}
