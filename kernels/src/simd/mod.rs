//! Sixteen f32 lanes, the same on every instruction set, products of bf16 pairs and exact sums of products of bytes.
//! A value of an implementing type is the permission to use its instructions; it is made by `Isa::dispatch` only.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_int8;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod portable;

use crate::aligned::{LANES, Line};

/// 1.5 * 2^23: added to a number below 2^22 it rounds it to a whole one, ties to even, which then stands in the low bits; taken away
/// again, it leaves the whole number.
pub(crate) const ROUND: f32 = 1.5 * (1 << 23) as f32;

/// Operations on sixteen f32 lanes.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Sixteen lanes.
    type V: Copy;

    /// Rows and panels of the largest register tile (see `tile`).
    const TILE: (usize, usize);

    fn splat(self, x: f32) -> Self::V;
    fn load(self, x: &[f32; LANES]) -> Self::V;
    fn load_bits(self, x: &Line) -> Self::V;
    fn store(self, v: Self::V, out: &mut [f32; LANES]);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`; rounded once where the instruction set can, and the same way in every kernel.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Lane-wise `a > b ? a : b`: `b` when either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// Lane-wise `a < b ? a : b`: `b` when either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// Lane-wise `a < b ? yes : no`; `no` when either is NaN.
    fn if_less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// Whether `a < b` in any lane; lanes with NaN do not count.
    fn any_less(self, a: Self::V, b: Self::V) -> bool;
    /// Brings a line into the second-level cache, where the instruction set can; changes nothing else. Any address may be given.
    /// The first level is left to what is multiplied meanwhile: bringing lines there costs products of 8 to 16 rows a third of
    /// their speed (Zen 4).
    fn prefetch(self, line: *const Line);
    /// `2^n` for `t = n + 1.5 * 2^23`, `n` whole in `-126 ..= 127`: shifts n out of t's low bits into the exponent.
    fn pow2(self, t: Self::V) -> Self::V;

    /// The sum of all lanes, in a fixed order: halves are added to halves.
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        fold(self.to_array(v), |a, b| a + b)
    }

    /// The highest lane; NaN lanes are passed over unless they come last in every comparison.
    #[inline(always)]
    fn highest(self, v: Self::V) -> f32 {
        fold(self.to_array(v), |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn to_array(self, v: Self::V) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        self.store(v, &mut out);
        out
    }

    /// The first lanes from `x`, `pad` in the others.
    #[inline(always)]
    fn load_padded(self, x: &[f32], pad: f32) -> Self::V {
        let mut lanes = [pad; LANES];
        lanes[..x.len()].copy_from_slice(x);
        self.load(&lanes)
    }

    /// Stores the first `out.len()` lanes.
    #[inline(always)]
    fn store_first(self, v: Self::V, out: &mut [f32]) {
        let lanes = self.to_array(v);
        out.copy_from_slice(&lanes[..out.len()]);
    }
}

/// Products of bf16 with f32 accumulation. Two neighbouring inputs make a pair; a `Line` holds one pair for each of
/// sixteen outputs, the first input in the low half of a word.
pub(crate) trait Bf16: Simd {
    /// A pair of inputs, broadcast.
    type X: Copy;
    /// A line of sixteen pairs.
    type W: Copy;
    /// Words that a pair of inputs takes once prepared.
    const PAIR_WORDS: usize;

    /// Rounds 32 inputs to bf16 (to nearest, ties to even) and stores the 16 pairs they make as `16 * PAIR_WORDS` words.
    fn prepare(self, x: &[f32; 2 * LANES], out: &mut [u32]);
    /// Reads a prepared pair: exactly `PAIR_WORDS` words.
    fn pair(self, words: &[u32]) -> Self::X;
    fn line(self, line: &Line) -> Self::W;
    /// `acc + x.0 * w.0 + x.1 * w.1` per lane, in an order and rounding that is the same wherever it is used.
    fn dot(self, x: Self::X, w: Self::W, acc: Self::V) -> Self::V;
}

/// Products of bytes, summed exactly in i32. Four neighbouring inputs make a quad; a `Line` holds a quad for each of sixteen
/// outputs, the first input in the low byte of a word. Weights are unsigned, inputs signed.
pub(crate) trait Int8: Bf16 {
    /// Sixteen i32.
    type I: Copy;
    /// A quad of inputs, broadcast.
    type Q: Copy;
    /// Sixty-four bytes.
    type B: Copy;
    /// A line of sixteen quads of weights.
    type U: Copy;

    /// Words that a quad of inputs takes once prepared.
    const QUAD_WORDS: usize;
    /// Rows and panels of the largest register tile: there is a sum in i32 and one in f32 for each output.
    const INT_TILE: (usize, usize);

    /// Stores sixteen whole numbers in `-128 ..= 127` as the four quads they make, in `4 * QUAD_WORDS` words.
    fn prepare_quads(self, whole: Self::V, out: &mut [u32]);
    /// The largest of 64 numbers without their signs; NaN if one is not a number.
    #[inline(always)]
    fn largest(self, x: [Self::V; 4]) -> f32 {
        let zero = self.splat(0.0);
        let (mut largest, mut poison) = (zero, zero);
        for x in x {
            largest = self.max(self.max(x, self.sub(zero, x)), largest);
            poison = self.mul_add(x, zero, poison);
        }
        self.highest(largest) + self.sum(poison)
    }
    /// Rounds 64 numbers in `-127 ..= 127` to whole ones (ties to even) and stores the sixteen quads they make; returns the sum of each
    /// sixteen. What is not a number counts as anything.
    #[inline(always)]
    fn round_quads(self, x: [Self::V; 4], out: &mut [u32]) -> [i32; 4] {
        let round = self.splat(ROUND);
        let mut sums = [0; 4];
        for i in 0..4 {
            let whole = self.sub(self.add(x[i], round), round);
            let quads = LANES / 4 * Self::QUAD_WORDS;
            self.prepare_quads(whole, &mut out[i * quads..][..quads]);
            // A sum of so few whole numbers is exact in f32.
            sums[i] = self.sum(whole) as i32;
        }
        sums
    }
    /// Reads a prepared quad: exactly `QUAD_WORDS` words.
    fn quad(self, words: &[u32]) -> Self::Q;
    fn splat_int(self, x: i32) -> Self::I;
    fn to_float(self, x: Self::I) -> Self::V;
    fn bytes(self, line: &Line) -> Self::B;
    /// The low four bits of each byte.
    fn low_nibbles(self, b: Self::B) -> Self::B;
    /// The high four bits of each byte.
    fn high_nibbles(self, b: Self::B) -> Self::B;
    /// `nibbles`, and above them bits 4 and 5 of `bits`.
    fn six_bits(self, nibbles: Self::B, bits: Self::B) -> Self::B;
    /// Each word turned right by two bits.
    fn turn_two_bits(self, b: Self::B) -> Self::B;
    fn quads(self, b: Self::B) -> Self::U;
    /// `acc` plus the four products of each lane, exactly.
    fn dot_quads(self, x: Self::Q, w: Self::U, acc: Self::I) -> Self::I;
    /// Numbers `16 * half ..` of the 32 f16 in a line.
    fn halves(self, line: &Line, half: usize) -> Self::V;
    /// Numbers `16 * quarter ..` of the 64 signed bytes in a line.
    fn signed_bytes(self, line: &Line, quarter: usize) -> Self::V;
}

/// A piece of work written for any instruction set. `run` must be `#[inline(always)]`, and so must all that it calls
/// on vectors, or it is compiled without the instructions it asks for.
pub(crate) trait Kernel {
    type Output;
    fn run<S: Int8>(self, simd: S) -> Self::Output;
}

#[inline(always)]
fn fold(lanes: [f32; LANES], op: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = lanes;
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = op(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Four quads of whole numbers as pairs of i16, for sets that multiply those: inputs 0 and 2 in a word, 1 and 3 in the next.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn widened_quads(whole: &[f32; LANES], out: &mut [u32]) {
    let pair = |low: f32, high: f32| (low as i32 as u32 & 0xffff) | (high as i32 as u32) << 16;
    for (quad, out) in whole
        .as_chunks::<4>()
        .0
        .iter()
        .zip(out.as_chunks_mut::<2>().0)
    {
        *out = [pair(quad[0], quad[2]), pair(quad[1], quad[3])];
    }
}

/// Implements `Simd` operations by intrinsics.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! by_intrinsics {
    ($($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $ty),*) $(-> $ret)? {
            // SAFETY: `self` exists only where `Isa` found these instructions. Loads and stores are unaligned ones and go to
            // references of exactly their width.
            #[allow(unused_unsafe)]
            unsafe { $body }
        }
    )*};
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use by_intrinsics;
