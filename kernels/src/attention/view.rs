//! Which positions the queries of a unit see, and where the cache holds them.

use super::{Query, Unit};
use crate::KvCache;
use crate::aligned::LANES;
use crate::kv::Shape;

/// Groups of sixteen positions per tile.
pub(super) const GROUPS: usize = 4;
/// Positions per tile.
pub(super) const TILE: usize = GROUPS * LANES;

/// A unit of work with all it reads.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub cache: &'a KvCache,
    pub query: Query<'a>,
    /// The block table of the sequence.
    pub blocks: &'a [u32],
    pub unit: Unit,
    /// Query heads per KV head.
    pub group: usize,
}

/// Sixteen neighbouring positions of the sequence, fewer at the end of a block that is no multiple of sixteen.
#[derive(Clone, Copy, Default)]
pub(super) struct Group {
    pub first_position: usize,
    pub positions: usize,
    /// Lines of the cache where its keys start (`kv::GroupLines`), the scales of its values and its part of the first panel of values.
    /// Of a group that no query sees: those of the last seen one.
    pub keys: usize,
    pub value_scales: usize,
    pub values: usize,
}

impl Group {
    /// How many of its positions lie at or before `last`.
    #[inline(always)]
    pub(super) fn positions_up_to(&self, last: usize) -> usize {
        (last + 1)
            .saturating_sub(self.first_position)
            .min(self.positions)
    }
}

/// The groups whose scores are turned into probabilities together.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub groups: [Group; GROUPS],
    /// The number of its first group, counted from the start of the sequence.
    first_group: usize,
    /// All its groups hold sixteen positions.
    full: bool,
}

/// The number of the group that holds `position`, counted from the start of a sequence.
#[inline(always)]
pub(super) fn group_of(shape: &Shape, position: usize) -> usize {
    position / shape.block_size * shape.groups() + position % shape.block_size / LANES
}

impl View<'_> {
    /// Row (counted within the segment) and head of query `i` of the unit.
    #[inline(always)]
    pub(super) fn row_and_head(&self, i: usize) -> (usize, usize) {
        let query = self.unit.first + i;
        (
            query / self.group,
            self.unit.kv_head * self.group + query % self.group,
        )
    }

    #[inline(always)]
    pub(super) fn position(&self, i: usize) -> usize {
        self.unit.first_position + self.row_and_head(i).0
    }

    /// The numbers of query `i`.
    #[inline(always)]
    pub(super) fn query_head(&self, i: usize) -> &[f32] {
        let (row, head) = self.row_and_head(i);
        let head_dim = self.cache.shape().head_dim;
        &self.query.x[(self.unit.first_row + row) * self.query.cols + head * head_dim..][..head_dim]
    }

    /// The groups of the `tile`-th tile of the sequence; its first one is seen by some query of the unit.
    #[inline(always)]
    pub(super) fn tile(&self, tile: usize) -> Tile {
        let shape = self.cache.shape();
        let last = group_of(shape, self.position(self.unit.count - 1));
        let mut groups = [Group::default(); GROUPS];
        for (g, at) in groups.iter_mut().enumerate() {
            let group = tile * GROUPS + g;
            let (block, inner) = (group / shape.groups(), group % shape.groups());
            at.first_position = block * shape.block_size + inner * LANES;
            at.positions = LANES.min(shape.block_size - inner * LANES);
            let stored = group.min(last);
            let block = self.blocks[stored / shape.groups()] as usize;
            let head = self
                .cache
                .head_start(self.query.layer, block, self.unit.kv_head);
            let lines = self.cache.group_lines(stored % shape.groups());
            at.keys = head + lines.keys;
            at.value_scales = head + lines.value_scales;
            at.values = head + lines.values;
        }
        Tile {
            groups,
            first_group: tile * GROUPS,
            full: shape.block_size.is_multiple_of(LANES),
        }
    }

    /// How many groups of a tile hold a position up to `last`.
    #[inline(always)]
    pub(super) fn groups_up_to(&self, tile: &Tile, last: usize) -> usize {
        let end = group_of(self.cache.shape(), last) + 1;
        end.saturating_sub(tile.first_group).min(GROUPS)
    }

    /// Whether queries at `first ..= last` see every position of a tile.
    #[inline(always)]
    pub(super) fn sees_all(&self, tile: &Tile, first: usize, last: usize) -> bool {
        let start = tile.groups[0].first_position;
        let end = tile.groups[GROUPS - 1].first_position + LANES;
        let in_window = self
            .query
            .window
            .is_none_or(|window| last < start.saturating_add(window));
        tile.full && first + 1 >= end && in_window
    }
}
