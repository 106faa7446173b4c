//! Sixteen lanes as one 512-bit register, with AVX-512; bf16 products by `vdpbf16ps` or, without it, by widening.
//! Products of bytes stand in `avx512_int8`.

use super::{Bf16, Simd, by_intrinsics};
use crate::aligned::{LANES, Line};
use crate::simd::Kernel;
use std::arch::x86_64::*;

/// The permission to use AVX-512 F, BW, VL and DQ.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

/// The permission to use AVX-512 VNNI as well.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Vnni(());

/// The permission to use AVX-512 VNNI and BF16 as well.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Bf16(());

/// Runs `kernel`, compiled for AVX-512.
///
/// # Safety
/// The machine has AVX-512 F, BW, VL and DQ, AVX2 and FMA.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
pub(crate) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512(()))
}

/// Runs `kernel`, compiled for AVX-512 with VNNI.
///
/// # Safety
/// The machine has what `run` asks for and AVX-512 VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma")]
pub(crate) unsafe fn run_vnni<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512Vnni(()))
}

/// Runs `kernel`, compiled for AVX-512 with VNNI and BF16.
///
/// # Safety
/// The machine has what `run_vnni` asks for and AVX-512 BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,avx2,fma")]
pub(crate) unsafe fn run_bf16<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512Bf16(()))
}

macro_rules! f32_lanes {
    ($permission:ty, $tile:expr) => {
        impl Simd for $permission {
            type V = __m512;
            const TILE: (usize, usize) = $tile;

            by_intrinsics! {
                splat(x: f32) -> __m512 = _mm512_set1_ps(x);
                load(x: &[f32; LANES]) -> __m512 = _mm512_loadu_ps(x.as_ptr());
                load_bits(x: &Line) -> __m512 = _mm512_loadu_ps(x.as_ptr().cast());
                store(v: __m512, out: &mut [f32; LANES]) = _mm512_storeu_ps(out.as_mut_ptr(), v);
                add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
                sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
                mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
                div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
                mul_add(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
                max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
                min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
                if_less(a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 =
                    _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), no, yes);
                any_less(a: __m512, b: __m512) -> bool = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) != 0;
                prefetch(line: *const Line) = _mm_prefetch::<_MM_HINT_T1>(line.cast());
                // As the defaults of the trait: halves to halves.
                sum(v: __m512) -> f32 = _mm512_reduce_add_ps(v);
                highest(v: __m512) -> f32 = {
                    let v = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
                    let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
                    let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
                    _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
                };
                pow2(t: __m512) -> __m512 = _mm512_castsi512_ps(_mm512_add_epi32(
                    _mm512_slli_epi32::<23>(_mm512_castps_si512(t)),
                    _mm512_set1_epi32(0x3f80_0000),
                ));
            }
        }
    };
}

f32_lanes!(Avx512, (6, 2));
f32_lanes!(Avx512Vnni, (6, 2));
f32_lanes!(Avx512Bf16, (6, 4));

macro_rules! widened_bf16 {
    ($permission:ty) => {
impl Bf16 for $permission {
    type X = (__m512, __m512);
    type W = (__m512, __m512);
    const PAIR_WORDS: usize = 2;

    #[inline(always)]
    fn prepare(self, x: &[f32; 2 * LANES], out: &mut [u32]) {
        let (out, _) = out.as_chunks_mut::<LANES>();
        for (x, out) in x.as_chunks::<LANES>().0.iter().zip(out) {
            // SAFETY: `self` exists only where `Isa` found AVX-512; load and store are unaligned, on references to 64 bytes.
            unsafe {
                _mm512_storeu_si512(out.as_mut_ptr().cast(), round(_mm512_loadu_ps(x.as_ptr())))
            }
        }
    }
    #[inline(always)]
    fn pair(self, words: &[u32]) -> Self::X {
        (
            self.splat(f32::from_bits(words[0])),
            self.splat(f32::from_bits(words[1])),
        )
    }
    by_intrinsics! {
        line(line: &Line) -> (__m512, __m512) = {
            let pairs = _mm512_loadu_si512(line.as_ptr().cast());
            let second = _mm512_and_si512(pairs, _mm512_set1_epi32(-0x1_0000));
            (_mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_castsi512_ps(second))
        };
    }
    #[inline(always)]
    fn dot(self, x: Self::X, w: Self::W, acc: __m512) -> __m512 {
        self.mul_add(x.1, w.1, self.mul_add(x.0, w.0, acc))
    }
}
    };
}

widened_bf16!(Avx512);
widened_bf16!(Avx512Vnni);

impl Bf16 for Avx512Bf16 {
    type X = __m512i;
    type W = __m512i;
    const PAIR_WORDS: usize = 1;

    #[inline(always)]
    fn prepare(self, x: &[f32; 2 * LANES], out: &mut [u32]) {
        let (halves, _) = x.as_chunks::<LANES>();
        let (low, high) = (self.load(&halves[0]), self.load(&halves[1]));
        let out: &mut Line = &mut out.as_chunks_mut().0[0];
        // SAFETY: `self` exists only where `Isa` found AVX-512 BF16; the store is unaligned, to a reference to 64 bytes.
        unsafe {
            let pairs = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
            _mm512_storeu_si512(out.as_mut_ptr().cast(), pairs);
        }
    }
    #[inline(always)]
    fn pair(self, words: &[u32]) -> __m512i {
        let pair = words[0] as i32;
        // SAFETY: `self` exists only where `Isa` found AVX-512.
        unsafe { _mm512_set1_epi32(pair) }
    }
    by_intrinsics! {
        line(line: &Line) -> __m512i = _mm512_loadu_si512(line.as_ptr().cast());
        dot(x: __m512i, w: __m512i, acc: __m512) -> __m512 = {
            let x = std::mem::transmute::<__m512i, __m512bh>(x);
            _mm512_dpbf16_ps(acc, x, std::mem::transmute::<__m512i, __m512bh>(w))
        };
    }
}

/// Rounds to bf16, to nearest, ties to even; the result is an f32 again. NaN stays NaN.
#[inline]
#[target_feature(enable = "avx512f")]
fn round(x: __m512) -> __m512i {
    let bits = _mm512_castps_si512(x);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    let up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
    _mm512_and_si512(
        _mm512_mask_blend_epi32(nan, up, quiet),
        _mm512_set1_epi32(-0x1_0000),
    )
}
