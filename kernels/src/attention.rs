//! Causal attention over the paged cache, with online softmax (Milakov and Gimelshein; Dao et al., FlashAttention).
//!
//! Positions are visited in fixed tiles of 64, counted from the start of the sequence, and every row sees its tiles in the
//! same order. What lies beyond a row's own position adds exact zeros, so a decoded row and the same row in the middle of a
//! prompt have the same bits.

use crate::aligned::{LANES, Line};
use crate::disjoint::Disjoint;
use crate::exp::exp;
use crate::isa::Kernel;
use crate::simd::{Bf16, Simd};
use crate::tile::{Bf16Element, Element, SingleElement, accumulate, with_rows};
use crate::{Format, KvCache, Machine};

/// Widest head that the kernels take.
pub const MAX_HEAD_DIM: usize = 512;

/// Groups of sixteen positions per tile.
const GROUPS: usize = 4;
/// Positions per tile.
const TILE: usize = GROUPS * LANES;
/// Queries of one task at most.
const MAX_ROWS: usize = 6;
/// Panels of sixteen head elements at most.
const MAX_PANELS: usize = MAX_HEAD_DIM / LANES;
/// Pairs of query and visible position below which threads are not worth waking, per head element.
const WORK_WORTH_THREADS: usize = 32 * 1024;

const LANE_NUMBERS: [f32; LANES] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
];

/// The rows of one sequence in a step.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Its first row.
    pub first_row: usize,
    /// How many rows, at consecutive positions.
    pub rows: usize,
    /// Position of its first row.
    pub first_position: usize,
    /// Its block table, covering all positions up to that of its last row.
    pub blocks: &'a [u32],
}

/// What to attend.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    /// Rows whose leading columns are the query heads.
    pub x: &'a [f32],
    /// Width of a row.
    pub cols: usize,
    /// Query heads, a multiple of the cache's heads.
    pub heads: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// A row at position p sees `p - window + 1 ..= p`; `None`: all up to p.
    pub window: Option<usize>,
    /// The layer whose keys and values are attended.
    pub layer: usize,
}

/// The tasks of one call; a buffer that is kept from call to call.
#[derive(Default)]
pub struct Tasks(Vec<Task>);

/// Some queries (pairs of row and head) of one segment that share one KV head.
#[derive(Clone, Copy)]
struct Task {
    /// Index of the segment, and where it stands.
    segment: usize,
    first_row: usize,
    first_position: usize,
    kv_head: usize,
    /// First query, counted within segment and KV head, and how many.
    first: usize,
    count: usize,
}

/// `out[row] = softmax(scale * q · kᵀ) · v` per head; out is `[rows, heads * head_dim]`. `segment(i)` for `i` below
/// `segments` gives the sequences. With `Format::Bf16` queries and probabilities are rounded to bf16 before they are multiplied.
///
/// # Panics
/// When shapes do not fit together, a block lies outside the cache, or heads are wider than `MAX_HEAD_DIM`.
pub fn attention<'a>(
    machine: &mut Machine,
    tasks: &mut Tasks,
    cache: &KvCache,
    query: Query<'_>,
    segments: (usize, &(dyn Fn(usize) -> Segment<'a> + Sync)),
    out: &mut [f32],
) {
    let shape = cache.shape();
    assert!(shape.head_dim <= MAX_HEAD_DIM, "head of {}", shape.head_dim);
    assert!(
        query.heads.is_multiple_of(shape.kv_heads),
        "query heads per KV head"
    );
    let group = query.heads / shape.kv_heads;
    let isa = machine.isa;
    let (mut work, mut next_row) = (0, 0);
    tasks.0.clear();
    for index in 0..segments.0 {
        let segment = (segments.1)(index);
        assert!(segment.first_row >= next_row, "segments share rows");
        next_row = segment.first_row + segment.rows;
        let queries = segment.rows * group;
        work += queries * shape.kv_heads * (segment.first_position + segment.rows);
        let pieces = queries.div_ceil(MAX_ROWS);
        for kv_head in 0..shape.kv_heads {
            let mut first = 0;
            for piece in 0..pieces {
                let count = (queries - first).div_ceil(pieces - piece);
                tasks.0.push(Task {
                    segment: index,
                    first_row: segment.first_row,
                    first_position: segment.first_position,
                    kv_head,
                    first,
                    count,
                });
                first += count;
            }
        }
    }
    let tasks = &tasks.0;
    let out = Disjoint::new(out);
    let run = |index: usize| {
        // The last queries of a prompt see most; taking them first leaves small tasks to even out the end.
        let task = tasks[tasks.len() - 1 - index];
        let blocks = (segments.1)(task.segment).blocks;
        isa.dispatch(Attend {
            cache,
            query,
            blocks,
            task,
            group,
            out: &out,
        });
    };
    if work * shape.head_dim < WORK_WORTH_THREADS * LANES {
        (0..tasks.len()).for_each(run);
    } else {
        machine.pool.run(tasks.len(), &run);
    }
}

struct Attend<'a> {
    cache: &'a KvCache,
    query: Query<'a>,
    blocks: &'a [u32],
    task: Task,
    group: usize,
    out: &'a Disjoint<'a, f32>,
}

