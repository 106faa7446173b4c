//! Products of bytes with AVX-512: by `vpdpbusd` or, without VNNI, by widening to i16. The latter is exact too: `vpmaddubsw`,
//! which saturates, is not used.

use super::avx512::{Avx512, Avx512Bf16, Avx512Vnni};
use super::{Int8, Simd, by_intrinsics, widened_quads};
use crate::aligned::Line;
use std::arch::x86_64::*;

/// What does not depend on how bytes are multiplied.
macro_rules! bytes_and_words {
    () => {
        by_intrinsics! {
            splat_int(x: i32) -> __m512i = _mm512_set1_epi32(x);
            to_float(x: __m512i) -> __m512 = _mm512_cvtepi32_ps(x);
            bytes(line: &Line) -> __m512i = _mm512_loadu_si512(line.as_ptr().cast());
            low_nibbles(b: __m512i) -> __m512i = _mm512_and_si512(b, _mm512_set1_epi8(15));
            high_nibbles(b: __m512i) -> __m512i =
                _mm512_and_si512(_mm512_srli_epi16::<4>(b), _mm512_set1_epi8(15));
            six_bits(nibbles: __m512i, bits: __m512i) -> __m512i =
                _mm512_or_si512(nibbles, _mm512_and_si512(bits, _mm512_set1_epi8(0x30)));
            turn_two_bits(b: __m512i) -> __m512i = _mm512_ror_epi32::<2>(b);
            halves(line: &Line, half: usize) -> __m512 = {
                let halves: &[u32; 8] = &line.as_chunks().0[half];
                _mm512_cvtph_ps(_mm256_loadu_si256(halves.as_ptr().cast()))
            };
            signed_bytes(line: &Line, quarter: usize) -> __m512 = {
                let bytes: &[u32; 4] = &line.as_chunks().0[quarter];
                _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(bytes.as_ptr().cast())))
            };
        }
    };
}

macro_rules! vnni {
    ($permission:ty, $tile:expr) => {
        impl Int8 for $permission {
            type I = __m512i;
            type Q = __m512i;
            type B = __m512i;
            type U = __m512i;
            const QUAD_WORDS: usize = 1;
            const INT_TILE: (usize, usize) = $tile;

            #[inline(always)]
            fn quad(self, words: &[u32]) -> __m512i {
                self.splat_int(words[0] as i32)
            }
            #[inline(always)]
            fn quads(self, b: __m512i) -> __m512i {
                b
            }
            #[inline(always)]
            fn prepare_quads(self, whole: __m512, out: &mut [u32]) {
                let out: &mut [u32; 4] = &mut out.as_chunks_mut().0[0];
                // SAFETY: `self` exists only where `Isa` found AVX-512; the store is unaligned, to a reference to 16 bytes.
                unsafe {
                    let bytes = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(whole));
                    _mm_storeu_si128(out.as_mut_ptr().cast(), bytes);
                }
            }
            #[inline(always)]
            fn largest(self, x: [__m512; 4]) -> f32 {
                // SAFETY: `self` exists only where `Isa` found AVX-512.
                let bits = unsafe {
                    // Without their signs numbers are ordered as their bits are, and what is no number comes last.
                    let sign = _mm512_set1_epi32(i32::MAX);
                    let bits = |x| _mm512_and_si512(_mm512_castps_si512(x), sign);
                    let low = _mm512_max_epu32(bits(x[0]), bits(x[1]));
                    let high = _mm512_max_epu32(bits(x[2]), bits(x[3]));
                    _mm512_reduce_max_epu32(_mm512_max_epu32(low, high))
                };
                f32::from_bits(bits)
            }
            #[inline(always)]
            fn round_quads(self, x: [__m512; 4], out: &mut [u32]) -> [i32; 4] {
                let out: &mut Line = &mut out.as_chunks_mut().0[0];
                let mut sums = [0; 4];
                // SAFETY: `self` exists only where `Isa` found AVX-512 and VNNI; stores are unaligned, to references of their width.
                unsafe {
                    let bytes = |x| _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x));
                    let quads = _mm512_castsi128_si512(bytes(x[0]));
                    let quads = _mm512_inserti32x4::<1>(quads, bytes(x[1]));
                    let quads = _mm512_inserti32x4::<2>(quads, bytes(x[2]));
                    let quads = _mm512_inserti32x4::<3>(quads, bytes(x[3]));
                    _mm512_storeu_si512(out.as_mut_ptr().cast(), quads);
                    // Sixteen numbers are four quads: a quarter of the register.
                    let ones = _mm512_set1_epi8(1);
                    let by_4 = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, quads);
                    let by_8 = _mm512_add_epi32(by_4, _mm512_shuffle_epi32::<0b10_11_00_01>(by_4));
                    let by_16 = _mm512_add_epi32(by_8, _mm512_shuffle_epi32::<0b01_00_11_10>(by_8));
                    let firsts = _mm512_castsi128_si512(_mm_setr_epi32(0, 4, 8, 12));
                    let by_16 = _mm512_permutexvar_epi32(firsts, by_16);
                    _mm_storeu_si128(sums.as_mut_ptr().cast(), _mm512_castsi512_si128(by_16));
                }
                sums
            }
            by_intrinsics! {
                dot_quads(x: __m512i, w: __m512i, acc: __m512i) -> __m512i = _mm512_dpbusd_epi32(acc, w, x);
            }
            bytes_and_words!();
        }
    };
}

vnni!(Avx512Vnni, (6, 2));
vnni!(Avx512Bf16, (6, 2));

impl Int8 for Avx512 {
    type I = __m512i;
    type Q = (__m512i, __m512i);
    type B = __m512i;
    /// Inputs 0 and 2 of each quad as i16, and inputs 1 and 3.
    type U = (__m512i, __m512i);
    const QUAD_WORDS: usize = 2;
    const INT_TILE: (usize, usize) = (4, 2);

    #[inline(always)]
    fn quad(self, words: &[u32]) -> Self::Q {
        (
            self.splat_int(words[0] as i32),
            self.splat_int(words[1] as i32),
        )
    }
    #[inline(always)]
    fn prepare_quads(self, whole: __m512, out: &mut [u32]) {
        widened_quads(&self.to_array(whole), out);
    }
    by_intrinsics! {
        quads(b: __m512i) -> Self::U =
            (_mm512_and_si512(b, _mm512_set1_epi16(0xff)), _mm512_srli_epi16::<8>(b));
        dot_quads(x: Self::Q, w: Self::U, acc: __m512i) -> __m512i = {
            let sum = _mm512_add_epi32(_mm512_madd_epi16(w.0, x.0), _mm512_madd_epi16(w.1, x.1));
            _mm512_add_epi32(acc, sum)
        };
    }
    bytes_and_words!();
}
