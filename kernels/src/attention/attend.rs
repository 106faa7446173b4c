//! One task of attention: some queries that share a KV head, over all positions they see.

use super::softmax::{GROUPS, Scores, State, TILE};
use super::{MAX_HEAD_DIM, Query, Task};
use crate::KvCache;
use crate::aligned::{LANES, Line};
use crate::disjoint::Disjoint;
use crate::kv::Format;
use crate::simd::{Bf16, Kernel, Simd};
use crate::tile::{Bf16Element, Element, SingleElement, accumulate, panels_per_tile, with_rows};

const LANE_NUMBERS: [f32; LANES] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
];

/// The work, and where its result goes.
pub(super) struct Attend<'a> {
    pub cache: &'a KvCache,
    pub query: Query<'a>,
    /// The block table of the sequence.
    pub blocks: &'a [u32],
    pub task: Task,
    /// Query heads per KV head.
    pub group: usize,
    pub out: &'a Disjoint<'a, f32>,
}

/// Sixteen neighbouring positions of the sequence, fewer at the end of a block that is no multiple of sixteen.
#[derive(Clone, Copy, Default)]
struct Group {
    first_position: usize,
    positions: usize,
    /// Where they lie: block in the cache, group within the block. Of a group that no query sees: where the last seen one lies.
    block: usize,
    inner: usize,
}

impl Group {
    /// The lanes `start .. end` that a query at `position` sees; none when `start >= end`.
    #[inline(always)]
    fn seen_from(&self, position: usize, window: Option<usize>) -> [usize; 2] {
        let end = (position + 1).saturating_sub(self.first_position);
        let start = match window {
            Some(window) => {
                (position + 1).saturating_sub(window.saturating_add(self.first_position))
            }
            None => 0,
        };
        [start.min(LANES), end.min(self.positions)]
    }
}

/// Minus infinity outside the lanes `start .. end`.
#[inline(always)]
fn mask<S: Simd>(simd: S, scores: S::V, [start, end]: [usize; 2]) -> S::V {
    if start == 0 && end == LANES {
        return scores;
    }
    let lane = simd.load(&LANE_NUMBERS);
    let nothing = simd.splat(f32::NEG_INFINITY);
    let scores = simd.if_less(lane, simd.splat(end as f32), scores, nothing);
    simd.if_less(lane, simd.splat(start as f32), nothing, scores)
}

/// The groups whose scores are turned into probabilities together.
struct Tile {
    groups: [Group; GROUPS],
    /// How many of them hold a position up to that of the last query.
    seen: usize,
}

/// A prepared query: a step takes two words at most, and there are no more steps than elements.
type QueryWords = [u32; MAX_HEAD_DIM + LANES];

impl Kernel for Attend<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Bf16>(self, simd: S) {
        match self.cache.format() {
            Format::F32 => with_rows!(self.task.count, R => self.all::<S, SingleElement, R>(simd)),
            Format::Bf16 => with_rows!(self.task.count, R => self.all::<S, Bf16Element, R>(simd)),
        }
    }
}

