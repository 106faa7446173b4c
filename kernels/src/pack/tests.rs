//! Every format against what it was packed from: exactly where the format says so, else within its step.

use super::*;
use crate::{Isa, MatrixStore};
use half::bf16;

/// Reads all rows of a matrix packed from `parts`.
fn packed(format: Format, inputs: usize, parts: &[Source<'_>]) -> Vec<Vec<f32>> {
    let mut machine = Machine::new(Isa::best(), 2);
    let mut store = MatrixStore::default();
    let id = store.pack(&mut machine, format, inputs, parts, &[]);
    let matrix = store.get(id.unwrap());
    (0..matrix.outputs())
        .map(|row| {
            let mut out = vec![0.0; inputs];
            matrix.read_row(row, &mut out);
            out
        })
        .collect()
}

fn source(dtype: Dtype, rows: usize, bytes: &[u8]) -> Source<'_> {
    Source {
        dtype,
        rows,
        bytes,
        row_order: None,
        scales: None,
    }
}

/// Bytes without a pattern that matters.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9u32;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

/// Random blocks with scales of an ordinary size.
fn blocks(dtype: Dtype, rows: usize, inputs: usize) -> Vec<u8> {
    let mut bytes = noise(rows * dtype.row_bytes(inputs).unwrap());
    for (i, block) in bytes.chunks_exact_mut(dtype.block_bytes()).enumerate() {
        let scale = f16::from_f32(0.001 * (1 + i % 7) as f32).to_le_bytes();
        match dtype {
            Dtype::Q6_K => block[208..].copy_from_slice(&scale),
            _ => block[..2].copy_from_slice(&scale),
        }
        if matches!(dtype, Dtype::Q4_1 | Dtype::Q4_K) {
            block[2..4].copy_from_slice(&f16::from_f32(-0.01).to_le_bytes());
        }
    }
    bytes
}

fn dequantised(dtype: Dtype, inputs: usize, bytes: &[u8]) -> Vec<Vec<f32>> {
    bytes
        .chunks_exact(dtype.row_bytes(inputs).unwrap())
        .map(|row| {
            let mut out = vec![0.0; inputs];
            dequant_row(dtype, row, &mut out);
            out
        })
        .collect()
}

fn floats(rows: usize, inputs: usize) -> Vec<f32> {
    let bytes = noise(rows * inputs);
    bytes.iter().map(|b| f32::from(*b as i8) / 64.0).collect()
}

fn bytes_of(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|x| x.to_le_bytes()).collect()
}

#[test]
fn rows_of_floats_come_back_as_they_were_stacked() {
    for format in [Format::F32, Format::Bf16] {
        for (inputs, rows) in [(1, [3, 2]), (2, [16, 49]), (7, [3, 2]), (64, [16, 49])] {
            let value = |r: usize, c: usize| (r * inputs + c) as f32 % 128.0 - 64.0;
            let all: Vec<Vec<f32>> = (0..rows[0] + rows[1])
                .map(|r| (0..inputs).map(|c| value(r, c)).collect())
                .collect();
            let (first, second) = (
                bytes_of(&all[..rows[0]].concat()),
                bytes_of(&all[rows[0]..].concat()),
            );
            let reversed: Vec<u32> = (0..rows[1] as u32).rev().collect();
            let mut parts = [
                source(Dtype::F32, rows[0], &first),
                source(Dtype::F32, rows[1], &second),
            ];
            parts[1].row_order = Some(&reversed);
            let mut expected = all.clone();
            expected[rows[0]..].reverse();
            assert_eq!(packed(format, inputs, &parts), expected, "{format:?}");
        }
    }
}

#[test]
fn bf16_rows_of_odd_length_keep_their_last_element() {
    let bytes: Vec<u8> = [1.5f32, -2.0, 3.0]
        .iter()
        .flat_map(|x| bf16::from_f32(*x).to_le_bytes())
        .collect();
    let found = packed(Format::Bf16, 3, &[source(Dtype::BF16, 1, &bytes)]);
    assert_eq!(found, [[1.5, -2.0, 3.0]]);
}

#[test]
fn blocks_of_a_file_are_held_as_they_are() {
    for (dtype, format) in [
        (Dtype::Q4_0, Format::Int4),
        (Dtype::Q4_1, Format::Int4),
        (Dtype::Q8_0, Format::Int8Blocks),
        (Dtype::Q6_K, Format::Int6),
    ] {
        for rows in [1, 17, 70] {
            let inputs = if dtype == Dtype::Q6_K { 512 } else { 96 };
            let bytes = blocks(dtype, rows, inputs);
            let found = packed(format, inputs, &[source(dtype, rows, &bytes)]);
            assert_eq!(found, dequantised(dtype, inputs, &bytes), "{dtype:?}");
        }
    }
}

