//! Causal attention over the paged cache, with online softmax (Milakov and Gimelshein; Dao et al., FlashAttention).
//!
//! Positions are visited in fixed tiles of 64, counted from the start of the sequence, and every row sees its tiles in the
//! same order. What lies beyond a row's own position adds exact zeros, so a decoded row and the same row in the middle of a
//! prompt have the same bits.

mod attend;
mod softmax;

use crate::disjoint::Disjoint;
use crate::tile::TileRows;
use crate::{KvCache, Machine};
use attend::Attend;

/// Widest head that the kernels take.
pub const MAX_HEAD_DIM: usize = 512;

/// Multiplications of queries and keys below which waking another thread costs more than it brings.
const PRODUCTS_WORTH_THREADS: usize = 512 * 1024;

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

impl Tasks {
    /// Cuts `queries` queries of a segment and KV head evenly into tasks of at most `most`.
    fn add(
        &mut self,
        index: usize,
        segment: &Segment<'_>,
        kv_head: usize,
        queries: usize,
        most: usize,
    ) {
        let pieces = queries.div_ceil(most);
        let mut first = 0;
        for piece in 0..pieces {
            let count = (queries - first).div_ceil(pieces - piece);
            self.0.push(Task {
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
    let rows_per_task = isa.dispatch(TileRows);
    let (mut pairs, mut next_row) = (0, 0);
    tasks.0.clear();
    for index in 0..segments.0 {
        let segment = (segments.1)(index);
        assert!(segment.first_row >= next_row, "segments share rows");
        next_row = segment.first_row + segment.rows;
        pairs += segment.rows * query.heads * (segment.first_position + segment.rows);
        for kv_head in 0..shape.kv_heads {
            tasks.add(
                index,
                &segment,
                kv_head,
                segment.rows * group,
                rows_per_task,
            );
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
    if pairs * shape.head_dim < PRODUCTS_WORTH_THREADS {
        (0..tasks.len()).for_each(run);
    } else {
        machine.pool.run(tasks.len(), &run);
    }
}
