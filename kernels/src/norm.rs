//! RMS norms: of rows, of rows after an addition, and of single heads in place.
//! `rms(v) = sqrt(mean(v²) + eps)`; Zhang and Sennrich, Root Mean Square Layer Normalization.

use crate::Machine;
use crate::aligned::LANES;
use crate::disjoint::Disjoint;
use crate::simd::{Bf16, Kernel, Simd};

/// `out[r] = x[r] / rms(x[r]) * weight`.
///
/// # Panics
/// When the lengths do not fit together.
pub fn rms_norm(machine: &mut Machine, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "rows in and out");
    let (isa, cols) = (machine.isa, weight.len());
    machine.for_rows(out, cols, |first, out| {
        out.copy_from_slice(&x[first * cols..][..out.len()]);
        isa.dispatch(NormInPlace {
            x: out,
            weight,
            eps,
        });
    });
}

/// `residual += x`, then `x[r] = residual[r] / rms(residual[r]) * weight`: the input's place takes the result.
///
/// # Panics
/// When the lengths do not fit together.
pub fn add_rms_norm(
    machine: &mut Machine,
    x: &mut [f32],
    residual: &mut [f32],
    weight: &[f32],
    eps: f32,
) {
    assert_eq!(x.len(), residual.len(), "rows and residual");
    let (isa, cols) = (machine.isa, weight.len());
    let residual = Disjoint::new(residual);
    machine.for_rows(x, cols, |first, x| {
        // SAFETY: the same rows as those of `x`, which belong to one task.
        let residual = unsafe { residual.part(first * cols, x.len()) };
        isa.dispatch(AddNorm {
            x,
            residual,
            weight,
            eps,
        });
    });
}

/// Where single heads stand in a row.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Width of a row.
    pub cols: usize,
    /// Column of the first head.
    pub first_col: usize,
    /// How many heads, one after the other.
    pub heads: usize,
}

/// Norms single heads in place, each `weight.len()` wide.
///
/// # Panics
/// When the heads reach beyond a row.
pub fn head_norm(machine: &mut Machine, x: &mut [f32], at: Heads, weight: &[f32], eps: f32) {
    let isa = machine.isa;
    machine.for_rows(x, at.cols, |_, x| {
        for row in x.chunks_exact_mut(at.cols) {
            let x = &mut row[at.first_col..][..at.heads * weight.len()];
            isa.dispatch(NormInPlace { x, weight, eps });
        }
    });
}

/// Rows as wide as the weight.
struct NormInPlace<'a> {
    x: &'a mut [f32],
    weight: &'a [f32],
    eps: f32,
}

impl Kernel for NormInPlace<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Bf16>(self, simd: S) {
        for row in self.x.chunks_exact_mut(self.weight.len()) {
            norm_row(simd, row, self.weight, self.eps);
        }
    }
}

/// Rows and residual, as wide as the weight.
struct AddNorm<'a> {
    x: &'a mut [f32],
    residual: &'a mut [f32],
    weight: &'a [f32],
    eps: f32,
}

impl Kernel for AddNorm<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Bf16>(self, simd: S) {
        let cols = self.weight.len();
        let residual = self.residual.chunks_exact_mut(cols);
        for (row, residual) in self.x.chunks_exact_mut(cols).zip(residual) {
            for (x, sum) in row.iter_mut().zip(residual) {
                *sum += *x;
                *x = *sum;
            }
            norm_row(simd, row, self.weight, self.eps);
        }
    }
}

#[inline(always)]
fn norm_row<S: Simd>(simd: S, row: &mut [f32], weight: &[f32], eps: f32) {
    let mean = sum_of_squares(simd, row) / row.len() as f32;
    let factor = 1.0 / (mean + eps).sqrt();
    for (x, weight) in row.iter_mut().zip(weight) {
        *x = *x * factor * weight;
    }
}

/// Lane by lane, then over the lanes: an order that depends on the width only.
#[inline(always)]
fn sum_of_squares<S: Simd>(simd: S, x: &[f32]) -> f32 {
    let (whole, rest) = x.as_chunks::<LANES>();
    let last = simd.load_padded(rest, 0.0);
    let mut sums = simd.mul(last, last);
    for x in whole {
        let x = simd.load(x);
        sums = simd.mul_add(x, x, sums);
    }
    simd.sum(sums)
}
