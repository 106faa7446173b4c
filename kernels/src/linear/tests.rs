//! Products of every format on every instruction set against the plain reference, and bit for bit against themselves in other
//! company and with other threads.

use super::linear;
use crate::{
    Dtype, Format, Isa, Machine, MatrixId, MatrixStore, PreparedRows, RowForm, Source, reference,
};
use half::f16;

struct Random(u32);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    /// Numbers between -1 and 1, of several magnitudes.
    fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count)
            .map(|i| ((self.next() & 0xffff) as f32 / 32768.0 - 1.0) * (1 + i / 50 % 3) as f32)
            .collect()
    }

    /// Stored rows of a dtype, with scales of an ordinary size.
    fn stored(&mut self, dtype: Dtype, rows: usize, inputs: usize) -> Vec<u8> {
        if dtype == Dtype::F32 {
            let x = self.numbers(rows * inputs);
            return x.iter().flat_map(|x| x.to_le_bytes()).collect();
        }
        let width = dtype.row_bytes(inputs).expect("whole blocks");
        let mut bytes: Vec<u8> = (0..rows * width).map(|_| self.next() as u8).collect();
        for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
            let scale = f16::from_f32((self.next() % 100) as f32 * 1e-4).to_le_bytes();
            match dtype {
                Dtype::I8 => {}
                Dtype::Q6_K => block[208..].copy_from_slice(&scale),
                _ => block[..2].copy_from_slice(&scale),
            }
            if matches!(dtype, Dtype::Q4_1 | Dtype::Q4_K) {
                block[2..4].copy_from_slice(&f16::from_f32(-0.02).to_le_bytes());
            }
        }
        bytes
    }
}

/// What a format is packed from in these tests.
const SOURCES: [(Dtype, Format); 10] = [
    (Dtype::F32, Format::F32),
    (Dtype::F32, Format::Bf16),
    (Dtype::F32, Format::Int8),
    (Dtype::I8, Format::Int8),
    (Dtype::F32, Format::Int8Blocks),
    (Dtype::Q8_0, Format::Int8Blocks),
    (Dtype::Q6_K, Format::Int6),
    (Dtype::F32, Format::Int4),
    (Dtype::Q4_1, Format::Int4),
    (Dtype::Q4_K, Format::Int4),
];

/// Outputs and inputs; block formats take those that are whole blocks.
const SHAPES: [[usize; 2]; 9] = [
    [1, 1],
    [5, 3],
    [17, 31],
    [64, 96],
    [70, 129],
    [33, 256],
    [16, 640],
    [130, 768],
    [20, 4352],
];

/// A matrix and what it holds.
fn matrix(
    store: &mut MatrixStore,
    machine: &mut Machine,
    parts: &[(Dtype, Format, usize)],
    inputs: usize,
    random: &mut Random,
) -> (MatrixId, Vec<f32>, Vec<f32>) {
    let bytes: Vec<Vec<u8>> = parts
        .iter()
        .map(|(dtype, _, rows)| random.stored(*dtype, *rows, inputs))
        .collect();
    let scales: Vec<f32> = random.numbers(parts.iter().map(|part| part.2).max().unwrap_or(0));
    let sources: Vec<_> = parts
        .iter()
        .zip(&bytes)
        .map(|((dtype, format, rows), bytes)| {
            let source = Source {
                dtype: *dtype,
                rows: *rows,
                bytes,
                row_order: None,
                scales: (*dtype == Dtype::I8).then_some(&scales[..*rows]),
            };
            (*format, source)
        })
        .collect();
    let bias = random.numbers(parts.iter().map(|part| part.2).sum());
    let id = store
        .pack_mixed(machine, inputs, &sources, &bias)
        .expect("memory");
    let weight = store.get(id);
    let mut held = vec![0.0; weight.outputs() * inputs];
    for (row, out) in held.chunks_exact_mut(inputs).enumerate() {
        weight.read_row(row, out);
    }
    (id, held, bias)
}

/// The rows as a form holds them.
fn rounded(form: RowForm, x: &[f32], inputs: usize) -> Vec<f32> {
    match form {
        RowForm::F32 => x.to_vec(),
        RowForm::Bf16 => x
            .iter()
            .map(|x| half::bf16::from_f32(*x).to_f32())
            .collect(),
        RowForm::Int8 => reference::rounded_to_int8(x, inputs),
    }
}

fn assert_close(what: &str, found: &[f32], expected: &[f32]) {
    let unit = expected.iter().fold(1e-3f32, |unit, x| unit.max(x.abs()));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let off = (found - expected).abs() / unit;
        assert!(off < 2e-5, "{what} at {at}: {found} for {expected}");
    }
}

