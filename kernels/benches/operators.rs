//! Speed of the kernels, in GB/s of weights where one row is computed and in GFLOP/s where many are.
//!
//! `cargo bench -p ropeteam-kernels [-- FILTER]`: runs the benches whose name contains the filter. Figures are those of the best of
//! some rounds: on a shared machine the others say more about the neighbours.

use ropeteam_kernels::attention::{Query, Segment, Tasks};
use ropeteam_kernels::kv::{self, Columns};
use ropeteam_kernels::{
    Dtype, Format, Isa, KvCache, Machine, MatrixId, MatrixStore, PreparedRows, Source, attention,
    linear, rms_norm, silu_mul,
};
use std::time::{Duration, Instant};

/// Output and input widths of the layers of a 135M model with 576 channels, and of its head.
const LAYERS: [[usize; 2]; 5] = [
    [1536, 576],
    [3072, 576],
    [576, 1536],
    [960, 576],
    [49152, 576],
];

/// A name to filter by, and what prints the figures.
type Bench = (&'static str, fn(&mut Machine));

fn main() {
    let filter = std::env::args()
        .skip(1)
        .find(|arg| !arg.starts_with('-'))
        .unwrap_or_default();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let benches: [Bench; 6] = [
        ("one_row", one_row),
        ("many_rows", many_rows),
        ("decode_attention", decode_attention),
        ("prefill_attention", prefill_attention),
        ("small", small),
        ("pack", pack),
    ];
    for isa in Isa::all() {
        for (name, bench) in benches {
            if !format!("{name} {}", isa.name()).contains(&filter) {
                continue;
            }
            let mut counts = vec![1, threads];
            counts.dedup();
            for count in counts {
                println!("-- {name}, {}, {count} threads", isa.name());
                bench(&mut Machine::new(isa, count));
            }
        }
    }
}

/// The shortest of many rounds.
fn best(mut round: impl FnMut()) -> Duration {
    let end = Instant::now() + Duration::from_millis(300);
    let mut best = Duration::MAX;
    while Instant::now() < end {
        let start = Instant::now();
        round();
        best = best.min(start.elapsed());
    }
    best
}

/// Numbers between -1 and 1 without a pattern that matters.
fn numbers(count: usize) -> Vec<f32> {
    (0..count as u32)
        .map(|i| i.wrapping_mul(2_654_435_761) as i32 as f32 / i32::MAX as f32)
        .collect()
}

fn matrix(
    store: &mut MatrixStore,
    machine: &mut Machine,
    format: Format,
    shape: [usize; 2],
) -> MatrixId {
    let [outputs, inputs] = shape;
    let bytes: Vec<u8> = numbers(outputs * inputs)
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let part = Source {
        dtype: Dtype::F32,
        rows: outputs,
        bytes: &bytes,
        row_order: None,
        scales: None,
    };
    store
        .pack(machine, format, inputs, &[part], &[])
        .expect("memory for a matrix")
}

/// Reads of enough different copies that none of them stays in a cache.
fn one_row(machine: &mut Machine) {
    for format in [Format::Bf16, Format::F32] {
        for shape in LAYERS {
            let bytes = MatrixStore::bytes(format, shape[0], shape[1]);
            let copies = (256_000_000 / bytes).max(1) as usize;
            let mut store = MatrixStore::default();
            let weights: Vec<_> = (0..copies)
                .map(|_| matrix(&mut store, machine, format, shape))
                .collect();
            let (x, mut out) = (numbers(shape[1]), vec![0.0; shape[0]]);
            let mut prepared = PreparedRows::default();
            // The shortest of many stretches of some megabytes, so that a neighbour's turn spoils one and not all.
            let stretch = (8_000_000 / bytes).max(1) as usize;
            let mut stretches = weights.chunks_exact(stretch.min(copies)).cycle();
            let time = best(|| {
                for weight in stretches.next().expect("weights") {
                    linear(machine, &mut prepared, &x, store.get(*weight), &mut out);
                }
            });
            let gigabytes = bytes as f64 * stretch.min(copies) as f64 / 1e9;
            println!(
                "{format:?} {shape:?}: {:6.1} GB/s",
                gigabytes / time.as_secs_f64()
            );
        }
    }
}

fn many_rows(machine: &mut Machine) {
    for format in [Format::Bf16, Format::F32] {
        for shape in LAYERS {
            let mut store = MatrixStore::default();
            let id = matrix(&mut store, machine, format, shape);
            let mut line = format!("{format:?} {shape:?}:");
            for rows in [1, 2, 4, 8, 16, 64, 512] {
                let (x, mut out) = (numbers(rows * shape[1]), vec![0.0; rows * shape[0]]);
                let mut prepared = PreparedRows::default();
                let time = best(|| linear(machine, &mut prepared, &x, store.get(id), &mut out));
                let operations = 2.0 * (rows * shape[0] * shape[1]) as f64;
                line += &format!(" {rows}: {:.0}", operations / time.as_secs_f64() / 1e9);
            }
            println!("{line} GFLOP/s by rows");
        }
    }
}

/// Nine query heads over three KV heads of 64.
const SHAPE: kv::Shape = kv::Shape {
    layers: 1,
    blocks: 512,
    block_size: 16,
    kv_heads: 3,
    head_dim: 64,
};
const HEADS: usize = 9;
const COLS: usize = (HEADS + 6) * 64;

fn filled_cache(machine: &mut Machine, positions: usize) -> KvCache {
    let mut cache = KvCache::new(SHAPE, kv::Format::Bf16).expect("memory for a cache");
    let x = numbers(positions * COLS);
    let slots: Vec<u32> = (0..positions as u32).collect();
    cache.store(
        machine,
        0,
        &slots,
        Columns {
            x: &x,
            cols: COLS,
            first_col: HEADS * 64,
        },
    );
    cache
}

fn attend(
    machine: &mut Machine,
    cache: &KvCache,
    x: &[f32],
    position: usize,
    out: &mut [f32],
    tasks: &mut Tasks,
) {
    let blocks: Vec<u32> = (0..SHAPE.blocks as u32).collect();
    let query = Query {
        x,
        cols: COLS,
        heads: HEADS,
        scale: 0.125,
        window: None,
        layer: 0,
    };
    let rows = x.len() / COLS;
    let segment = |_| Segment {
        first_row: 0,
        rows,
        first_position: position,
        blocks: &blocks,
    };
    attention(machine, tasks, cache, query, (1, &segment), out);
}

fn decode_attention(machine: &mut Machine) {
    for context in [64, 512, 4096] {
        let cache = filled_cache(machine, context);
        let (x, mut out) = (numbers(COLS), vec![0.0; HEADS * 64]);
        let mut tasks = Tasks::default();
        let time = best(|| attend(machine, &cache, &x, context - 1, &mut out, &mut tasks));
        println!("context {context}: {:.1} us", time.as_secs_f64() * 1e6);
    }
}

fn prefill_attention(machine: &mut Machine) {
    for rows in [128, 512, 2048] {
        let cache = filled_cache(machine, rows);
        let (x, mut out) = (numbers(rows * COLS), vec![0.0; rows * HEADS * 64]);
        let mut tasks = Tasks::default();
        let time = best(|| attend(machine, &cache, &x, 0, &mut out, &mut tasks));
        let operations = 2.0 * 64.0 * (HEADS * rows * rows) as f64;
        let rate = operations / time.as_secs_f64() / 1e9;
        println!(
            "{rows} rows: {:.1} us, {rate:.0} GFLOP/s of what is visible",
            time.as_secs_f64() * 1e6
        );
    }
}

fn small(machine: &mut Machine) {
    for rows in [1, 512] {
        let (x, weight) = (numbers(rows * 576), numbers(576));
        let mut out = vec![0.0; rows * 576];
        let norm = best(|| rms_norm(machine, &x, &weight, 1e-5, &mut out));
        let x = numbers(rows * 3072);
        let mut out = vec![0.0; rows * 1536];
        let silu = best(|| silu_mul(machine, &x, 1536, &mut out));
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        println!(
            "{rows} rows: rms_norm {:.1} us, silu_mul {:.1} us",
            micros(norm),
            micros(silu)
        );
    }
}

fn pack(machine: &mut Machine) {
    let [outputs, inputs] = LAYERS[4];
    for (dtype, format) in [
        (Dtype::BF16, Format::Bf16),
        (Dtype::F16, Format::Bf16),
        (Dtype::F32, Format::F32),
        (Dtype::Q4_1, Format::Bf16),
    ] {
        let bytes = vec![0x11u8; dtype.row_bytes(inputs).unwrap() * outputs];
        let part = Source {
            dtype,
            rows: outputs,
            bytes: &bytes,
            row_order: None,
            scales: None,
        };
        let time = best(|| {
            let mut store = MatrixStore::default();
            store
                .pack(machine, format, inputs, &[part], &[])
                .expect("memory for a matrix");
        });
        let rate = (outputs * inputs) as f64 / time.as_secs_f64() / 1e6;
        println!("{dtype:?} to {format:?}: {rate:.0} million weights/s");
    }
}
