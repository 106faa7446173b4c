//! What a register tile of queries works on.

use super::MAX_HEAD_DIM;
use super::sums::Sums;
use super::view::{GROUPS, Tile, View};
use crate::aligned::{LANES, Line};

/// Room for a prepared query. No power of two, so that queries do not meet in one set of the cache.
pub(super) const QUERY_WORDS: usize = MAX_HEAD_DIM + 3 * LANES;

/// Room for a query's prepared probabilities of a tile.
pub(super) const PROBABILITY_WORDS: usize = 2 * GROUPS * LANES;

/// One split of the positions, for all queries of a unit.
pub(super) struct Split<'a, 'v> {
    pub view: &'a View<'v>,
    /// The tile that is read after the last one of the unit.
    pub next: Option<&'a Tile>,
    /// Those of the cache.
    pub lines: &'a [Line],
    /// Of a group of keys: lines of scales, then lines of steps.
    pub key_scales: usize,
    pub key_steps: usize,
    /// Lines of a group of values.
    pub group_steps: usize,
    /// Lines from one panel of values to the next.
    pub panel_lines: usize,
    /// Prepared.
    pub queries: &'a [[u32; QUERY_WORDS]],
    /// `len` for each query.
    pub sums: &'a mut Sums,
    pub len: usize,
    /// Prepared probabilities of a register tile.
    pub words: &'a mut [[u32; PROBABILITY_WORDS]],
}
