//! Checks of weights that a file holds quantised and the device keeps so: alone, stacked with other formats, and beside floats.

use super::Make;
use super::numbers::{Random, assert_close, assert_same_bits};
use super::session::Session;
use crate::{Dtype, Float, Precision, TensorView};
use ropeteam_kernels::dequant::dequant_row;
use ropeteam_kernels::reference;

const INPUTS: usize = 512;
/// Parts of a matrix, with their rows.
const STACKS: [&[(Dtype, usize)]; 8] = [
    &[(Dtype::Q4_0, 20)],
    &[(Dtype::Q4_1, 3), (Dtype::Q4_0, 30)],
    &[(Dtype::Q8_0, 33)],
    &[(Dtype::Q6_K, 48)],
    &[(Dtype::I8, 18), (Dtype::I8, 2)],
    // As files of mixed K-quants have them in one layer.
    &[(Dtype::Q4_K, 32), (Dtype::Q4_K, 16), (Dtype::Q6_K, 16)],
    &[(Dtype::Q6_K, 5), (Dtype::Q8_0, 7), (Dtype::I8, 9)],
    &[(Dtype::Q4_K, 8), (Dtype::BF16, 8)],
];

pub(super) fn check(makes: &[Make<'_>]) {
    for stack in STACKS {
        let mut first: Option<Vec<f32>> = None;
        for make in makes {
            let found = product(Session::new(make(), Precision::Stored, 11), stack);
            let what = format!("{stack:?}, other devices");
            assert_same_bits(&what, first.get_or_insert_with(|| found.clone()), &found);
        }
    }
    for make in makes {
        for (dtype, rows) in STACKS.iter().flat_map(|stack| stack.iter().copied()) {
            table(Session::new(make(), Precision::Stored, 3), dtype, rows);
        }
    }
}

/// A quantised tensor and the numbers it stands for.
struct Quantised {
    dtype: Dtype,
    rows: usize,
    bytes: Vec<u8>,
    scales: Vec<f32>,
    numbers: Vec<f32>,
}

impl Quantised {
    fn random(random: &mut Random, dtype: Dtype, rows: usize) -> Self {
        let width = dtype.row_bytes(INPUTS).expect("whole blocks");
        let mut bytes: Vec<u8> = (0..rows * width).map(|_| random.below(256) as u8).collect();
        // 0x2800 is 2^-5 in f16, 0x3c00 is 1 in bf16 and f16: every other bit pattern of a low byte is a number too.
        for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
            match dtype {
                Dtype::BF16 => block[1] = 0x3c,
                Dtype::Q6_K => block[209] = 0x10,
                Dtype::I8 => {}
                Dtype::Q4_1 | Dtype::Q4_K => (block[1], block[3]) = (0x18, 0x98),
                _ => block[1] = 0x18,
            }
        }
        let scales: Vec<f32> = random.numbers(rows);
        let mut numbers = vec![0.0; rows * INPUTS];
        dequant_row(dtype, &bytes, &mut numbers);
        if dtype == Dtype::I8 {
            for (row, scale) in numbers.chunks_exact_mut(INPUTS).zip(&scales) {
                row.iter_mut().for_each(|x| *x *= scale);
            }
        }
        Self {
            dtype,
            rows,
            bytes,
            scales,
            numbers,
        }
    }

    fn view(&self) -> TensorView<'_> {
        TensorView {
            dtype: self.dtype,
            shape: [self.rows, INPUTS],
            bytes: &self.bytes,
            row_order: None,
            scales: (self.dtype == Dtype::I8).then_some(&self.scales),
        }
    }
}

/// What the product may be off by: Q4_K's scales are products that a device may round to f16.
fn tolerance(dtypes: impl Iterator<Item = Dtype>) -> f32 {
    let rounds = |dtype| dtype == Dtype::Q4_K;
    if dtypes.into_iter().any(rounds) {
        1e-3
    } else {
        2e-5
    }
}

fn product(mut session: Session, stack: &[(Dtype, usize)]) -> Vec<f32> {
    let parts: Vec<_> = stack
        .iter()
        .map(|(dtype, rows)| Quantised::random(&mut session.random, *dtype, *rows))
        .collect();
    let views: Vec<_> = parts.iter().map(Quantised::view).collect();
    let weight = session
        .device
        .load_linear(&views, &[])
        .expect("load_linear");
    let outputs: usize = stack.iter().map(|(_, rows)| rows).sum();
    let rows = 9;
    let values = session.random.numbers(rows * INPUTS);
    let (x, held) = session.filled(&values, INPUTS);
    let out = session.alloc(rows, outputs);
    session.device.linear(x, weight, rows, out).expect("linear");
    let found = session.read(out, rows);

    let all: Vec<f32> = parts.iter().flat_map(|part| part.numbers.clone()).collect();
    let floats = stack.iter().any(|(dtype, _)| *dtype == Dtype::BF16);
    let expected = if floats {
        let all = session.arithmetic.rounded(&all);
        let held = session.arithmetic.rounded(&held);
        reference::linear(&held, &all, INPUTS, &[])
    } else {
        let held = reference::rounded_to_int8(&held, INPUTS);
        reference::linear(&held, &all, INPUTS, &[])
    };
    let exact = tolerance(stack.iter().map(|(dtype, _)| *dtype));
    // Devices that do not compute in f32 round activations in their own way, by row or not at all.
    let tolerance = match session.arithmetic.activations {
        Float::F32 => exact,
        _ => session.arithmetic.tolerance(2e-2),
    };
    assert_close(&format!("{stack:?}"), &found, &expected, tolerance);
    found
}

fn table(mut session: Session, dtype: Dtype, rows: usize) {
    let table = Quantised::random(&mut session.random, dtype, rows);
    let weight = session
        .device
        .load_embedding(&table.view(), true)
        .expect("load_embedding");
    let ids: Vec<u32> = (0..rows as u32).collect();
    let out = session.alloc(rows, INPUTS);
    session.device.embed(weight, &ids, out).expect("embed");
    let found = session.read(out, rows);
    let what = format!("a table of {dtype:?}");
    assert_close(
        &what,
        &found,
        &table.numbers,
        session.arithmetic.tolerance(tolerance([dtype].into_iter())),
    );
}
