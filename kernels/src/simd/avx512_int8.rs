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
