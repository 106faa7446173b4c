//! Queries that share a KV head, over some splits of the positions they see. The tiles of a split are read once for all of them; a
//! register tile of queries at a time takes a tile's scores, turns them into probabilities and adds the values.

use super::bytes::Bytes;
use super::floats::{Bf16s, Singles};
use super::held::{Held, Scored, Values};
use super::softmax::{finish, join, update};
use super::split::Split;
use super::sums::{Sums, VALUES, clear};
use super::view::{GROUPS, Tile, View, group_of};
use super::{Scratch, TILES_PER_SPLIT, sums_len};
use crate::aligned::LANES;
use crate::disjoint::Disjoint;
use crate::kv::Format;
use crate::simd::{Int8, Kernel, Simd};
use crate::tile::with_rows;
use std::mem;
use std::ops::Range;

const LANE_NUMBERS: [f32; LANES] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
];

/// The queries of a unit over some splits, and where the result goes.
pub(super) struct Attend<'a> {
    pub view: View<'a>,
    pub splits: Range<usize>,
    /// What the thread attends next: its keys and values are brought nearer at the end.
    pub next: Option<View<'a>>,
    pub scratch: &'a mut Scratch,
    pub into: Target<'a>,
}

/// Where results go.
pub(super) enum Target<'a> {
    /// The heads of the output: the splits were all that the unit sees.
    Heads(&'a Disjoint<'a, f32>),
    /// Sums to be joined with those of other splits.
    Sums(&'a mut Sums),
}

impl Kernel for Attend<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Int8>(self, simd: S) {
        match self.view.cache.format() {
            Format::F32 => self.all::<S, Singles>(simd),
            Format::Bf16 => self.all::<S, Bf16s>(simd),
            Format::Int8 => self.all::<S, Bytes>(simd),
        }
    }
}

/// Sums of one unit over all its splits, in their order.
pub(super) struct JoinSplits<'a> {
    pub view: View<'a>,
    /// Per split the sums of all queries; the first ones take the result.
    pub sums: &'a mut Sums,
    pub out: &'a Disjoint<'a, f32>,
}

impl Kernel for JoinSplits<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Int8>(self, simd: S) {
        let split_len = self.view.unit.count * sums_len(self.view.cache);
        let (first, others) = self.sums.split_at_mut(split_len);
        for split in others.chunks_exact(split_len) {
            match self.view.cache.format() {
                Format::F32 => self.view.join_all::<S, Singles>(simd, first, split),
                Format::Bf16 => self.view.join_all::<S, Bf16s>(simd, first, split),
                Format::Int8 => self.view.join_all::<S, Bytes>(simd, first, split),
            }
        }
        self.view.finish_all(simd, first, self.out);
    }
}

impl Attend<'_> {
    #[inline(always)]
    fn all<S: Int8, H: Held<S>>(mut self, simd: S) {
        let Scratch {
            queries,
            split,
            sums,
            words,
        } = &mut *self.scratch;
        let (view, cache) = (&self.view, self.view.cache);
        for (i, words) in queries[..view.unit.count].iter_mut().enumerate() {
            H::query(simd, view.query_head(i), words);
        }
        let next = self.next.map(|next| next.tile(visible_tiles(&next).start));
        let len = view.unit.count * sums_len(view.cache);
        let mut first = true;
        for index in self.splits {
            let mut at = Split {
                view,
                next: next.as_ref(),
                lines: cache.lines(),
                key_scales: cache.key_scales(),
                key_steps: cache.key_steps(),
                group_steps: cache.group_steps(),
                panel_lines: cache.shape().groups() * cache.group_steps(),
                queries,
                sums: &mut split[..len],
                len: sums_len(cache),
                words,
            };
            at.all::<S, H>(simd, index);
            if first {
                mem::swap(split, sums);
            } else {
                view.join_all::<S, H>(simd, &mut sums[..len], &split[..len]);
            }
            first = false;
        }
        match &mut self.into {
            Target::Heads(out) => view.finish_all(simd, &sums[..len], out),
            Target::Sums(place) => place.copy_from_slice(&sums[..len]),
        }
    }
}

impl View<'_> {
    #[inline(always)]
    fn join_all<S: Int8, H: Held<S>>(&self, simd: S, sums: &mut Sums, more: &Sums) {
        let len = sums_len(self.cache);
        for (sums, more) in sums.chunks_exact_mut(len).zip(more.chunks_exact(len)) {
            join::<S, H>(simd, sums, more);
        }
    }

    /// Writes the heads.
    #[inline(always)]
    fn finish_all<S: Simd>(&self, simd: S, sums: &Sums, out: &Disjoint<'_, f32>) {
        let head_dim = self.cache.shape().head_dim;
        for (i, sums) in sums.chunks_exact(sums_len(self.cache)).enumerate() {
            let (row, head) = self.row_and_head(i);
            let start = ((self.unit.first_row + row) * self.query.heads + head) * head_dim;
            // SAFETY: each row and head belongs to one unit (`attention` made sure that segments share no rows), and a unit is
            // finished once, by the task that computes it whole or joins its splits.
            finish(simd, sums, unsafe { out.part(start, head_dim) });
        }
    }
}

