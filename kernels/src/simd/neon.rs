//! Sixteen lanes as four 128-bit registers of NEON, which every aarch64 has. bf16 products widen the numbers and keep the order of
//! the sets without bf16 instructions; products of bytes use `sdot` where the machine has it.

use super::{Bf16, Int8, Simd, by_intrinsics};
use crate::aligned::{LANES, Line};
use crate::simd::Kernel;
use half::bf16;
use std::arch::aarch64::*;
use std::arch::asm;

/// The permission to use NEON.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

/// The permission to use the dot products of NEON as well.
#[derive(Clone, Copy)]
pub(crate) struct NeonDot(());

/// Runs `kernel`, compiled for NEON.
///
/// # Safety
/// The machine has NEON and its half-precision conversions (all of aarch64 does).
#[target_feature(enable = "neon")]
pub(crate) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Neon(()))
}

/// Runs `kernel`, compiled for NEON with dot products.
///
/// # Safety
/// The machine has what `run` asks for and the dot product instructions.
#[target_feature(enable = "neon,dotprod")]
pub(crate) unsafe fn run_dot<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(NeonDot(()))
}

/// Registers of sixteen f32, of sixteen i32, of sixty-four bytes.
type Floats = [float32x4_t; 4];
type Ints = [int32x4_t; 4];
type Bytes = [uint8x16_t; 4];

/// One instruction for each of the four registers. Not `map`: a closure would lose the instruction set.
macro_rules! each {
    ($i:ident => $body:expr) => {
        [
            {
                const $i: usize = 0;
                $body
            },
            {
                const $i: usize = 1;
                $body
            },
            {
                const $i: usize = 2;
                $body
            },
            {
                const $i: usize = 3;
                $body
            },
        ]
    };
}

macro_rules! floats {
    ($permission:ty) => {
        impl Simd for $permission {
            type V = Floats;
            const TILE: (usize, usize) = (4, 1);

            by_intrinsics! {
                splat(x: f32) -> Floats = [vdupq_n_f32(x); 4];
                load(x: &[f32; LANES]) -> Floats = each!(I => vld1q_f32(x.as_ptr().add(4 * I)));
                load_bits(x: &Line) -> Floats = each!(I => vreinterpretq_f32_u32(vld1q_u32(x.as_ptr().add(4 * I))));
                store(v: Floats, out: &mut [f32; LANES]) = {
                    for (i, v) in v.iter().enumerate() {
                        vst1q_f32(out.as_mut_ptr().add(4 * i), *v);
                    }
                };
                add(a: Floats, b: Floats) -> Floats = each!(I => vaddq_f32(a[I], b[I]));
                sub(a: Floats, b: Floats) -> Floats = each!(I => vsubq_f32(a[I], b[I]));
                mul(a: Floats, b: Floats) -> Floats = each!(I => vmulq_f32(a[I], b[I]));
                div(a: Floats, b: Floats) -> Floats = each!(I => vdivq_f32(a[I], b[I]));
                mul_add(a: Floats, b: Floats, c: Floats) -> Floats = each!(I => vfmaq_f32(c[I], a[I], b[I]));
                max(a: Floats, b: Floats) -> Floats = each!(I => vbslq_f32(vcgtq_f32(a[I], b[I]), a[I], b[I]));
                min(a: Floats, b: Floats) -> Floats = each!(I => vbslq_f32(vcltq_f32(a[I], b[I]), a[I], b[I]));
                if_less(a: Floats, b: Floats, yes: Floats, no: Floats) -> Floats =
                    each!(I => vbslq_f32(vcltq_f32(a[I], b[I]), yes[I], no[I]));
                any_less(a: Floats, b: Floats) -> bool = {
                    let less = each!(I => vcltq_f32(a[I], b[I]));
                    let any = vorrq_u32(vorrq_u32(less[0], less[1]), vorrq_u32(less[2], less[3]));
                    vmaxvq_u32(any) != 0
                };
                prefetch(line: *const Line) = asm!(
                    "prfm pldl2keep, [{line}]",
                    line = in(reg) line,
                    options(readonly, nostack, preserves_flags),
                );
                pow2(t: Floats) -> Floats = each!(I => vreinterpretq_f32_s32(vaddq_s32(
                    vshlq_n_s32::<23>(vreinterpretq_s32_f32(t[I])),
                    vdupq_n_s32(0x3f80_0000),
                )));
            }
        }

        impl Bf16 for $permission {
            type X = (float32x4_t, float32x4_t);
            type W = (Floats, Floats);
            const PAIR_WORDS: usize = 2;

            #[inline(always)]
            fn prepare(self, x: &[f32; 2 * LANES], out: &mut [u32]) {
                for (word, x) in out[..2 * LANES].iter_mut().zip(x) {
                    *word = u32::from(bf16::from_f32(*x).to_bits()) << 16;
                }
            }
            by_intrinsics! {
                pair(words: &[u32]) -> (float32x4_t, float32x4_t) =
                    (vdupq_n_f32(f32::from_bits(words[0])), vdupq_n_f32(f32::from_bits(words[1])));
                line(line: &Line) -> (Floats, Floats) = {
                    let pairs = each!(I => vld1q_u32(line.as_ptr().add(4 * I)));
                    let second = vdupq_n_u32(0xffff_0000);
                    (
                        each!(I => vreinterpretq_f32_u32(vshlq_n_u32::<16>(pairs[I]))),
                        each!(I => vreinterpretq_f32_u32(vandq_u32(pairs[I], second))),
                    )
                };
                dot(x: Self::X, w: Self::W, acc: Floats) -> Floats =
                    each!(I => vfmaq_f32(vfmaq_f32(acc[I], x.0, w.0[I]), x.1, w.1[I]));
            }
        }
    };
}

