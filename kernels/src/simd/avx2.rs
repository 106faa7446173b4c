//! Sixteen lanes as two 256-bit registers, with AVX2, FMA and F16C.

use super::{Bf16, Int8, Simd, by_intrinsics, widened_quads};
use crate::aligned::{LANES, Line};
use crate::simd::Kernel;
use std::arch::x86_64::*;

/// The permission to use AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

/// Runs `kernel`, compiled for AVX2, FMA and F16C.
///
/// # Safety
/// The machine has all three.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// Lanes 0..8 and 8..16.
#[derive(Clone, Copy)]
pub(crate) struct V(__m256, __m256);

impl Simd for Avx2 {
    type V = V;
    const TILE: (usize, usize) = (4, 1);

    by_intrinsics! {
        splat(x: f32) -> V = V(_mm256_set1_ps(x), _mm256_set1_ps(x));
        load(x: &[f32; LANES]) -> V = V(_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8)));
        load_bits(x: &Line) -> V =
            V(_mm256_loadu_ps(x.as_ptr().cast()), _mm256_loadu_ps(x.as_ptr().add(8).cast()));
        store(v: V, out: &mut [f32; LANES]) = {
            _mm256_storeu_ps(out.as_mut_ptr(), v.0);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), v.1);
        };
        add(a: V, b: V) -> V = V(_mm256_add_ps(a.0, b.0), _mm256_add_ps(a.1, b.1));
        sub(a: V, b: V) -> V = V(_mm256_sub_ps(a.0, b.0), _mm256_sub_ps(a.1, b.1));
        mul(a: V, b: V) -> V = V(_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1));
        div(a: V, b: V) -> V = V(_mm256_div_ps(a.0, b.0), _mm256_div_ps(a.1, b.1));
        mul_add(a: V, b: V, c: V) -> V = V(_mm256_fmadd_ps(a.0, b.0, c.0), _mm256_fmadd_ps(a.1, b.1, c.1));
        max(a: V, b: V) -> V = V(_mm256_max_ps(a.0, b.0), _mm256_max_ps(a.1, b.1));
        min(a: V, b: V) -> V = V(_mm256_min_ps(a.0, b.0), _mm256_min_ps(a.1, b.1));
        if_less(a: V, b: V, yes: V, no: V) -> V = V(
            _mm256_blendv_ps(no.0, yes.0, _mm256_cmp_ps::<_CMP_LT_OQ>(a.0, b.0)),
            _mm256_blendv_ps(no.1, yes.1, _mm256_cmp_ps::<_CMP_LT_OQ>(a.1, b.1)),
        );
        any_less(a: V, b: V) -> bool = {
            let less = (_mm256_cmp_ps::<_CMP_LT_OQ>(a.0, b.0), _mm256_cmp_ps::<_CMP_LT_OQ>(a.1, b.1));
            _mm256_movemask_ps(_mm256_or_ps(less.0, less.1)) != 0
        };
        prefetch(line: *const Line) = _mm_prefetch::<_MM_HINT_T1>(line.cast());
        pow2(t: V) -> V = V(pow2(t.0), pow2(t.1));
    }
}

impl Bf16 for Avx2 {
    type X = (V, V);
    type W = (V, V);
    const PAIR_WORDS: usize = 2;

    #[inline(always)]
    fn prepare(self, x: &[f32; 2 * LANES], out: &mut [u32]) {
        let (out, _) = out.as_chunks_mut::<8>();
        for (x, out) in x.as_chunks::<8>().0.iter().zip(out) {
            // SAFETY: `self` exists only where `Isa` found AVX2; load and store are unaligned, on references to 32 bytes.
            unsafe {
                _mm256_storeu_si256(out.as_mut_ptr().cast(), round(_mm256_loadu_ps(x.as_ptr())))
            }
        }
    }
    #[inline(always)]
    fn pair(self, words: &[u32]) -> (V, V) {
        (
            self.splat(f32::from_bits(words[0])),
            self.splat(f32::from_bits(words[1])),
        )
    }
    by_intrinsics! {
        line(line: &Line) -> (V, V) = {
            let low = _mm256_loadu_si256(line.as_ptr().cast());
            let high = _mm256_loadu_si256(line.as_ptr().add(8).cast());
            (V(first(low), first(high)), V(second(low), second(high)))
        };
    }
    #[inline(always)]
    fn dot(self, x: (V, V), w: (V, V), acc: V) -> V {
        self.mul_add(x.1, w.1, self.mul_add(x.0, w.0, acc))
    }
}

/// Sixty-four bytes or sixteen i32, likewise.
#[derive(Clone, Copy)]
pub(crate) struct Words(__m256i, __m256i);