impl Attend<'_> {
    #[inline(always)]
    fn all<S: Bf16, E: Element<S>, const R: usize>(&self, simd: S) {
        let mut queries = [[0; MAX_HEAD_DIM + LANES]; R];
        for (i, words) in queries.iter_mut().enumerate() {
            E::prepare(simd, self.query_head(i), words);
        }
        let mut state = State::new(simd);
        let (first, end) = self.visible_tiles();
        for tile in first..end {
            let tile = self.tile(tile);
            let mut scores: [Scores; R] = [[0.0; TILE]; R];
            self.scores::<S, E, R>(simd, &tile, &queries, &mut scores);
            state.update(simd, &mut scores, self.cache.shape().panels());
            self.add_values::<S, E, R>(simd, &tile, &scores, &mut state);
        }
        self.finish::<S, R>(simd, &state);
    }

    /// Row (counted within the segment) and head of query `i` of this task.
    #[inline(always)]
    fn row_and_head(&self, i: usize) -> (usize, usize) {
        let query = self.task.first + i;
        (
            query / self.group,
            self.task.kv_head * self.group + query % self.group,
        )
    }

    #[inline(always)]
    fn position(&self, i: usize) -> usize {
        self.task.first_position + self.row_and_head(i).0
    }

    #[inline(always)]
    fn query_head(&self, i: usize) -> &[f32] {
        let (row, head) = self.row_and_head(i);
        let head_dim = self.cache.shape().head_dim;
        &self.query.x[(self.task.first_row + row) * self.query.cols + head * head_dim..][..head_dim]
    }

    #[inline(always)]
    fn tile(&self, tile: usize) -> Tile {
        let shape = self.cache.shape();
        let last = self.group_of(self.position(self.task.count - 1));
        let seen = GROUPS.min(last + 1 - tile * GROUPS);
        let mut groups = [Group::default(); GROUPS];
        for (g, at) in groups.iter_mut().enumerate() {
            let group = tile * GROUPS + g;
            let (block, inner) = (group / shape.groups(), group % shape.groups());
            at.first_position = block * shape.block_size + inner * LANES;
            at.positions = LANES.min(shape.block_size - inner * LANES);
            let stored = group.min(last);
            at.block = self.blocks[stored / shape.groups()] as usize;
            at.inner = stored % shape.groups();
        }
        Tile { groups, seen }
    }

    /// The group that holds `position`.
    #[inline(always)]
    fn group_of(&self, position: usize) -> usize {
        let shape = self.cache.shape();
        position / shape.block_size * shape.groups() + position % shape.block_size / LANES
    }

    /// The tiles of groups that any query of the task sees: first, and one past the last.
    #[inline(always)]
    fn visible_tiles(&self) -> (usize, usize) {
        let last = self.position(self.task.count - 1);
        let first = match self.query.window {
            Some(window) => (self.position(0) + 1).saturating_sub(window),
            None => 0,
        };
        (
            self.group_of(first) / GROUPS,
            self.group_of(last) / GROUPS + 1,
        )
    }

    /// `scores[i] = scale * q_i · kᵀ` for the positions of a tile, minus infinity where query i does not see the position.
    #[inline(always)]
    fn scores<S: Bf16, E: Element<S>, const R: usize>(
        &self,
        simd: S,
        tile: &Tile,
        queries: &[QueryWords; R],
        scores: &mut [Scores; R],
    ) {
        let wide = panels_per_tile::<S>(R);
        for group in (0..GROUPS).step_by(wide) {
            match wide {
                4 => self.score_groups::<S, E, R, 4>(simd, tile, group, queries, scores),
                2 => self.score_groups::<S, E, R, 2>(simd, tile, group, queries, scores),
                _ => self.score_groups::<S, E, R, 1>(simd, tile, group, queries, scores),
            }
        }
    }

    #[inline(always)]
    fn score_groups<S: Bf16, E: Element<S>, const R: usize, const P: usize>(
        &self,
        simd: S,
        tile: &Tile,
        group: usize,
        queries: &[QueryWords; R],
        scores: &mut [Scores; R],
    ) {
        let steps = self.cache.key_steps();
        let mut keys: [&[Line]; P] = [&[]; P];
        for (lines, at) in keys.iter_mut().zip(&tile.groups[group..]) {
            let (keys, _) = self
                .cache
                .head(self.query.layer, at.block, self.task.kv_head);
            *lines = &keys[at.inner * steps..][..steps];
        }
        let mut x: [&[u32]; R] = [&[]; R];
        for (x, words) in x.iter_mut().zip(queries) {
            *x = words;
        }
        let mut sums = [[simd.splat(0.0); P]; R];
        accumulate::<S, E, R, P>(simd, &x, &keys, &mut sums);
        for (i, (sums, scores)) in sums.iter().zip(scores).enumerate() {
            let position = self.position(i);
            let lanes = &mut scores.as_chunks_mut().0[group..];
            for ((sum, at), lanes) in sums.iter().zip(&tile.groups[group..]).zip(lanes) {
                let scaled = simd.mul(*sum, simd.splat(self.query.scale));
                let seen = at.seen_from(position, self.query.window);
                simd.store(mask(simd, scaled, seen), lanes);
            }
        }
    }

    /// `values += probabilities · v` for the positions of a tile.
    #[inline(always)]
    fn add_values<S: Bf16, E: Element<S>, const R: usize>(
        &self,
        simd: S,
        tile: &Tile,
        scores: &[Scores; R],
        state: &mut State<S::V, R>,
    ) {
        let mut words = [[0; 2 * TILE]; R];
        for (words, scores) in words.iter_mut().zip(scores) {
            E::prepare(simd, scores, words);
        }
        let panels = self.cache.shape().panels();
        let wide = panels_per_tile::<S>(R);
        let mut panel = 0;
        while panel < panels {
            panel += match wide {
                _ if panels - panel < wide => {
                    self.add_panels::<S, E, R, 1>(simd, tile, &words, state, panel)
                }
                4 => self.add_panels::<S, E, R, 4>(simd, tile, &words, state, panel),
                2 => self.add_panels::<S, E, R, 2>(simd, tile, &words, state, panel),
                _ => self.add_panels::<S, E, R, 1>(simd, tile, &words, state, panel),
            };
        }
    }

    /// The panels `panel .. panel + P`; returns P.
    #[inline(always)]
    fn add_panels<S: Bf16, E: Element<S>, const R: usize, const P: usize>(
        &self,
        simd: S,
        tile: &Tile,
        words: &[[u32; 2 * TILE]; R],
        state: &mut State<S::V, R>,
        panel: usize,
    ) -> usize {
        let steps = self.cache.group_steps();
        let panel_lines = self.cache.shape().groups() * steps;
        let last = self.position(self.task.count - 1);
        let mut sums = [[simd.splat(0.0); P]; R];
        for (sums, values) in sums.iter_mut().zip(&state.values) {
            sums.copy_from_slice(&values[panel..panel + P]);
        }
        for (g, at) in tile.groups[..tile.seen].iter().enumerate() {
            // Positions that no query sees may hold what an earlier owner of the block left.
            let steps_seen = at.seen_from(last, None)[1].div_ceil(E::INPUTS);
            let (_, values) = self
                .cache
                .head(self.query.layer, at.block, self.task.kv_head);
            let mut lines: [&[Line]; P] = [&[]; P];
            for (p, lines) in lines.iter_mut().enumerate() {
                *lines = &values[(panel + p) * panel_lines + at.inner * steps..][..steps_seen];
            }
            let mut x: [&[u32]; R] = [&[]; R];
            for (x, words) in x.iter_mut().zip(words) {
                *x = &words[g * steps * E::WORDS..];
            }
            accumulate::<S, E, R, P>(simd, &x, &lines, &mut sums);
        }
        for (values, sums) in state.values.iter_mut().zip(sums) {
            values[panel..panel + P].copy_from_slice(&sums);
        }
        P
    }

    /// Divides by the sum of the probabilities and writes the heads.
    #[inline(always)]
    fn finish<S: Bf16, const R: usize>(&self, simd: S, state: &State<S::V, R>) {
        let head_dim = self.cache.shape().head_dim;
        for i in 0..R {
            let (row, head) = self.row_and_head(i);
            let start = ((self.task.first_row + row) * self.query.heads + head) * head_dim;
            // SAFETY: each row and head belongs to one task: `attention` made sure that segments share no rows, and a task
            // carries its rows with it.
            let out = unsafe { self.out.part(start, head_dim) };
            let factor = simd.splat(1.0 / simd.sum(state.total[i]));
            for (out, values) in out.chunks_mut(LANES).zip(&state.values[i]) {
                simd.store_first(simd.mul(*values, factor), out);
            }
        }
    }
}