floats!(Neon);
floats!(NeonDot);

/// What does not depend on how bytes are multiplied.
macro_rules! bytes_and_words {
    () => {
        by_intrinsics! {
            splat_int(x: i32) -> Ints = [vdupq_n_s32(x); 4];
            to_float(x: Ints) -> Floats = each!(I => vcvtq_f32_s32(x[I]));
            bytes(line: &Line) -> Bytes = each!(I => vreinterpretq_u8_u32(vld1q_u32(line.as_ptr().add(4 * I))));
            low_nibbles(b: Bytes) -> Bytes = each!(I => vandq_u8(b[I], vdupq_n_u8(15)));
            high_nibbles(b: Bytes) -> Bytes = each!(I => vshrq_n_u8::<4>(b[I]));
            six_bits(nibbles: Bytes, bits: Bytes) -> Bytes =
                each!(I => vorrq_u8(nibbles[I], vandq_u8(bits[I], vdupq_n_u8(0x30))));
            turn_two_bits(b: Bytes) -> Bytes = each!(I => {
                let words = vreinterpretq_u32_u8(b[I]);
                vreinterpretq_u8_u32(vorrq_u32(vshrq_n_u32::<2>(words), vshlq_n_u32::<30>(words)))
            });
            halves(line: &Line, half: usize) -> Floats = each!(I => {
                let four: *const u32 = line.as_ptr().add(8 * half + 2 * I);
                widen_halves(vld1_u32(four))
            });
            signed_bytes(line: &Line, quarter: usize) -> Floats = {
                let bytes = vreinterpretq_s8_u32(vld1q_u32(line.as_ptr().add(4 * quarter)));
                let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes)));
                [
                    vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
                    vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
                    vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                    vcvtq_f32_s32(vmovl_s16(vget_high_s16(high))),
                ]
            };
        }
    };
}

impl Int8 for Neon {
    type I = Ints;
    /// The quad once, widened to i16.
    type Q = int16x4_t;
    type B = Bytes;
    type U = Bytes;
    const QUAD_WORDS: usize = 1;
    const INT_TILE: (usize, usize) = (2, 1);

