//! One step of a product as a multiplying loop does it, for floats (`tile::Element`) and for bytes.

use crate::aligned::{LANES, Line};
use crate::simd::Int8;
use crate::tile::Element;

/// Most words of a prepared step.
const WORDS: usize = 2;

/// One step of a product, with sums of its own kind.
pub(super) trait Operand<S: Int8> {
    type X: Copy;
    type W: Copy;
    type Sum: Copy;

    /// The words of a step whose inputs are all one.
    fn ones(simd: S) -> [u32; WORDS];
    fn inputs(simd: S, words: &[u32; WORDS]) -> Self::X;
    fn line(simd: S, line: &Line) -> Self::W;
    fn zero(simd: S) -> Self::Sum;
    fn mul_add(simd: S, x: Self::X, w: Self::W, sum: Self::Sum) -> Self::Sum;
    fn float(simd: S, sum: Self::Sum) -> S::V;
}

impl<S: Int8, E: Element<S>> Operand<S> for E {
    type X = E::X;
    type W = E::W;
    type Sum = S::V;

    #[inline(always)]
    fn ones(simd: S) -> [u32; WORDS] {
        let mut words = [0; WORDS];
        E::prepare(simd, &[1.0, 1.0][..E::INPUTS], &mut words);
        words
    }
    #[inline(always)]
    fn inputs(simd: S, words: &[u32; WORDS]) -> E::X {
        E::inputs(simd, &words[..E::WORDS])
    }
    #[inline(always)]
    fn line(simd: S, line: &Line) -> E::W {
        E::line(simd, line)
    }
    #[inline(always)]
    fn zero(simd: S) -> S::V {
        simd.splat(0.0)
    }
    #[inline(always)]
    fn mul_add(simd: S, x: E::X, w: E::W, sum: S::V) -> S::V {
        E::mul_add(simd, x, w, sum)
    }
    #[inline(always)]
    fn float(_: S, sum: S::V) -> S::V {
        sum
    }
}

/// Quads of bytes.
pub(super) struct Quads;

impl<S: Int8> Operand<S> for Quads {
    type X = S::Q;
    type W = S::U;
    type Sum = S::I;

    #[inline(always)]
    fn ones(simd: S) -> [u32; WORDS] {
        let mut quads = [0; LANES / 4 * WORDS];
        simd.prepare_quads(simd.splat(1.0), &mut quads[..LANES / 4 * S::QUAD_WORDS]);
        [quads[0], quads[1]]
    }
    #[inline(always)]
    fn inputs(simd: S, words: &[u32; WORDS]) -> S::Q {
        simd.quad(&words[..S::QUAD_WORDS])
    }
    #[inline(always)]
    fn line(simd: S, line: &Line) -> S::U {
        simd.quads(simd.bytes(line))
    }
    #[inline(always)]
    fn zero(simd: S) -> S::I {
        simd.splat_int(0)
    }
    #[inline(always)]
    fn mul_add(simd: S, x: S::Q, w: S::U, sum: S::I) -> S::I {
        simd.dot_quads(x, w, sum)
    }
    #[inline(always)]
    fn float(simd: S, sum: S::I) -> S::V {
        simd.to_float(sum)
    }
}
