//! How near `linear` comes to what the machine can do: per format, shape and row count the share of the limit, which is the larger of
//! the time to read the weights and the time to multiply.
//!
//! `cargo bench -p ropeteam-kernels --bench products [-- FILTER]`: runs the lines whose name (`Int4 2 threads [1536, 576]`) contains the
//! filter. Weights come from memory: enough copies of a matrix take turns that none stays in a cache. Best of some rounds each.

use ropeteam_kernels::limits::{Arithmetic, Memory, Tile, multiply, read};
use ropeteam_kernels::{
    Dtype, Format, Isa, Machine, MatrixId, MatrixStore, PreparedRows, Source, linear,
};
use std::time::{Duration, Instant};

/// Outputs and inputs in layers and heads of a 135M and a 0.5B model.
const SHAPES: [[usize; 2]; 9] = [
    [960, 576],
    [576, 576],
    [3072, 576],
    [576, 1536],
    [49152, 576],
    [1152, 896],
    [9728, 896],
    [896, 4864],
    [151936, 896],
];
const ROWS: [usize; 10] = [1, 2, 4, 8, 12, 16, 32, 64, 128, 512];
const FORMATS: [Format; 5] = [
    Format::Bf16,
    Format::Int8,
    Format::Int4,
    Format::Int8Blocks,
    Format::Int6,
];
/// Bytes of copies of a matrix.
const COPIES: u64 = 200_000_000;
/// Bytes of memory to measure its speed with.
const MEMORY: usize = 256 << 20;

fn main() {
    let filter = std::env::args()
        .skip(1)
        .find(|arg| !arg.starts_with('-'))
        .unwrap_or_default();
    for threads in [1, 2] {
        let machine = &mut Machine::new(Isa::best(), threads);
        let limits = Limits::measure(machine);
        println!(
            "{threads} threads: {:.1} GB/s, {:.0} Gop/s in bf16, {:.0} in int8",
            limits.bytes / 1e9,
            limits.bf16 / 1e9,
            limits.int8 / 1e9
        );
        for format in FORMATS {
            for shape in SHAPES {
                let name = format!("{format:?} {threads} threads {shape:?}");
                if name.contains(&filter) {
                    println!("{name}: {}", shares(machine, format, shape, &limits));
                }
            }
        }
    }
}

/// What the machine can do per second when it does nothing else: bytes read, operations.
struct Limits {
    bytes: f64,
    bf16: f64,
    int8: f64,
}

impl Limits {
    fn measure(machine: &mut Machine) -> Self {
        let memory = Memory::new(machine, MEMORY).expect("memory");
        let time = best(|| read(machine, &memory));
        Self {
            bytes: memory.bytes() as f64 / time.as_secs_f64(),
            bf16: peak(machine, Arithmetic::Bf16),
            int8: peak(machine, Arithmetic::Int8),
        }
    }
}

fn peak(machine: &mut Machine, arithmetic: Arithmetic) -> f64 {
    let rate = |tile| {
        let mut operations = 0.0;
        let time = best(|| operations = multiply(machine, arithmetic, tile));
        operations / time.as_secs_f64()
    };
    Tile::ALL.map(rate).into_iter().fold(0.0, f64::max)
}

fn best(mut round: impl FnMut()) -> Duration {
    let end = Instant::now() + Duration::from_millis(120);
    let mut best = Duration::MAX;
    let mut rounds = 0;
    while rounds < 3 || Instant::now() < end {
        let start = Instant::now();
        round();
        best = best.min(start.elapsed());
        rounds += 1;
    }
    best
}

/// Numbers between -1 and 1 without a pattern that matters.
fn numbers(count: usize) -> Vec<f32> {
    (0..count as u32)
        .map(|i| i.wrapping_mul(2_654_435_761) as i32 as f32 / i32::MAX as f32)
        .collect()
}

/// Stored bytes that a format is packed from quickly.
fn stored(format: Format, shape: [usize; 2]) -> (Dtype, Vec<u8>) {
    let dtype = match format {
        Format::F32 => Dtype::F32,
        Format::Bf16 => Dtype::BF16,
        Format::Int8 => Dtype::I8,
        Format::Int8Blocks => Dtype::Q8_0,
        Format::Int6 => Dtype::Q6_K,
        Format::Int4 => Dtype::Q4_1,
    };
    let width = dtype.row_bytes(shape[1]).unwrap_or(0);
    (dtype, vec![0x11; width * shape[0]])
}

fn pack(
    store: &mut MatrixStore,
    machine: &mut Machine,
    format: Format,
    shape: [usize; 2],
) -> MatrixId {
    let (dtype, bytes) = stored(format, shape);
    let scales = vec![0.01; shape[0]];
    let part = Source {
        dtype,
        rows: shape[0],
        bytes: &bytes,
        row_order: None,
        scales: (dtype == Dtype::I8).then_some(&scales),
    };
    store
        .pack(machine, format, shape[1], &[part], &[])
        .expect("memory for a matrix")
}

fn shares(machine: &mut Machine, format: Format, shape: [usize; 2], limits: &Limits) -> String {
    let [outputs, inputs] = shape;
    if stored(format, shape).1.is_empty() {
        return "no whole blocks".to_owned();
    }
    let bytes = MatrixStore::bytes(format, outputs, inputs);
    let copies = COPIES.div_ceil(bytes) as usize;
    let mut store = MatrixStore::default();
    let weights: Vec<_> = (0..copies)
        .map(|_| pack(&mut store, machine, format, shape))
        .collect();
    let peak = match format {
        Format::Bf16 => limits.bf16,
        _ => limits.int8,
    };
    let mut prepared = PreparedRows::default();
    let mut line = String::new();
    for rows in ROWS {
        if outputs > 20_000 && rows > 64 {
            continue;
        }
        let (x, mut out) = (numbers(rows * inputs), vec![0.0; rows * outputs]);
        let operations = 2.0 * (rows * outputs * inputs) as f64;
        // Some copies in a row, so that a round is long enough to be timed.
        let limit = (bytes as f64 / limits.bytes).max(operations / peak);
        let stretch = ((2e-4 / limit) as usize).clamp(1, copies);
        let mut turns = weights.chunks_exact(stretch).cycle();
        let time = best(|| {
            for weight in turns.next().expect("weights") {
                linear(machine, &mut prepared, &x, store.get(*weight), &mut out);
            }
        });
        let share = limit * stretch as f64 / time.as_secs_f64();
        let rate = operations * stretch as f64 / time.as_secs_f64() / 1e9;
        line += &format!("  {rows}: {:.0}% {rate:.0}", 100.0 * share);
    }
    line
}