    #[inline(always)]
    fn prepare_quads(self, whole: Floats, out: &mut [u32]) {
        let quads = self.to_array(whole);
        for (quad, out) in quads.as_chunks::<4>().0.iter().zip(out) {
            *out = packed(quad);
        }
    }
    by_intrinsics! {
        quad(words: &[u32]) -> int16x4_t =
            vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(words[0]))));
        quads(b: Bytes) -> Bytes = b;
        dot_quads(x: int16x4_t, w: Bytes, acc: Ints) -> Ints = each!(I => {
            let x = vcombine_s16(x, x);
            let (low, high) = (vmovl_u8(vget_low_u8(w[I])), vmovl_u8(vget_high_u8(w[I])));
            let (low, high) = (vreinterpretq_s16_u16(low), vreinterpretq_s16_u16(high));
            // Four products of output 0 and four of output 1, then of outputs 2 and 3, in i32.
            let first = vpaddq_s32(
                vmull_s16(vget_low_s16(low), vget_low_s16(x)),
                vmull_high_s16(low, x),
            );
            let second = vpaddq_s32(
                vmull_s16(vget_low_s16(high), vget_low_s16(x)),
                vmull_high_s16(high, x),
            );
            vaddq_s32(acc[I], vpaddq_s32(first, second))
        });
    }
    bytes_and_words!();
}

impl Int8 for NeonDot {
    type I = Ints;
    /// The quad in every lane, and 128 times its sum: what makes up for weights that are taken less 128.
    type Q = (int8x16_t, int32x4_t);
    type B = Bytes;
    /// Weights less 128: `sdot` multiplies signed bytes.
    type U = [int8x16_t; 4];
    const QUAD_WORDS: usize = 2;
    const INT_TILE: (usize, usize) = (2, 1);

    #[inline(always)]
    fn prepare_quads(self, whole: Floats, out: &mut [u32]) {
        let quads = self.to_array(whole);
        for (quad, out) in quads
            .as_chunks::<4>()
            .0
            .iter()
            .zip(out.as_chunks_mut::<2>().0)
        {
            let sum: f32 = quad.iter().sum();
            *out = [packed(quad), (128.0 * sum) as i32 as u32];
        }
    }
    by_intrinsics! {
        quad(words: &[u32]) -> Self::Q =
            (vreinterpretq_s8_u32(vdupq_n_u32(words[0])), vdupq_n_s32(words[1] as i32));
        quads(b: Bytes) -> Self::U = each!(I => vreinterpretq_s8_u8(veorq_u8(b[I], vdupq_n_u8(0x80))));
        dot_quads(x: Self::Q, w: Self::U, acc: Ints) -> Ints =
            each!(I => dot(vaddq_s32(acc[I], x.1), w[I], x.0));
    }
    bytes_and_words!();
}

/// Four whole numbers as signed bytes, the first in the low one.
#[inline(always)]
fn packed(quad: &[f32; 4]) -> u32 {
    let mut bytes = [0; 4];
    for (byte, x) in bytes.iter_mut().zip(quad) {
        *byte = *x as i8 as u8;
    }
    u32::from_le_bytes(bytes)
}

/// `acc` plus the four products of each word. By assembly: the intrinsic is not stable yet.
///
/// # Safety
/// The machine has the dot product instructions.
#[inline(always)]
unsafe fn dot(acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let mut sum = acc;
    // SAFETY: `sdot` reads and writes registers only; the caller vouches that the machine has it.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// Four f16 to f32. By assembly: the type of the intrinsic is not stable yet.
#[inline(always)]
fn widen_halves(halves: uint32x2_t) -> float32x4_t {
    let wide: float32x4_t;
    // SAFETY: `fcvtl` reads and writes registers only; every aarch64 with NEON has it.
    unsafe {
        asm!(
            "fcvtl {wide:v}.4s, {halves:v}.4h",
            wide = lateout(vreg) wide,
            halves = in(vreg) halves,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    wide
}