/// Running softmax of up to six queries.
struct State<V> {
    highest: [f32; MAX_ROWS],
    /// Sum of the probabilities so far, lane by lane.
    total: [V; MAX_ROWS],
    /// Weighted sum of the values so far, in panels.
    values: [[V; MAX_PANELS]; MAX_ROWS],
}

/// Prepared queries: a step takes two words at most, and there are no more steps than elements.
type Queries = [[u32; MAX_HEAD_DIM + LANES]; MAX_ROWS];
/// Scores, then probabilities, of one tile.
type Scores = [[f32; TILE]; MAX_ROWS];

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
        let mut queries: Queries = [[0; _]; MAX_ROWS];
        for (i, words) in queries.iter_mut().enumerate().take(R) {
            E::prepare(simd, self.query_head(i), words);
        }
        let mut state = State {
            highest: [f32::NEG_INFINITY; MAX_ROWS],
            total: [simd.splat(0.0); MAX_ROWS],
            values: [[simd.splat(0.0); MAX_PANELS]; MAX_ROWS],
        };
        let (first, end) = self.visible_tiles();
        for tile in first..end {
            let mut scores: Scores = [[0.0; TILE]; MAX_ROWS];
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
        queries: &Queries,
        scores: &mut Scores,
    ) {
        let steps = self.cache.key_steps();
        let groups = self.groups_in(tile);
        let mut keys: [&[Line]; GROUPS] = [&[]; GROUPS];
        for (g, lines) in keys.iter_mut().enumerate() {
            let (block, inner, ..) = self.group_at(tile * GROUPS + g.min(groups - 1));
            let block = self.blocks[block] as usize;
            let (keys, _) = self.cache.head(self.query.layer, block, self.task.kv_head);
            *lines = &keys[inner * steps..][..steps];
        }
        let mut x: [&[u32]; R] = [&[]; R];
        for (x, words) in x.iter_mut().zip(queries) {
            *x = words;
        }
        let mut sums = [[simd.splat(0.0); GROUPS]; R];
        accumulate::<S, E, R, GROUPS>(simd, &x, &keys, &mut sums);
        for (sums, scores) in sums.iter().zip(scores) {
            for (sum, scores) in sums.iter().zip(scores.as_chunks_mut().0) {
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
        scores: &mut Scores,
        state: &mut State<S::V>,
    ) {
        for i in 0..R {
            let lanes: &mut [[f32; LANES]] = scores[i].as_chunks_mut().0;
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
        scores: &Scores,
        state: &mut State<S::V>,
    ) {
        let mut words = [[0; 2 * TILE]; R];
        for (words, scores) in words.iter_mut().zip(scores) {
            E::prepare(simd, scores, words);
        }
        let panels = self.cache.shape().panels();
        let mut panel = 0;
        while panel < panels {
            if panel + 4 <= panels {
                self.add_panels::<S, E, R, 4>(simd, tile, &words, state, panel);
                panel += 4;
            } else {
                self.add_panels::<S, E, R, 1>(simd, tile, &words, state, panel);
                panel += 1;
            }
        }
    }

    #[inline(always)]
    fn add_panels<S: Bf16, E: Element<S>, const R: usize, const P: usize>(
        &self,
        simd: S,
        tile: usize,
        words: &[[u32; 2 * TILE]; R],
        state: &mut State<S::V>,
        panel: usize,
    ) {
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
    }

    /// Divides by the sum of the probabilities and writes the heads.
    #[inline(always)]
    fn finish<S: Bf16, const R: usize>(&self, simd: S, state: &State<S::V>) {
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
