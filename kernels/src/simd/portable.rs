//! Sixteen lanes as an array, for machines without a hand-written set; compilers turn it into what the target has.

use super::{Bf16, Simd};
use crate::aligned::{LANES, Line};
use half::bf16;

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