impl Int8 for Avx2 {
    type I = Words;
    type Q = (__m256i, __m256i);
    type B = Words;
    /// Inputs 0 and 2 of each quad as i16, and inputs 1 and 3.
    type U = (Words, Words);
    const QUAD_WORDS: usize = 2;
    const INT_TILE: (usize, usize) = (2, 1);

    #[inline(always)]
    fn prepare_quads(self, whole: V, out: &mut [u32]) {
        widened_quads(&self.to_array(whole), out);
    }
    #[inline(always)]
    fn quad(self, words: &[u32]) -> Self::Q {
        let (even, odd) = (words[0] as i32, words[1] as i32);
        // SAFETY: `self` exists only where `Isa` found AVX2.
        unsafe { (_mm256_set1_epi32(even), _mm256_set1_epi32(odd)) }
    }
    by_intrinsics! {
        splat_int(x: i32) -> Words = Words(_mm256_set1_epi32(x), _mm256_set1_epi32(x));
        to_float(x: Words) -> V = V(_mm256_cvtepi32_ps(x.0), _mm256_cvtepi32_ps(x.1));
        bytes(line: &Line) -> Words = Words(
            _mm256_loadu_si256(line.as_ptr().cast()),
            _mm256_loadu_si256(line.as_ptr().add(8).cast()),
        );
        low_nibbles(b: Words) -> Words = {
            let mask = _mm256_set1_epi8(15);
            Words(_mm256_and_si256(b.0, mask), _mm256_and_si256(b.1, mask))
        };
        high_nibbles(b: Words) -> Words = {
            let mask = _mm256_set1_epi8(15);
            Words(
                _mm256_and_si256(_mm256_srli_epi16::<4>(b.0), mask),
                _mm256_and_si256(_mm256_srli_epi16::<4>(b.1), mask),
            )
        };
        six_bits(nibbles: Words, bits: Words) -> Words = {
            let mask = _mm256_set1_epi8(0x30);
            Words(
                _mm256_or_si256(nibbles.0, _mm256_and_si256(bits.0, mask)),
                _mm256_or_si256(nibbles.1, _mm256_and_si256(bits.1, mask)),
            )
        };
        turn_two_bits(b: Words) -> Words = Words(
            _mm256_or_si256(_mm256_srli_epi32::<2>(b.0), _mm256_slli_epi32::<30>(b.0)),
            _mm256_or_si256(_mm256_srli_epi32::<2>(b.1), _mm256_slli_epi32::<30>(b.1)),
        );
        quads(b: Words) -> Self::U = {
            let mask = _mm256_set1_epi16(0xff);
            (
                Words(_mm256_and_si256(b.0, mask), _mm256_and_si256(b.1, mask)),
                Words(_mm256_srli_epi16::<8>(b.0), _mm256_srli_epi16::<8>(b.1)),
            )
        };
        dot_quads(x: Self::Q, w: Self::U, acc: Words) -> Words = {
            let first = _mm256_add_epi32(_mm256_madd_epi16(w.0.0, x.0), _mm256_madd_epi16(w.1.0, x.1));
            let second = _mm256_add_epi32(_mm256_madd_epi16(w.0.1, x.0), _mm256_madd_epi16(w.1.1, x.1));
            Words(_mm256_add_epi32(acc.0, first), _mm256_add_epi32(acc.1, second))
        };
        halves(line: &Line, half: usize) -> V = {
            let parts = line.as_chunks::<4>().0;
            V(
                _mm256_cvtph_ps(_mm_loadu_si128(parts[2 * half].as_ptr().cast())),
                _mm256_cvtph_ps(_mm_loadu_si128(parts[2 * half + 1].as_ptr().cast())),
            )
        };
        signed_bytes(line: &Line, quarter: usize) -> V = {
            let bytes = _mm_loadu_si128(line.as_chunks::<4>().0[quarter].as_ptr().cast());
            V(
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes))),
            )
        };
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn pow2(t: __m256) -> __m256 {
    let shifted = _mm256_slli_epi32::<23>(_mm256_castps_si256(t));
    _mm256_castsi256_ps(_mm256_add_epi32(shifted, _mm256_set1_epi32(0x3f80_0000)))
}

/// The bf16 in the low halves, widened.
#[inline]
#[target_feature(enable = "avx2")]
fn first(pairs: __m256i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs))
}

/// The bf16 in the high halves, widened.
#[inline]
#[target_feature(enable = "avx2")]
fn second(pairs: __m256i) -> __m256 {
    _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-0x1_0000)))
}

/// Rounds to bf16, to nearest, ties to even; the result is an f32 again. NaN stays NaN.
#[inline]
#[target_feature(enable = "avx2")]
fn round(x: __m256) -> __m256i {
    let bits = _mm256_castps_si256(x);
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
    let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
    _mm256_and_si256(
        _mm256_blendv_epi8(up, quiet, nan),
        _mm256_set1_epi32(-0x1_0000),
    )
}
