//! One task of attention: some queries that share a KV head, over all positions they see.

use super::{MAX_HEAD_DIM, Query, Task};
use crate::aligned::{LANES, Line};
use crate::disjoint::Disjoint;
use crate::exp::exp;
use crate::isa::Kernel;
use crate::simd::{Bf16, Simd};
use crate::tile::{Bf16Element, Element, SingleElement, accumulate, panels_per_tile, with_rows};
use crate::{Format, KvCache};

/// Groups of sixteen positions per tile of positions.
const GROUPS: usize = 4;
/// Positions per tile.
const TILE: usize = GROUPS * LANES;
/// Panels of sixteen head elements at most.
const MAX_PANELS: usize = MAX_HEAD_DIM / LANES;
const LANE_NUMBERS: [f32; LANES] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
];

/// See the module.
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

/// Running softmax of R queries.
struct State<V, const R: usize> {
    highest: [f32; R],
    /// Sum of the probabilities so far, lane by lane.
    total: [V; R],
    /// Weighted sum of the values so far, in panels.
    values: [[V; MAX_PANELS]; R],
}

/// A prepared query: a step takes two words at most, and there are no more steps than elements.
type QueryWords = [u32; MAX_HEAD_DIM + LANES];
/// Scores, then probabilities, of one query and tile.
type Scores = [f32; TILE];

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
        let mut state = State {
            highest: [f32::NEG_INFINITY; R],
            total: [simd.splat(0.0); R],
            values: [[simd.splat(0.0); MAX_PANELS]; R],
        };
        let (first, end) = self.visible_tiles();
        for tile in first..end {
            let mut scores = [[0.0; TILE]; R];
            self.scores::<S, E, R>(simd, tile, &queries, &mut scores);
            self.softmax::<S, R>(simd, tile, &mut scores, &mut state);
            self.add_values::<S, E, R>(simd, tile, &scores, &mut state);
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

    /// Where group `group` of the sequence stands: block, group within the block, first position, positions in it.
    #[inline(always)]
    fn group_at(&self, group: usize) -> (usize, usize, usize, usize) {
        let shape = self.cache.shape();
        let (block, inner) = (group / shape.groups(), group % shape.groups());
        let first = block * shape.block_size + inner * LANES;
        (
            block,
            inner,
            first,
            LANES.min(shape.block_size - inner * LANES),
        )
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

    /// Groups of `tile` that hold positions up to that of the last query.
    #[inline(always)]
    fn groups_in(&self, tile: usize) -> usize {
        let last = self.group_of(self.position(self.task.count - 1));
        GROUPS.min(last + 1 - tile * GROUPS)
    }

    /// `scores[i] = q_i · kᵀ` for the positions of a tile; lanes of groups that nobody sees hold anything.
    #[inline(always)]
    fn scores<S: Bf16, E: Element<S>, const R: usize>(
        &self,
        simd: S,
        tile: usize,
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
        tile: usize,
        group: usize,
        queries: &[QueryWords; R],
        scores: &mut [Scores; R],
    ) {
        let steps = self.cache.key_steps();
        let last = self.groups_in(tile) - 1;
        let mut keys: [&[Line]; P] = [&[]; P];
        for (p, lines) in keys.iter_mut().enumerate() {
            let (block, inner, ..) = self.group_at(tile * GROUPS + last.min(group + p));
            let block = self.blocks[block] as usize;
            let (keys, _) = self.cache.head(self.query.layer, block, self.task.kv_head);
            *lines = &keys[inner * steps..][..steps];
        }
        let mut x: [&[u32]; R] = [&[]; R];
        for (x, words) in x.iter_mut().zip(queries) {
            *x = words;
        }
        let mut sums = [[simd.splat(0.0); P]; R];
        accumulate::<S, E, R, P>(simd, &x, &keys, &mut sums);
        for (sums, scores) in sums.iter().zip(scores) {
            for (sum, scores) in sums.iter().zip(&mut scores.as_chunks_mut().0[group..]) {
                simd.store(*sum, scores);
            }
        }
    }

    /// Turns scores into probabilities relative to the highest score so far, and rescales what was summed before.
    #[inline(always)]
    fn softmax<S: Bf16, const R: usize>(
        &self,
        simd: S,
        tile: usize,
        scores: &mut [Scores; R],
        state: &mut State<S::V, R>,
    ) {
        for (i, scores) in scores.iter_mut().enumerate() {
            let lanes: &mut [[f32; LANES]] = scores.as_chunks_mut().0;
            let mut masked = [simd.splat(0.0); GROUPS];
            for (g, masked) in masked.iter_mut().enumerate() {
                let scaled = simd.mul(simd.load(&lanes[g]), simd.splat(self.query.scale));
                *masked = self.mask(simd, i, tile * GROUPS + g, scaled);
            }
            let top = simd.max(
                simd.max(masked[0], masked[1]),
                simd.max(masked[2], masked[3]),
            );
            let before = state.highest[i];
            let top = simd.highest(top);
            let highest = if top > before { top } else { before };
            // A row that has seen nothing yet keeps zero as its reference: minus infinity has no difference to itself.
            let reference = if highest == f32::NEG_INFINITY {
                0.0
            } else {
                highest
            };
            state.highest[i] = highest;
            if highest != before {
                let factor = exp(simd, simd.splat(before - reference));
                state.total[i] = simd.mul(state.total[i], factor);
                for values in &mut state.values[i][..self.cache.shape().panels()] {
                    *values = simd.mul(*values, factor);
                }
            }
            for (lanes, score) in lanes.iter_mut().zip(masked) {
                let p = exp(simd, simd.sub(score, simd.splat(reference)));
                state.total[i] = simd.add(state.total[i], p);
                simd.store(p, lanes);
            }
        }
    }

    /// Minus infinity where query `i` does not see a position of `group`.
    #[inline(always)]
    fn mask<S: Simd>(&self, simd: S, i: usize, group: usize, scores: S::V) -> S::V {
        let (_, _, first, count) = self.group_at(group);
        let position = self.position(i);
        let end = (position + 1).saturating_sub(first).min(count);
        let start = match self.query.window {
            Some(window) => (position + 1).saturating_sub(window).saturating_sub(first),
            None => 0,
        };
        if start == 0 && end == LANES {
            return scores;
        }
        let lane = simd.load(&LANE_NUMBERS);
        let nothing = simd.splat(f32::NEG_INFINITY);
        let scores = simd.if_less(lane, simd.splat(end.min(LANES) as f32), scores, nothing);
        simd.if_less(lane, simd.splat(start.min(LANES) as f32), nothing, scores)
    }

    /// `values += probabilities · v` for the positions of a tile.
    #[inline(always)]
    fn add_values<S: Bf16, E: Element<S>, const R: usize>(
        &self,
        simd: S,
        tile: usize,
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
        tile: usize,
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
        for g in 0..self.groups_in(tile) {
            let (block, inner, first, count) = self.group_at(tile * GROUPS + g);
            // Positions that no query sees may hold what an earlier owner of the block left.
            let steps_seen = count.min(last + 1 - first).div_ceil(E::INPUTS);
            let block = self.blocks[block] as usize;
            let (_, values) = self.cache.head(self.query.layer, block, self.task.kv_head);
            let mut lines: [&[Line]; P] = [&[]; P];
            for (p, lines) in lines.iter_mut().enumerate() {
                *lines = &values[(panel + p) * panel_lines + inner * steps..][..steps_seen];
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
