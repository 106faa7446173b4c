//! How panels of each format are multiplied, as `linear` sees it: in units of lines and of prepared words that belong together.
//! Floats go through `tile`, integers through `int_tile`.

use crate::aligned::Line;
use crate::simd::{Bf16, Int8};
use crate::tile::{Bf16Element, SingleElement, accumulate};

/// The products of prepared rows with the panels of one format.
pub(crate) trait Product<S: Int8> {
    /// Lines of a panel that go with `UNIT_WORDS` words of a prepared row; a panel may end with fewer.
    const UNIT_LINES: usize;
    const UNIT_WORDS: usize;
    /// Rows and panels of the largest register tile.
    const TILE: (usize, usize);
    /// Whether the sums are multiplied by a factor per output at the end.
    const FACTORS: bool;

    /// Adds the products of all lines to `acc[row][panel]`. All panels have the same number of lines; each row has the words that
    /// go with them.
    fn accumulate<const R: usize, const P: usize>(
        simd: S,
        x: &[&[u32]; R],
        panels: &[&[Line]; P],
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
    const FACTORS: bool = false;

    #[inline(always)]
    fn accumulate<const R: usize, const P: usize>(
        simd: S,
        x: &[&[u32]; R],
        panels: &[&[Line]; P],
        acc: &mut [[S::V; P]; R],
    ) {
        accumulate::<S, Self, R, P>(simd, x, panels, acc);
    }
}

impl<S: Int8> Product<S> for Bf16Element {
    const UNIT_LINES: usize = 1;
    const UNIT_WORDS: usize = <S as Bf16>::PAIR_WORDS;
    const TILE: (usize, usize) = S::TILE;
    const FACTORS: bool = false;

    #[inline(always)]
    fn accumulate<const R: usize, const P: usize>(
        simd: S,
        x: &[&[u32]; R],
        panels: &[&[Line]; P],
        acc: &mut [[S::V; P]; R],
    ) {
        accumulate::<S, Self, R, P>(simd, x, panels, acc);
    }
}