fn check(isa: Isa, parts: &[(Dtype, Format, usize)], inputs: usize) {
    let what = format!("{parts:?} of {inputs} inputs with {}", isa.name());
    let mut random = Random(inputs as u32);
    let mut machines = [1, 2, 3].map(|threads| Machine::new(isa, threads));
    let mut store = MatrixStore::default();
    let (id, held, bias) = matrix(&mut store, &mut machines[1], parts, inputs, &mut random);
    let weight = store.get(id);
    let mut prepared = PreparedRows::default();
    for rows in [1, 2, 6, 7, 29, 100] {
        let x = random.numbers(rows * inputs);
        let mut out = vec![f32::NAN; rows * weight.outputs()];
        linear(&mut machines[0], &mut prepared, &x, weight, &mut out);
        let rounded = rounded(weight.row_form(), &x, inputs);
        let expected = reference::linear(&rounded, &held, inputs, &bias);
        assert_close(&what, &out, &expected);

        let mut again = vec![f32::NAN; out.len()];
        for machine in &mut machines[1..] {
            linear(machine, &mut prepared, &x, weight, &mut again);
            assert!(out == again, "{what}, {rows} rows, other threads");
        }
        let mut alone = vec![f32::NAN; weight.outputs()];
        for row in [0, rows / 2, rows - 1] {
            let x = &x[row * inputs..][..inputs];
            linear(&mut machines[0], &mut prepared, x, weight, &mut alone);
            let among = &out[row * weight.outputs()..][..weight.outputs()];
            assert!(alone == among, "{what}, row {row} of {rows} alone");
        }
    }
}

#[test]
fn every_format_agrees_with_the_reference_and_with_itself() {
    for isa in Isa::all() {
        for (dtype, format) in SOURCES {
            for [outputs, inputs] in SHAPES {
                if dtype.row_bytes(inputs).is_some() {
                    check(isa, &[(dtype, format, outputs)], inputs);
                }
            }
        }
    }
}

#[test]
fn parts_of_different_formats_stand_side_by_side() {
    for isa in Isa::all() {
        for rows in [[16, 32, 16], [5, 17, 3]] {
            let parts = [
                (Dtype::Q4_K, Format::Int4, rows[0]),
                (Dtype::Q6_K, Format::Int6, rows[1]),
                (Dtype::Q8_0, Format::Int8Blocks, rows[2]),
            ];
            check(isa, &parts, 512);
        }
        let per_output = [
            (Dtype::I8, Format::Int8, 9),
            (Dtype::F32, Format::Int4, 20),
            (Dtype::F32, Format::Int8, 31),
        ];
        check(isa, &per_output, 77);
    }
}

#[test]
fn chunks_of_very_different_size_and_of_zeros_are_summed_right() {
    let inputs = 1024;
    let sizes = [0.0, 1e-15, 1e10, 0.0, 1.0, 1e-19, 3e-21, 1e12];
    let x: Vec<f32> = Random(9)
        .numbers(inputs)
        .iter()
        .enumerate()
        .map(|(i, x)| x * sizes[i / 64 % sizes.len()])
        .collect();
    for isa in Isa::all() {
        for (dtype, format) in SOURCES.into_iter().skip(2) {
            let machine = &mut Machine::new(isa, 1);
            let mut store = MatrixStore::default();
            let parts = [(dtype, format, 20)];
            let (id, held, bias) = matrix(&mut store, machine, &parts, inputs, &mut Random(5));
            // All of the row, and what ends with its small numbers.
            for x in [x.clone(), [&x[..128], &vec![0.0; 896]].concat()] {
                let mut out = vec![0.0; 20];
                let prepared = &mut PreparedRows::default();
                linear(machine, prepared, &x, store.get(id), &mut out);
                let rounded = rounded(RowForm::Int8, &x, inputs);
                let expected = reference::linear(&rounded, &held, inputs, &bias);
                assert_close(&format!("{format:?} {}", isa.name()), &out, &expected);
            }
        }
    }
}

#[test]
fn what_is_not_finite_in_a_row_reaches_all_its_outputs() {
    for isa in Isa::all() {
        for (dtype, format) in SOURCES {
            let machine = &mut Machine::new(isa, 1);
            let mut store = MatrixStore::default();
            let parts = [(dtype, format, 20)];
            let (id, ..) = matrix(&mut store, machine, &parts, 256, &mut Random(5));
            let mut x = vec![1.0; 256];
            x[200] = f32::NAN;
            let mut out = vec![0.0; 20];
            linear(
                machine,
                &mut PreparedRows::default(),
                &x,
                store.get(id),
                &mut out,
            );
            assert!(out.iter().all(|x| x.is_nan()), "{format:?} {}", isa.name());
        }
    }
}
