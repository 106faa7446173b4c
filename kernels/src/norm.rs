//! RMS norms: of rows, of rows after an addition (also on their way into a product), and of single heads in place.
//! `rms(v) = sqrt(mean(v²) + eps)`; Zhang and Sennrich, Root Mean Square Layer Normalization.

use crate::aligned::LANES;
use crate::disjoint::Disjoint;
use crate::rows::{PIECE, ToPrepare, piece_words, prepare_row};
use crate::simd::{Bf16, Int8, Kernel, Simd};
use crate::{Machine, PreparedRows, RowForm};

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

/// How rows are normed that are multiplied next.
#[derive(Clone, Copy, Debug)]
pub struct NormBefore<'a> {
    /// Factors, as many as a row has numbers.
    pub weight: &'a [f32],
    /// Added to the mean square.
    pub eps: f32,
    /// What they are multiplied as.
    pub form: RowForm,
}

/// `residual += x`, then prepares `rms_norm(residual)` to be multiplied: what `add_rms_norm` computes, without a stop in memory.
///
/// # Panics
/// When the lengths do not fit together.
pub fn prepare_add_norm(
    machine: &mut Machine,
    x: &[f32],
    residual: &mut [f32],
    norm: NormBefore<'_>,
    prepared: &mut PreparedRows,
) {
    assert_eq!(x.len(), residual.len(), "rows and residual");
    let (isa, cols) = (machine.isa, norm.weight.len());
    let shape = ToPrepare {
        form: norm.form,
        rows: x.len().checked_div(cols).unwrap_or(0),
        cols,
        cost: 2 * cols,
    };
    let residual = Disjoint::new(residual);
    prepared.fill_by(machine, shape, |first, words, row_words| {
        let (start, len) = (first * cols, words.len() / row_words * cols);
        isa.dispatch(PrepareAddNorm {
            x: &x[start..][..len],
            // SAFETY: the same rows as those of `words`, which belong to one task.
            residual: unsafe { residual.part(start, len) },
            norm,
            words,
            row_words,
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

/// Rows and residual, as wide as the weight, and where they are prepared.
struct PrepareAddNorm<'a> {
    x: &'a [f32],
    residual: &'a mut [f32],
    norm: NormBefore<'a>,
    words: &'a mut [u32],
    row_words: usize,
}

impl Kernel for PrepareAddNorm<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Int8>(self, simd: S) {
        let NormBefore { weight, eps, form } = self.norm;
        let rows = self.x.chunks_exact(weight.len());
        let rows = rows.zip(self.residual.chunks_exact_mut(weight.len()));
        let mut piece = [0.0; PIECE];
        for ((x, row), words) in rows.zip(self.words.chunks_exact_mut(self.row_words)) {
            for (sum, x) in row.iter_mut().zip(x) {
                *sum += *x;
            }
            let factor = norm_factor(simd, row, eps);
            let pieces = row.chunks(PIECE).zip(weight.chunks(PIECE));
            for ((row, weight), words) in pieces.zip(words.chunks_mut(piece_words::<S>(form))) {
                let piece = &mut piece[..row.len()];
                for ((out, x), weight) in piece.iter_mut().zip(row).zip(weight) {
                    *out = *x * factor * weight;
                }
                prepare_row(simd, form, piece, words);
            }
        }
    }
}

/// `1 / rms(row)`.
#[inline(always)]
fn norm_factor<S: Simd>(simd: S, row: &[f32], eps: f32) -> f32 {
    let mean = sum_of_squares(simd, row) / row.len() as f32;
    1.0 / (mean + eps).sqrt()
}

#[inline(always)]
fn norm_row<S: Simd>(simd: S, row: &mut [f32], weight: &[f32], eps: f32) {
    let factor = norm_factor(simd, row, eps);
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
