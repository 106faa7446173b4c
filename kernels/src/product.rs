//! How panels of each format are multiplied, as `linear` sees it: in units of lines and of prepared words that belong together.
//! Floats go through `tile`, integers through `int_tile`.

use crate::aligned::Line;
use crate::simd::{Bf16, Int8};
use crate::tile::{Bf16Element, Element, SingleElement};

/// Lines that are read soon, in two stretches: brought nearer while a tile multiplies, so that memory and arithmetic are busy at
/// once.
pub(crate) struct Ahead<'a, const P: usize> {
    /// What is left of the stretch at hand, and the one after it; in each all panels have the same number of lines.
    now: [&'a [Line]; P],
    then: [&'a [Line]; P],
    next: usize,
    pace: usize,
}

impl<'a, const P: usize> Ahead<'a, P> {
    /// The lines of `now`, then those of `then`, `pace` at a time.
    #[inline(always)]
    pub(crate) fn new(now: [&'a [Line]; P], then: [&'a [Line]; P], pace: usize) -> Self {
        Self {
            now,
            then,
            next: 0,
            pace,
        }
    }

    /// Asks for the next lines.
    #[inline(always)]
    pub(crate) fn advance<S: Int8>(&mut self, simd: S) {
        if self.next >= self.now[0].len() {
            self.now = self.then;
            self.then = [&[]; P];
            self.next = 0;
        }
        let end = self.now[0].len().min(self.next + self.pace);
        for panel in self.now {
            for line in panel.get(self.next..end).unwrap_or_default() {
                simd.prefetch(line);
            }
        }
        self.next = end;
    }
}

/// The products of prepared rows with the panels of one format.
pub(crate) trait Product<S: Int8> {
    /// Lines of a panel that go with `UNIT_WORDS` words of a prepared row; a panel may end with fewer.
    const UNIT_LINES: usize;
    const UNIT_WORDS: usize;
    /// Rows and panels of the largest register tile.
    const TILE: (usize, usize);
    /// Lines of a panel that are multiplied between two calls of `Ahead::advance`.
    const LINES_PER_ADVANCE: usize;
    /// Whether the sums are multiplied by a factor per output at the end.
    const FACTORS: bool;

    /// Adds the products of all lines to `acc[row][panel]`. All panels have the same number of lines; each row has the words that
    /// go with them.
    fn accumulate<const R: usize, const P: usize>(
        simd: S,
        x: &[&[u32]; R],
        panels: &[&[Line]; P],
        ahead: Ahead<'_, P>,
        acc: &mut [[S::V; P]; R],
    );
}

/// Panels of a tile of `rows` rows when the largest tile has `panels`; a tile that is not so wide has one panel. A single row leaves registers free, and reading several
/// panels at once keeps the memory busy.
pub(crate) const fn panels_per_tile(rows: usize, panels: usize) -> usize {
    if rows == 1 { 4 } else { panels }
}

impl<S: Int8> Product<S> for SingleElement {
    const UNIT_LINES: usize = 1;
    const UNIT_WORDS: usize = 1;
    const TILE: (usize, usize) = S::TILE;
    const LINES_PER_ADVANCE: usize = LINES_PER_ADVANCE;
    const FACTORS: bool = false;

    #[inline(always)]
    fn accumulate<const R: usize, const P: usize>(
        simd: S,
        x: &[&[u32]; R],
        panels: &[&[Line]; P],
        ahead: Ahead<'_, P>,
        acc: &mut [[S::V; P]; R],
    ) {
        accumulate::<S, Self, R, P>(simd, x, panels, ahead, acc);
    }
}

impl<S: Int8> Product<S> for Bf16Element {
    const UNIT_LINES: usize = 1;
    const UNIT_WORDS: usize = <S as Bf16>::PAIR_WORDS;
    const TILE: (usize, usize) = S::TILE;
    const LINES_PER_ADVANCE: usize = LINES_PER_ADVANCE;
    const FACTORS: bool = false;

    #[inline(always)]
    fn accumulate<const R: usize, const P: usize>(
        simd: S,
        x: &[&[u32]; R],
        panels: &[&[Line]; P],
        ahead: Ahead<'_, P>,
        acc: &mut [[S::V; P]; R],
    ) {
        accumulate::<S, Self, R, P>(simd, x, panels, ahead, acc);
    }
}

/// Lines of floats multiplied between two looks ahead.
const LINES_PER_ADVANCE: usize = 8;

/// Adds the products of all steps to `acc[row][panel]`, each output in one f32 sum from the first step to the last.
///
/// Loops over arrays are written out here and in the kernels around it: `map` and `from_fn` take closures, and those are compiled
/// without the instructions of the kernel whenever they are not inlined.
#[inline(always)]
fn accumulate<S: Int8, E: Element<S>, const R: usize, const P: usize>(
    simd: S,
    x: &[&[u32]; R],
    panels: &[&[Line]; P],
    mut ahead: Ahead<'_, P>,
    acc: &mut [[S::V; P]; R],
) {
    let steps = panels[0].len();
    for panel in panels {
        assert!(panel.len() == steps, "panels of a tile");
    }
    for row in x {
        assert!(row.len() >= steps * E::WORDS, "inputs of a tile");
    }
    let mut sums = *acc;
    for first in (0..steps).step_by(LINES_PER_ADVANCE) {
        ahead.advance(simd);
        for step in first..steps.min(first + LINES_PER_ADVANCE) {
            // SAFETY: `step < steps`, and every panel has `steps` lines (asserted above).
            let line = unsafe { panels[0].get_unchecked(step) };
            let mut lines = [E::line(simd, line); P];
            for p in 1..P {
                // SAFETY: as above.
                lines[p] = E::line(simd, unsafe { panels[p].get_unchecked(step) });
            }
            for r in 0..R {
                let words = step * E::WORDS..(step + 1) * E::WORDS;
                // SAFETY: every row has `steps * WORDS` words (asserted above).
                let inputs = E::inputs(simd, unsafe { x[r].get_unchecked(words) });
                for p in 0..P {
                    sums[r][p] = E::mul_add(simd, inputs, lines[p], sums[r][p]);
                }
            }
        }
    }
    *acc = sums;
}
