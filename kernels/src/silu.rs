//! The gate of a feed-forward block: `silu(gate) * up`, `silu(v) = v / (1 + e^-v)`.

use crate::aligned::LANES;
use crate::exp::exp;
use crate::rows::{PIECE, ToPrepare, piece_words, prepare_row};
use crate::simd::{Int8, Kernel, Simd};
use crate::{Machine, PreparedRows, RowForm};

/// An output costs as much as so many elements of a simple operator.
const COST: usize = 4;

/// `out = silu(gate) * up`: rows of x are `[gate | up]`, rows of out are `cols` wide.
///
/// # Panics
/// When the lengths do not fit together.
pub fn silu_mul(machine: &mut Machine, x: &[f32], cols: usize, out: &mut [f32]) {
    assert_eq!(x.len(), 2 * out.len(), "gate and up for each output");
    let isa = machine.isa;
    machine.for_costly_rows(out, cols, COST * cols, |first, out| {
        let x = &x[2 * first * cols..][..2 * out.len()];
        isa.dispatch(SiluMul { x, cols, out });
    });
}

/// Prepares `silu(gate) * up` of rows `[gate | up]` to be multiplied next: what `silu_mul` computes, without a stop in memory. A row
/// of the result is `cols` wide.
pub fn prepare_silu_mul(
    machine: &mut Machine,
    x: &[f32],
    cols: usize,
    form: RowForm,
    prepared: &mut PreparedRows,
) {
    let isa = machine.isa;
    let rows = x.len().checked_div(2 * cols).unwrap_or(0);
    let shape = ToPrepare {
        form,
        rows,
        cols,
        cost: COST * cols,
    };
    prepared.fill_by(machine, shape, |first, words, row_words| {
        let x = &x[2 * first * cols..][..words.len() / row_words * 2 * cols];
        isa.dispatch(PrepareSiluMul {
            x,
            cols,
            form,
            words,
            row_words,
        });
    });
}

struct PrepareSiluMul<'a> {
    x: &'a [f32],
    cols: usize,
    form: RowForm,
    words: &'a mut [u32],
    row_words: usize,
}

impl Kernel for PrepareSiluMul<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Int8>(self, simd: S) {
        let rows = self.x.chunks_exact(2 * self.cols);
        let mut piece = [0.0; PIECE];
        for (x, words) in rows.zip(self.words.chunks_exact_mut(self.row_words)) {
            let (gate, up) = x.split_at(self.cols);
            let pieces = gate.chunks(PIECE).zip(up.chunks(PIECE));
            for ((gate, up), words) in pieces.zip(words.chunks_mut(piece_words::<S>(self.form))) {
                let piece = &mut piece[..gate.len()];
                silu_mul_row(simd, gate, up, piece);
                prepare_row(simd, self.form, piece, words);
            }
        }
    }
}

struct SiluMul<'a> {
    x: &'a [f32],
    cols: usize,
    out: &'a mut [f32],
}

impl Kernel for SiluMul<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Int8>(self, simd: S) {
        for (x, out) in self
            .x
            .chunks_exact(2 * self.cols)
            .zip(self.out.chunks_exact_mut(self.cols))
        {
            let (gate, up) = x.split_at(self.cols);
            silu_mul_row(simd, gate, up, out);
        }
    }
}

#[inline(always)]
fn silu_mul_row<S: Simd>(simd: S, gate: &[f32], up: &[f32], out: &mut [f32]) {
    let (gate, gate_rest) = gate.as_chunks::<LANES>();
    let (up, up_rest) = up.as_chunks::<LANES>();
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    for ((gate, up), out) in gate.iter().zip(up).zip(out) {
        simd.store(lanes(simd, simd.load(gate), simd.load(up)), out);
    }
    // Rows come in pieces, and nearly all of them are whole.
    if gate_rest.is_empty() {
        return;
    }
    let (gate, up) = (
        simd.load_padded(gate_rest, 0.0),
        simd.load_padded(up_rest, 0.0),
    );
    simd.store_first(lanes(simd, gate, up), out_rest);
}

#[inline(always)]
fn lanes<S: Simd>(simd: S, gate: S::V, up: S::V) -> S::V {
    let one = simd.splat(1.0);
    let denominator = simd.add(one, exp(simd, simd.sub(simd.splat(0.0), gate)));
    simd.mul(simd.div(gate, denominator), up)
}
