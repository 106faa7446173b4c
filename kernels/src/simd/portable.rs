//! Sixteen lanes as an array, for machines without a hand-written set; compilers turn it into what the target has.

use super::{Bf16, Int8, Simd};
use crate::aligned::{LANES, Line};
use half::{bf16, f16};

/// The permission to use nothing special.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

type V = [f32; LANES];

#[inline(always)]
fn lanes(f: impl Fn(usize) -> f32) -> V {
    std::array::from_fn(f)
}

impl Simd for Portable {
    type V = V;
    const TILE: (usize, usize) = (4, 1);

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        [x; LANES]
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> V {
        *x
    }
    #[inline(always)]
    fn load_bits(self, x: &Line) -> V {
        lanes(|i| f32::from_bits(x[i]))
    }
    #[inline(always)]
    fn store(self, v: V, out: &mut [f32; LANES]) {
        *out = v;
    }
    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        lanes(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: V, b: V) -> V {
        lanes(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        lanes(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: V, b: V) -> V {
        lanes(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn mul_add(self, a: V, b: V, c: V) -> V {
        lanes(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        lanes(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: V, b: V) -> V {
        lanes(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn if_less(self, a: V, b: V, yes: V, no: V) -> V {
        lanes(|i| if a[i] < b[i] { yes[i] } else { no[i] })
    }
    #[inline(always)]
    fn any_less(self, a: V, b: V) -> bool {
        a.iter().zip(&b).any(|(a, b)| a < b)
    }
    #[inline(always)]
    fn prefetch(self, _: *const Line) {}
    #[inline(always)]
    fn pow2(self, t: V) -> V {
        lanes(|i| f32::from_bits((t[i].to_bits() << 23).wrapping_add(0x3f80_0000)))
    }
}

impl Bf16 for Portable {
    type X = (V, V);
    type W = (V, V);
    const PAIR_WORDS: usize = 2;

    #[inline(always)]
    fn prepare(self, x: &[f32; 2 * LANES], out: &mut [u32]) {
        for (word, x) in out[..2 * LANES].iter_mut().zip(x) {
            *word = u32::from(bf16::from_f32(*x).to_bits()) << 16;
        }
    }
    #[inline(always)]
    fn pair(self, words: &[u32]) -> (V, V) {
        (
            [f32::from_bits(words[0]); LANES],
            [f32::from_bits(words[1]); LANES],
        )
    }
    #[inline(always)]
    fn line(self, line: &Line) -> (V, V) {
        (
            lanes(|i| f32::from_bits(line[i] << 16)),
            lanes(|i| f32::from_bits(line[i] & 0xffff_0000)),
        )
    }
    #[inline(always)]
    fn dot(self, x: (V, V), w: (V, V), acc: V) -> V {
        self.mul_add(x.1, w.1, self.mul_add(x.0, w.0, acc))
    }
}

/// The bytes of each word, mapped one by one.
#[inline(always)]
fn words(f: impl Fn(usize) -> u32) -> Line {
    std::array::from_fn(f)
}

impl Int8 for Portable {
    type I = [i32; LANES];
    type Q = [i32; 4];
    type B = Line;
    type U = Line;
    const QUAD_WORDS: usize = 1;
    const INT_TILE: (usize, usize) = (4, 1);

    #[inline(always)]
    fn prepare_quads(self, whole: V, out: &mut [u32]) {
        for (quad, out) in whole.as_chunks::<4>().0.iter().zip(out) {
            *out = u32::from_le_bytes(quad.map(|x| x as i8 as u8));
        }
    }
    #[inline(always)]
    fn quad(self, words: &[u32]) -> [i32; 4] {
        words[0].to_le_bytes().map(|x| i32::from(x as i8))
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> [i32; LANES] {
        [x; LANES]
    }
    #[inline(always)]
    fn to_float(self, x: [i32; LANES]) -> V {
        lanes(|i| x[i] as f32)
    }
    #[inline(always)]
    fn bytes(self, line: &Line) -> Line {
        *line
    }
    #[inline(always)]
    fn low_nibbles(self, b: Line) -> Line {
        words(|i| b[i] & 0x0f0f_0f0f)
    }
    #[inline(always)]
    fn high_nibbles(self, b: Line) -> Line {
        words(|i| (b[i] >> 4) & 0x0f0f_0f0f)
    }
    #[inline(always)]
    fn six_bits(self, nibbles: Line, bits: Line) -> Line {
        words(|i| nibbles[i] | (bits[i] & 0x3030_3030))
    }
    #[inline(always)]
    fn turn_two_bits(self, b: Line) -> Line {
        words(|i| b[i].rotate_right(2))
    }
    #[inline(always)]
    fn quads(self, b: Line) -> Line {
        b
    }
    #[inline(always)]
    fn dot_quads(self, x: [i32; 4], w: Line, acc: [i32; LANES]) -> [i32; LANES] {
        std::array::from_fn(|i| {
            let [a, b, c, d] = w[i].to_le_bytes().map(i32::from);
            acc[i] + a * x[0] + b * x[1] + c * x[2] + d * x[3]
        })
    }
    #[inline(always)]
    fn halves(self, line: &Line, half: usize) -> V {
        lanes(|i| {
            let bits = line[8 * half + i / 2] >> (16 * (i % 2));
            f16::from_bits(bits as u16).to_f32()
        })
    }
    #[inline(always)]
    fn signed_bytes(self, line: &Line, quarter: usize) -> V {
        lanes(|i| {
            let byte = line[4 * quarter + i / 4] >> (8 * (i % 4));
            f32::from(byte as u8 as i8)
        })
    }
}
