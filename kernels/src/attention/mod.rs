//! Causal attention over the paged cache, with online softmax (Milakov and Gimelshein; Dao et al., FlashAttention).
//!
//! Positions are visited in fixed tiles of 64 and summed up in fixed splits of 512, both counted from the start of the sequence,
//! and the splits are joined in their order. What lies beyond a row's own position adds exact zeros. So a decoded row and the same
//! row in the middle of a prompt have the same bits, and so have one thread that takes all splits and many that take one each.

mod attend;
mod bytes;
mod floats;
mod held;
mod plan;
mod products;
mod softmax;
mod split;
mod sums;
mod view;

use crate::disjoint::Disjoint;
use crate::tile::TileRows;
use crate::{Isa, KvCache, Machine};
use attend::{Attend, JoinSplits, Target, visible_splits};
use plan::{MOST_QUERIES, Piece, Plan, QueryShape, Unit};
use split::{PROBABILITY_WORDS, QUERY_WORDS};
use std::ops::Range;
use std::sync::atomic::Ordering;
use sums::{Lanes, VALUES};
use view::View;

/// Widest head that the kernels take.
pub const MAX_HEAD_DIM: usize = 512;

/// Tiles that are summed up together.
const TILES_PER_SPLIT: usize = 8;

/// Multiplications of queries and keys below which another thread costs more than it brings.
const PRODUCTS_WORTH_THREADS: usize = 64 * 1024;

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

/// How a call is cut into tasks, and the memory they work in; kept from call to call.
#[derive(Default)]
pub struct Tasks {
    plan: Plan,
    /// One per thread.
    scratch: Vec<Scratch>,
    /// Sums of single splits, to be joined.
    parts: Vec<Lanes>,
}

/// What one thread works in.
#[derive(Clone, Default)]
struct Scratch {
    /// Prepared queries of a unit.
    queries: Vec<[u32; QUERY_WORDS]>,
    /// Sums of a unit over one split, query by query.
    split: Vec<Lanes>,
    /// Sums of a unit over all splits so far.
    sums: Vec<Lanes>,
    /// Prepared probabilities of a register tile.
    words: Vec<[u32; PROBABILITY_WORDS]>,
}

/// Vectors that the sums of one query take.
#[inline(always)]
fn sums_len(cache: &KvCache) -> usize {
    VALUES + cache.shape().panels()
}

impl Tasks {
    /// Grows the memory to what the plan needs.
    fn reserve(&mut self, machine: &Machine, cache: &KvCache) {
        let sums = MOST_QUERIES * sums_len(cache);
        self.scratch.resize(machine.threads(), Scratch::default());
        for scratch in &mut self.scratch {
            scratch.queries.resize(MOST_QUERIES, [0; QUERY_WORDS]);
            scratch.split.resize(sums, Lanes::ZERO);
            scratch.sums.resize(sums, Lanes::ZERO);
            scratch.words.resize(MOST_QUERIES, [0; PROBABILITY_WORDS]);
        }
        let parts = self.plan.parts * sums_len(cache);
        if self.parts.len() < parts {
            self.parts.resize(parts, Lanes::ZERO);
        }
    }
}

/// `out[row] = softmax(scale * q · kᵀ) · v` per head; out is `[rows, heads * head_dim]`. `segment(i)` for `i` below
/// `segments` gives the sequences. With `Format::Bf16` queries and probabilities are rounded to bf16 before they are multiplied, with
/// `Format::Int8` to fifteen bits.
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
    let isa = machine.isa;
    let group = query.heads / shape.kv_heads;
    let view = |unit: Unit| View {
        cache,
        query,
        blocks: (segments.1)(unit.segment).blocks,
        unit,
        group,
    };
    let queries = QueryShape {
        kv_heads: shape.kv_heads,
        group,
        tile_rows: isa.dispatch(TileRows),
    };
    tasks.plan.clear();
    for index in 0..segments.0 {
        tasks.plan.add(index, &(segments.1)(index), queries);
    }
    let products = tasks.plan.products * query.heads * shape.head_dim;
    let alone = products < PRODUCTS_WORTH_THREADS;
    let threads = if alone { 1 } else { machine.threads() };
    tasks.plan.cut(threads, |unit| visible_splits(&view(*unit)));
    tasks.reserve(machine, cache);

    let Tasks {
        plan,
        scratch,
        parts,
    } = tasks;
    let call = Call {
        isa,
        plan,
        scratch: Disjoint::new(scratch),
        parts: Disjoint::new(parts),
        out: Disjoint::new(out),
    };
    let run = |thread: usize, pieces: Range<usize>| {
        let pieces = &plan.pieces[pieces];
        let view = |piece: &Piece| view(plan.units[piece.unit]);
        for (i, piece) in pieces.iter().enumerate() {
            let next = pieces.get(i + 1).map(view);
            call.run(thread, *piece, view(piece), next);
        }
    };
    if alone {
        run(0, 0..plan.pieces.len());
    } else {
        machine.pool.run_ranges(plan.pieces.len(), &run);
    }
}

/// What the tasks of a call share.
struct Call<'a> {
    isa: Isa,
    plan: &'a Plan,
    scratch: Disjoint<'a, Scratch>,
    parts: Disjoint<'a, Lanes>,
    out: Disjoint<'a, f32>,
}

impl Call<'_> {
    /// Does a piece of the unit in `view`; the thread goes on with `next`.
    fn run(&self, thread: usize, piece: Piece, view: View<'_>, next: Option<View<'_>>) {
        // SAFETY: a thread runs one task at a time.
        let scratch = unsafe { &mut self.scratch.part(thread, 1)[0] };
        let visible = visible_splits(&view);
        let Some(split) = piece.split else {
            self.isa.dispatch(Attend {
                view,
                splits: visible,
                next,
                scratch,
                into: Target::Heads(&self.out),
            });
            return;
        };
        let len = sums_len(view.cache);
        let (first, split_len) = (view.unit.first_part * len, view.unit.count * len);
        // SAFETY: every split of a unit has a part of its own.
        let sums = unsafe {
            let number = split - visible.start;
            self.parts.part(first + number * split_len, split_len)
        };
        self.isa.dispatch(Attend {
            view,
            splits: split..split + 1,
            next,
            scratch,
            into: Target::Sums(sums),
        });
        if self.plan.pending[piece.unit].fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: all splits of the unit have been computed, so nobody else holds a part of it.
            let sums = unsafe { self.parts.part(first, visible.len() * split_len) };
            self.isa.dispatch(JoinSplits {
                view,
                sums,
                out: &self.out,
            });
        }
    }
}
