//! The register tile under `linear` and `attention`: R rows of prepared inputs times P panels of sixteen outputs.
//!
//! Every output adds its products to one f32 accumulator, from the first step to the last. No tile shape changes that order,
//! which is what makes a row's bits independent of the rows beside it.

use crate::aligned::{LANES, Line};
use crate::simd::{Bf16, Kernel, Simd};

/// How numbers are multiplied: what a step of prepared inputs and a line of a panel hold.
pub(crate) trait Element<S: Bf16>: Copy + 'static {
    /// The inputs of a step, broadcast.
    type X: Copy;
    /// A line of a panel.
    type W: Copy;
    /// Inputs per step.
    const INPUTS: usize;
    /// Words per step of prepared inputs.
    const WORDS: usize;

    /// Prepares a row; `out` takes `x.len().div_ceil(INPUTS) * WORDS` words. A missing last input counts as zero.
    fn prepare(simd: S, x: &[f32], out: &mut [u32]);
    fn inputs(simd: S, words: &[u32]) -> Self::X;
    fn line(simd: S, line: &Line) -> Self::W;
    fn mul_add(simd: S, x: Self::X, w: Self::W, acc: S::V) -> S::V;
}

/// Products of f32.
#[derive(Clone, Copy)]
pub(crate) struct SingleElement;

/// Products of bf16.
#[derive(Clone, Copy)]
pub(crate) struct Bf16Element;

impl<S: Bf16> Element<S> for SingleElement {
    type X = S::V;
    type W = S::V;
    const INPUTS: usize = 1;
    const WORDS: usize = 1;

    #[inline(always)]
    fn prepare(_: S, x: &[f32], out: &mut [u32]) {
        for (word, x) in out[..x.len()].iter_mut().zip(x) {
            *word = x.to_bits();
        }
    }
    #[inline(always)]
    fn inputs(simd: S, words: &[u32]) -> S::V {
        simd.splat(f32::from_bits(words[0]))
    }
    #[inline(always)]
    fn line(simd: S, line: &Line) -> S::V {
        simd.load_bits(line)
    }
    #[inline(always)]
    fn mul_add(simd: S, x: S::V, w: S::V, acc: S::V) -> S::V {
        simd.mul_add(x, w, acc)
    }
}

impl<S: Bf16> Element<S> for Bf16Element {
    type X = S::X;
    type W = S::W;
    const INPUTS: usize = 2;
    const WORDS: usize = S::PAIR_WORDS;

    #[inline(always)]
    fn prepare(simd: S, x: &[f32], out: &mut [u32]) {
        let (whole, rest) = x.as_chunks::<{ 2 * LANES }>();
        let words = LANES * S::PAIR_WORDS;
        for (x, out) in whole.iter().zip(out.chunks_exact_mut(words)) {
            simd.prepare(x, out);
        }
        if !rest.is_empty() {
            let mut padded = [0.0; 2 * LANES];
            padded[..rest.len()].copy_from_slice(rest);
            let mut last = [0; 2 * LANES];
            simd.prepare(&padded, &mut last[..words]);
            let kept = rest.len().div_ceil(2) * S::PAIR_WORDS;
            out[whole.len() * words..][..kept].copy_from_slice(&last[..kept]);
        }
    }
    #[inline(always)]
    fn inputs(simd: S, words: &[u32]) -> S::X {
        simd.pair(words)
    }
    #[inline(always)]
    fn line(simd: S, line: &Line) -> S::W {
        simd.line(line)
    }
    #[inline(always)]
    fn mul_add(simd: S, x: S::X, w: S::W, acc: S::V) -> S::V {
        simd.dot(x, w, acc)
    }
}

/// Panels of a tile of `rows` rows. A single row leaves registers free, and reading several panels at once keeps the memory busy.
pub(crate) const fn panels_per_tile<S: Simd>(rows: usize) -> usize {
    if rows == 1 { 4 } else { S::TILE.1 }
}

/// Rows of the largest tile of an instruction set.
pub(crate) struct TileRows;

impl Kernel for TileRows {
    type Output = usize;
    #[inline(always)]
    fn run<S: Bf16>(self, _: S) -> usize {
        S::TILE.0
    }
}

/// Evaluates `$body` with the constant `$R` equal to `$rows`, which is in `1 ..= 6`.
macro_rules! with_rows {
    ($rows:expr, $R:ident => $body:expr) => {
        match $rows {
            1 => {
                const $R: usize = 1;
                $body
            }
            2 => {
                const $R: usize = 2;
                $body
            }
            3 => {
                const $R: usize = 3;
                $body
            }
            4 => {
                const $R: usize = 4;
                $body
            }
            5 => {
                const $R: usize = 5;
                $body
            }
            _ => {
                const $R: usize = 6;
                $body
            }
        }
    };
}
pub(crate) use with_rows;