impl Split<'_, '_> {
    #[inline(always)]
    fn all<S: Int8, H: Held<S>>(&mut self, simd: S, index: usize) {
        let view = self.view;
        for sums in self.sums.chunks_exact_mut(self.len) {
            clear(sums);
        }
        let count = view.unit.count;
        let visible = visible_tiles(view);
        let start = visible.start.max(index * TILES_PER_SPLIT);
        let end = visible.end.min((index + 1) * TILES_PER_SPLIT);
        let mut tile = view.tile(start);
        for index in start..end {
            let next = match self.next {
                Some(next) if index + 1 == visible.end => *next,
                _ => view.tile((index + 1).min(visible.end - 1)),
            };
            let tiles = [&tile, &next];
            let mut first = 0;
            // Queries are shared out evenly, so that no register tile is left with a thin rest.
            for left in (1..=count.div_ceil(S::TILE.0)).rev() {
                let queries = (count - first).div_ceil(left);
                with_rows!(queries, R => self.tile::<S, H, R>(simd, tiles, first));
                first += queries;
            }
            tile = next;
        }
    }

    /// The R queries from `first` on meet a tile; the next one is brought nearer.
    #[inline(always)]
    fn tile<S: Int8, H: Held<S>, const R: usize>(
        &mut self,
        simd: S,
        tiles: [&Tile; 2],
        first: usize,
    ) {
        let tile = tiles[0];
        let [start, end] = [self.view.position(first), self.view.position(first + R - 1)];
        let seen = self.view.groups_up_to(tile, end);
        if seen == 0 {
            return;
        }
        let mut scores = [[simd.splat(0.0); GROUPS]; R];
        self.scores::<S, H, R>(simd, tiles, first, &mut scores);
        if !self.view.sees_all(tile, start, end) {
            self.mask::<S, R>(simd, tile, first, &mut scores);
        }
        let len = self.len;
        for (i, scores) in scores.iter().enumerate() {
            let sums = &mut self.sums[(first + i) * len..][..len];
            let probabilities = update::<S, H>(simd, sums, scores);
            let words = &mut self.words[i];
            H::probabilities(
                simd,
                self.lines,
                &tile.groups[..seen],
                &probabilities,
                words,
            );
        }
        let rows = Values {
            tiles,
            first,
            seen,
            last_positions: tile.groups[seen - 1].positions_up_to(end),
        };
        self.add_values::<S, H, R>(simd, rows);
    }

    /// `scores[i] = scale * log2(e) * q_i · kᵀ` for the positions of a tile.
    #[inline(always)]
    fn scores<S: Int8, H: Held<S>, const R: usize>(
        &self,
        simd: S,
        tiles: [&Tile; 2],
        first: usize,
        scores: &mut [[S::V; GROUPS]; R],
    ) {
        let wide = H::panels(R);
        let factor = self.view.query.scale * std::f32::consts::LOG2_E;
        for group in (0..GROUPS).step_by(wide) {
            let at = Scored {
                first,
                group,
                factor,
            };
            match wide {
                4 => H::score_groups::<R, 4>(simd, self, tiles, at, scores),
                2 => H::score_groups::<R, 2>(simd, self, tiles, at, scores),
                _ => H::score_groups::<R, 1>(simd, self, tiles, at, scores),
            }
        }
    }

    /// Puts minus infinity where a query does not see the position. Positions are exact in f32 as long as a sequence is shorter than
    /// 16 million tokens.
    #[inline(always)]
    fn mask<S: Simd, const R: usize>(
        &self,
        simd: S,
        tile: &Tile,
        first: usize,
        scores: &mut [[S::V; GROUPS]; R],
    ) {
        let (lane, infinity) = (simd.load(&LANE_NUMBERS), simd.splat(f32::INFINITY));
        let nothing = simd.splat(f32::NEG_INFINITY);
        let mut positions = [lane; GROUPS];
        for (positions, at) in positions.iter_mut().zip(&tile.groups) {
            let counted = simd.add(lane, simd.splat(at.first_position as f32));
            *positions = simd.if_less(lane, simd.splat(at.positions as f32), counted, infinity);
        }
        for (i, scores) in scores.iter_mut().enumerate() {
            let end = self.view.position(first + i) + 1;
            let last = simd.splat(end as f32);
            for (score, position) in scores.iter_mut().zip(&positions) {
                *score = simd.if_less(*position, last, *score, nothing);
            }
            if let Some(window) = self.view.query.window {
                let start = simd.splat(end.saturating_sub(window) as f32);
                for (score, position) in scores.iter_mut().zip(&positions) {
                    *score = simd.if_less(*position, start, nothing, *score);
                }
            }
        }
    }

    /// `values += probabilities · v` for the positions of a tile.
    #[inline(always)]
    fn add_values<S: Int8, H: Held<S>, const R: usize>(&mut self, simd: S, at: Values<'_>) {
        let panels = self.len - VALUES;
        let wide = H::panels(R);
        let mut panel = 0;
        while panel < panels {
            let wide = if panels - panel < wide { 1 } else { wide };
            match wide {
                4 => H::add_panels::<R, 4>(simd, self, at, panel),
                2 => H::add_panels::<R, 2>(simd, self, at, panel),
                _ => H::add_panels::<R, 1>(simd, self, at, panel),
            }
            panel += wide;
        }
    }
}

/// The splits that any query of the unit sees.
#[inline(always)]
pub(super) fn visible_splits(view: &View<'_>) -> Range<usize> {
    let tiles = visible_tiles(view);
    tiles.start / TILES_PER_SPLIT..tiles.end.div_ceil(TILES_PER_SPLIT)
}

/// The tiles that any query of the unit sees.
#[inline(always)]
fn visible_tiles(view: &View<'_>) -> Range<usize> {
    let last = view.position(view.unit.count - 1);
    let first = match view.query.window {
        Some(window) => (view.position(0) + 1).saturating_sub(window),
        None => 0,
    };
    let shape = view.cache.shape();
    group_of(shape, first) / GROUPS..group_of(shape, last) / GROUPS + 1
}