#[test]
fn q4_k_loses_a_hundredth_of_a_step_at_most() {
    let bytes = blocks(Dtype::Q4_K, 19, 512);
    let found = packed(Format::Int4, 512, &[source(Dtype::Q4_K, 19, &bytes)]);
    let expected = dequantised(Dtype::Q4_K, 512, &bytes);
    for (found, expected) in found.iter().zip(&expected) {
        for (found, expected) in found.chunks(32).zip(expected.chunks(32)) {
            let largest = expected.iter().fold(0.0f32, |max, x| max.max(x.abs()));
            let scale = 0.007 * 63.0;
            for (found, expected) in found.iter().zip(expected) {
                let off = (found - expected).abs();
                assert!(off <= largest.max(scale) / 1024.0, "{found} for {expected}");
            }
        }
    }
}

#[test]
fn rows_of_int8_keep_their_bytes_and_factors() {
    for (rows, inputs) in [(1, 1), (5, 7), (33, 130)] {
        let bytes = noise(rows * inputs);
        let scales: Vec<f32> = (0..rows).map(|r| 0.01 * (r + 1) as f32).collect();
        let order: Vec<u32> = (0..rows as u32).rev().collect();
        let mut part = source(Dtype::I8, rows, &bytes);
        part.scales = Some(&scales);
        part.row_order = Some(&order);
        let found = packed(Format::Int8, inputs, &[part]);
        for (row, stored) in order.iter().map(|r| *r as usize).enumerate() {
            let q = &bytes[stored * inputs..][..inputs];
            let expected: Vec<f32> = q
                .iter()
                .map(|q| f32::from(*q as i8) * scales[stored])
                .collect();
            assert_eq!(found[row], expected);
        }
    }
}

#[test]
fn floats_are_rounded_within_half_a_step() {
    for (rows, inputs) in [(1, 1), (18, 33), (40, 200)] {
        let x = floats(rows, inputs);
        let bytes = bytes_of(&x);
        let part = source(Dtype::F32, rows, &bytes);
        for (format, steps) in [
            (Format::Int8, 254.0),
            (Format::Int8Blocks, 254.0),
            (Format::Int4, 13.0),
        ] {
            let found = packed(format, inputs, &[part]);
            // All numbers lie between -2 and 2, and f16 scales are off by one part in 2048.
            let allowed = 4.0 / steps / 2.0 + 4.0 / 2048.0;
            let worst = found
                .concat()
                .iter()
                .zip(&x)
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f32::max);
            // Minimising squares may leave one number farther off than another.
            let allowed = if format == Format::Int4 {
                2.0 * allowed
            } else {
                allowed
            };
            assert!(
                worst <= allowed,
                "{format:?} [{rows}, {inputs}]: {worst} over {allowed}"
            );
        }
    }
}

/// Squared error of plain rounding between smallest and largest number, scale and minimum in f16.
fn plain_error(x: &[f32]) -> f32 {
    let low = x.iter().copied().fold(f32::MAX, f32::min);
    let high = x.iter().copied().fold(f32::MIN, f32::max);
    let (scale, min) = (
        f16::from_f32((high - low) / 15.0).to_f32(),
        f16::from_f32(low).to_f32(),
    );
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    x.iter()
        .map(|x| ((x - min) * inverse).round_ties_even().clamp(0.0, 15.0) * scale + min - x)
        .map(|off| off * off)
        .sum()
}

#[test]
fn int4_is_never_worse_than_plain_rounding() {
    let x = floats(64, 32 * 5);
    let bytes = bytes_of(&x);
    let found = packed(Format::Int4, 160, &[source(Dtype::F32, 64, &bytes)]).concat();
    let (mut total, mut plain) = (0.0, 0.0);
    for (found, x) in found.chunks(32).zip(x.chunks(32)) {
        let error: f32 = found.iter().zip(x).map(|(a, b)| (a - b) * (a - b)).sum();
        assert!(
            error <= plain_error(x) * 1.001 + 1e-9,
            "{error} > {}",
            plain_error(x)
        );
        total += error;
        plain += plain_error(x);
    }
    assert!(total < 0.9 * plain, "{total} against {plain}");
}

#[test]
fn numbers_on_a_grid_of_four_bits_are_found_again() {
    let bytes = blocks(Dtype::Q4_1, 32, 64);
    let x = dequantised(Dtype::Q4_1, 64, &bytes).concat();
    let as_floats = bytes_of(&x);
    let found = packed(Format::Int4, 64, &[source(Dtype::F32, 32, &as_floats)]).concat();
    for (found, x) in found.iter().zip(&x) {
        assert!((found - x).abs() < 2e-5, "{found} for {x}");
    }
}

#[test]
fn numbers_beyond_f16_are_held_at_its_end() {
    let bytes = bytes_of(&[1e9f32; 32]);
    let found = packed(Format::Int4, 32, &[source(Dtype::F32, 1, &bytes)]).concat();
    assert!(found.iter().all(|x| *x == 65504.0), "{found:?}");
}
