//! Attention: whole prompts, bound by arithmetic, and one row of each of several long sequences, bound by reading the cache.

use super::clock::median;
use super::roofline::{Reading, Work};
use super::table::Case;
use super::{Show, out_of_memory};
use crate::start_error::StartError;
use ropeteam_kernels::attention::{Query, Segment, Tasks};
use ropeteam_kernels::kv::{self, Columns, KvCache};
use ropeteam_kernels::limits::Arithmetic;
use ropeteam_kernels::{Machine, attention};

/// Fourteen query heads over two KV heads of 64, as in a model of half a billion parameters; more layers than caches hold.
const SHAPE: kv::Shape = kv::Shape {
    layers: 16,
    blocks: 1024,
    block_size: 16,
    kv_heads: 2,
    head_dim: 64,
};
const HEADS: usize = 14;
/// Width of a row of queries, keys and values, and of a row of results.
const COLS: usize = (HEADS + 2 * SHAPE.kv_heads) * SHAPE.head_dim;
const OUT_COLS: usize = HEADS * SHAPE.head_dim;

/// Lengths of the prompts.
const PROMPTS: [usize; 2] = [256, 1024];
/// How many sequences decode together, and how long each is.
const SEQUENCES: [usize; 2] = [1, 8];
const CONTEXT: usize = 2048;

/// Measures both, with keys and values in each of two formats.
///
/// # Errors
/// When there is no memory.
pub fn measure(
    machine: &mut Machine,
    reading: &Reading,
    show: &mut Show<'_>,
) -> Result<(), StartError> {
    for format in [kv::Format::Bf16, kv::Format::Int8] {
        measure_format(machine, format, reading, show)?;
    }
    Ok(())
}

fn measure_format(
    machine: &mut Machine,
    format: kv::Format,
    reading: &Reading,
    show: &mut Show<'_>,
) -> Result<(), StartError> {
    let mut cache = KvCache::new(SHAPE, format).map_err(out_of_memory)?;
    fill(machine, &mut cache);
    let bytes_per_s = reading.rate(machine);
    let blocks: Vec<u32> = (0..SHAPE.blocks as u32).collect();
    for rows in PROMPTS {
        let segment = Segment {
            first_row: 0,
            rows,
            first_position: 0,
            blocks: &blocks,
        };
        show(case("prefill", bytes_per_s, machine, &cache, &[segment]));
    }
    for count in SEQUENCES {
        let each = CONTEXT / SHAPE.block_size;
        let segment = |(row, blocks)| Segment {
            first_row: row,
            rows: 1,
            first_position: CONTEXT - 1,
            blocks,
        };
        let sequences = blocks.chunks_exact(each).take(count).enumerate();
        let segments: Vec<_> = sequences.map(segment).collect();
        show(case("decode", bytes_per_s, machine, &cache, &segments));
    }
    Ok(())
}

fn fill(machine: &mut Machine, cache: &mut KvCache) {
    let positions = SHAPE.blocks * SHAPE.block_size;
    let slots: Vec<u32> = (0..positions as u32).collect();
    let x: Vec<f32> = (0..positions * COLS)
        .map(|i| (i % 97) as f32 / 97.0 - 0.5)
        .collect();
    for layer in 0..SHAPE.layers {
        let columns = Columns {
            x: &x,
            cols: COLS,
            first_col: OUT_COLS,
        };
        cache.store(machine, layer, &slots, columns);
    }
}

/// The segments attended in one layer after the other.
fn case(
    kind: &str,
    bytes_per_s: f64,
    machine: &mut Machine,
    cache: &KvCache,
    segments: &[Segment<'_>],
) -> Case {
    let rows = segments.iter().map(|segment| segment.rows).sum();
    let (x, mut out) = (vec![0.1; rows * COLS], vec![0.0; rows * OUT_COLS]);
    let mut tasks = Tasks::default();
    let segment = |index: usize| segments[index];
    let all: (usize, &(dyn Fn(usize) -> _ + Sync)) = (segments.len(), &segment);
    let all_layers = median(|| {
        for layer in 0..SHAPE.layers {
            let query = Query {
                x: &x,
                cols: COLS,
                heads: HEADS,
                scale: 0.125,
                window: None,
                layer,
            };
            attention(machine, &mut tasks, cache, query, all, &mut out);
        }
    });
    let first = segments.first().map_or(0, |segment| segment.first_position);
    let numbers = match cache.format() {
        kv::Format::F32 => "f32",
        kv::Format::Bf16 => "bf16",
        kv::Format::Int8 => "int8",
    };
    Case {
        kernel: format!("attention, {kind}, {numbers}"),
        shape: format!("{HEADS} / {} heads, from {first}", SHAPE.kv_heads),
        rows,
        seconds: all_layers / SHAPE.layers as f64,
        work: work(segments, cache.format()),
        bytes_per_s,
    }
}

fn work(segments: &[Segment<'_>], format: kv::Format) -> Work {
    let (mut positions, mut pairs) = (0, 0);
    for segment in segments {
        let first = segment.first_position;
        positions += first + segment.rows;
        // Each row sees those before it and itself.
        pairs += segment.rows * first + segment.rows * (segment.rows + 1) / 2;
    }
    // Per pair two products of a head's width, with the key and of the value.
    let operations = (4 * OUT_COLS * pairs) as f64;
    let (arithmetic, passes) = match format {
        kv::Format::F32 => (Arithmetic::F32, 1.0),
        kv::Format::Bf16 => (Arithmetic::Bf16, 1.0),
        // The high and the low bits of queries and probabilities.
        kv::Format::Int8 => (Arithmetic::Int8, 2.0),
    };
    let per_position = SHAPE.block_bytes(format) as f64 / (SHAPE.layers * SHAPE.block_size) as f64;
    Work {
        bytes: per_position * positions as f64,
        operations: passes * operations,
        arithmetic,
    }
}
