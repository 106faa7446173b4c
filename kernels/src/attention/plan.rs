//! How an attention is cut: units of queries that share a KV head, and where those are too few for the threads, splits of the
//! positions. How it is cut changes no bit of the result.

use super::Segment;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Queries of a unit at most: their sums and a tile of keys and values stay in the first-level cache.
pub(super) const MOST_QUERIES: usize = 24;

/// Units per thread below which they are cut further, so that threads end at about the same time.
const UNITS_PER_THREAD: usize = 8;

/// The pieces of one call.
#[derive(Default)]
pub(super) struct Plan {
    pub units: Vec<Unit>,
    /// What tasks do, the longest first.
    pub pieces: Vec<Piece>,
    /// Per unit: splits that are still to be computed.
    pub pending: Vec<AtomicUsize>,
    /// Sums of queries that the splits need.
    pub parts: usize,
    /// Positions that rows see, all rows together.
    pub products: usize,
    next_row: usize,
}

/// Some queries (pairs of row and head) of one segment that share one KV head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// Index of the segment, and where it stands.
    pub segment: usize,
    pub first_row: usize,
    pub first_position: usize,
    pub kv_head: usize,
    /// First query, counted within segment and KV head, and how many.
    pub first: usize,
    pub count: usize,
    /// Where the sums of its splits start, counted in queries.
    pub first_part: usize,
}

/// A task: a unit, whole or one split of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub unit: usize,
    pub split: Option<usize>,
}

/// How queries come.
#[derive(Clone, Copy)]
pub(super) struct QueryShape {
    pub kv_heads: usize,
    /// Query heads per KV head.
    pub group: usize,
    /// Queries that the register tile takes at once.
    pub tile_rows: usize,
}

impl Plan {
    pub(super) fn clear(&mut self) {
        self.units.clear();
        self.pieces.clear();
        (self.parts, self.products, self.next_row) = (0, 0, 0);
    }

    /// Adds the units of a segment.
    ///
    /// # Panics
    /// When the segment shares rows with the one before.
    pub(super) fn add(&mut self, index: usize, segment: &Segment<'_>, shape: QueryShape) {
        assert!(segment.first_row >= self.next_row, "segments share rows");
        self.next_row = segment.first_row + segment.rows;
        self.products += segment.rows * (segment.first_position + segment.rows);
        let queries = segment.rows * shape.group;
        // Whole register tiles, except at the end.
        let most = MOST_QUERIES / shape.tile_rows * shape.tile_rows;
        for kv_head in 0..shape.kv_heads {
            for first in (0..queries).step_by(most) {
                self.units.push(Unit {
                    segment: index,
                    first_row: segment.first_row,
                    first_position: segment.first_position,
                    kv_head,
                    first,
                    count: most.min(queries - first),
                    first_part: 0,
                });
            }
        }
    }

    /// Makes pieces for `threads` threads; `splits` tells which splits a unit sees.
    pub(super) fn cut(&mut self, threads: usize, splits: impl Fn(&Unit) -> Range<usize>) {
        let few = threads > 1 && self.units.len() < threads * UNITS_PER_THREAD;
        if self.pending.len() < self.units.len() {
            self.pending
                .resize_with(self.units.len(), AtomicUsize::default);
        }
        // The last queries of a prompt see most; taking them first leaves small pieces to even out the end.
        for (index, unit) in self.units.iter_mut().enumerate().rev() {
            let splits = splits(unit);
            if few && splits.len() > 1 {
                unit.first_part = self.parts;
                self.parts += unit.count * splits.len();
                self.pending[index].store(splits.len(), Ordering::Relaxed);
                let pieces = splits.map(|split| Piece {
                    unit: index,
                    split: Some(split),
                });
                self.pieces.extend(pieces);
            } else {
                self.pieces.push(Piece {
                    unit: index,
                    split: None,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: QueryShape = QueryShape {
        kv_heads: 2,
        group: 3,
        tile_rows: 6,
    };

    /// The plan of segments (rows, first position) for so many threads, where a split is ten positions.
    fn plan(segments: &[[usize; 2]], threads: usize) -> Plan {
        let mut plan = Plan::default();
        plan.clear();
        let mut first_row = 0;
        for (index, [rows, first_position]) in segments.iter().copied().enumerate() {
            let segment = Segment {
                first_row,
                rows,
                first_position,
                blocks: &[],
            };
            plan.add(index, &segment, SHAPE);
            first_row += rows;
        }
        plan.cut(threads, |unit| {
            let last = (unit.first + unit.count - 1) / SHAPE.group;
            0..(unit.first_position + last) / 10 + 1
        });
        plan
    }

    #[test]
    fn every_query_belongs_to_one_unit_and_every_unit_is_computed_once() {
        for threads in [1, 2, 64] {
            let plan = plan(&[[1, 0], [40, 25], [1, 99]], threads);
            let queries: usize = plan.units.iter().map(|unit| unit.count).sum();
            assert_eq!(queries, 42 * SHAPE.group * SHAPE.kv_heads);
            assert!(plan.units.iter().all(|unit| unit.count <= MOST_QUERIES));
            for (index, unit) in plan.units.iter().enumerate() {
                let pieces: Vec<_> = plan.pieces.iter().filter(|p| p.unit == index).collect();
                let whole = pieces.len() == 1 && pieces[0].split.is_none();
                let splits = pieces.iter().filter(|p| p.split.is_some()).count();
                let pending = plan.pending[index].load(Ordering::Relaxed);
                assert!(
                    whole || splits == pieces.len() && pending == splits,
                    "{unit:?}"
                );
            }
        }
    }

    #[test]
    fn positions_are_split_only_where_units_are_few() {
        assert_eq!(plan(&[[1, 99]], 1).pieces.len(), 2);
        let split = plan(&[[1, 99]], 2);
        assert_eq!((split.pieces.len(), split.parts), (20, 60));
        let many = vec![[1, 99]; 32];
        assert_eq!(plan(&many, 2).pieces.len(), 64);
    }
}
