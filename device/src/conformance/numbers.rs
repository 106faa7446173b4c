//! Test numbers: seeded, rounded as a precision holds them, and compared with the largest difference named.

use crate::{Float, Precision};
use ropeteam_kernels::reference;

/// A small generator (splitmix64), so that the suite needs nothing else and every run is alike.
pub(super) struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number below `limit`.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Numbers between -1 and 1.
    pub(super) fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count)
            .map(|_| (self.next() >> 40) as f32 / (1u32 << 23) as f32 - 1.0)
            .collect()
    }

    /// `0 .. count` in random order.
    pub(super) fn shuffled(&mut self, count: usize) -> Vec<u32> {
        let mut all: Vec<u32> = (0..count as u32).collect();
        for i in (1..count).rev() {
            all.swap(i, self.below(i + 1));
        }
        all
    }
}

/// How a device holds numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arithmetic {
    pub precision: Precision,
    pub activations: Float,
}

impl Arithmetic {
    /// The numbers as KV, and as weights of 16 bits.
    pub(super) fn rounded(&self, x: &[f32]) -> Vec<f32> {
        match (self.precision, self.activations) {
            (Precision::F32, _) => x.to_vec(),
            (_, Float::F16) => round_all(Float::F16, x),
            _ => round_all(Float::Bf16, x),
        }
    }

    /// The numbers as activations.
    pub(super) fn as_activations(&self, x: &[f32]) -> Vec<f32> {
        round_all(self.activations, x)
    }

    /// Rows of `cols` numbers as they are multiplied with weights that are loaded as floats.
    pub(super) fn rounded_rows(&self, x: &[f32], cols: usize) -> Vec<f32> {
        match self.precision {
            Precision::Int8 | Precision::Int4 => reference::rounded_to_int8(x, cols),
            Precision::F32 | Precision::Bf16 | Precision::Stored => self.rounded(x),
        }
    }

    /// What a result may be off by, where one computed with activations in f32 may be off by `exact`. Two operators may be behind
    /// it, each of which rounds, and so may the weights of a norm be rounded.
    pub(super) fn tolerance(&self, exact: f32) -> f32 {
        match self.activations {
            Float::F32 => exact,
            Float::Bf16 => exact + 2.0 / 256.0,
            Float::F16 => exact + 2.0 / 2048.0,
        }
    }
}

fn round_all(float: Float, x: &[f32]) -> Vec<f32> {
    let round = |x: &f32| match float {
        Float::F32 => *x,
        Float::Bf16 => to_bf16(*x),
        Float::F16 => half::f16::from_f32(*x).to_f32(),
    };
    x.iter().map(round).collect()
}

/// To nearest, ties to even; for finite numbers.
fn to_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    let odd = (bits >> 16) & 1;
    f32::from_bits((bits + 0x7fff + odd) & 0xffff_0000)
}

/// Little-endian bytes, as a checkpoint holds f32.
pub(super) fn bytes(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Fails unless every number is within `tolerance` of the expected one, in units of the largest number expected.
#[track_caller]
pub(super) fn assert_close(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}: how many numbers");
    let unit = expected
        .iter()
        .fold(f32::MIN_POSITIVE, |unit, x| unit.max(x.abs()));
    let differences = found
        .iter()
        .zip(expected)
        .map(|(found, expected)| (found - expected).abs() / unit);
    // NaN is the largest difference there is.
    let order = |a: &(usize, f32), b: &(usize, f32)| a.1.total_cmp(&b.1);
    let Some((at, largest)) = differences.enumerate().max_by(order) else {
        return;
    };
    assert!(
        largest <= tolerance,
        "{what}: largest difference {largest:e} (allowed {tolerance:e}) at {at}: found {}, expected {}",
        found[at],
        expected[at]
    );
}

/// Fails unless all bits are equal.
#[track_caller]
pub(super) fn assert_same_bits(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}: how many numbers");
    let differs = |(found, expected): (&f32, &f32)| found.to_bits() != expected.to_bits();
    if let Some(at) = found.iter().zip(expected).position(differs) {
        panic!(
            "{what}: {} at {at} in one way and {} in another",
            found[at], expected[at]
        );
    }
}
