//! Rounding groups of 32 numbers to four bits: which scale and minimum leave the smallest squared error. Sixteen groups at
//! once, one in each lane.

use super::to_half;
use crate::aligned::LANES;
use crate::simd::{Int8, Kernel, ROUND};
use half::f16;

/// Numbers of a group.
pub(super) const GROUP: usize = 32;
/// The highest quant.
const TOP: f32 = 15.0;
/// Steps that the numbers' range is divided into, one try each. Less than 15 finds grids of which the group does not use both
/// ends; more than 15 cuts the highest numbers off.
const STEPS: [f32; 12] = [
    12.0, 13.0, 13.5, 14.0, 14.25, 14.5, 14.75, 15.0, 15.25, 15.5, 15.75, 16.0,
];

/// Sixteen rounded groups.
#[derive(Clone, Copy)]
pub(super) struct Fitted {
    pub scale: [f16; LANES],
    pub min: [f16; LANES],
    /// Number by number, in `0 ..= 15`.
    pub quants: [[u8; LANES]; GROUP],
}

impl Default for Fitted {
    fn default() -> Self {
        Self {
            scale: [f16::ZERO; LANES],
            min: [f16::ZERO; LANES],
            quants: [[0; LANES]; GROUP],
        }
    }
}

/// Fits sixteen groups: the best of the plain rounding between smallest and largest number and of one least-squares line for
/// each of `STEPS`.
pub(super) struct Fit<'a> {
    /// Number by number.
    pub x: &'a [[f32; LANES]; GROUP],
    pub fitted: &'a mut Fitted,
}

impl Kernel for Fit<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Int8>(self, simd: S) {
        let mut low = simd.load(&self.x[0]);
        let mut high = low;
        for x in self.x {
            low = simd.min(simd.load(x), low);
            high = simd.max(simd.load(x), high);
        }
        let range = simd.sub(high, low);
        let plain = simd.mul(range, simd.splat(1.0 / TOP));
        let mut best = Grid {
            scale: eleven_bits(simd, plain),
            min: eleven_bits(simd, low),
        };
        let mut least = self.error(simd, best);
        for steps in STEPS {
            let grid = self.regression(simd, low, range, steps);
            let error = self.error(simd, grid);
            best = Grid {
                scale: simd.if_less(error, least, grid.scale, best.scale),
                min: simd.if_less(error, least, grid.min, best.min),
            };
            least = simd.min(error, least);
        }
        self.keep(simd, best);
    }
}

/// `scale * q + min` in each lane.
#[derive(Clone, Copy)]
struct Grid<V> {
    scale: V,
    min: V,
}

impl Fit<'_> {
    /// The least-squares line through the numbers over their quants, when these divide the range into `steps`.
    #[inline(always)]
    fn regression<S: Int8>(&self, simd: S, low: S::V, range: S::V, steps: f32) -> Grid<S::V> {
        let zero = simd.splat(0.0);
        let inverse = reciprocal(simd, simd.mul(range, simd.splat(1.0 / steps)));
        let (mut q1, mut q2, mut x1, mut qx) = (zero, zero, zero, zero);
        for x in self.x {
            let x = simd.load(x);
            let q = quant(simd, x, low, inverse);
            q1 = simd.add(q1, q);
            q2 = simd.mul_add(q, q, q2);
            x1 = simd.add(x1, x);
            qx = simd.mul_add(q, x, qx);
        }
        let count = simd.splat(GROUP as f32);
        let spread = simd.sub(simd.mul(count, q2), simd.mul(q1, q1));
        let rise = simd.sub(simd.mul(count, qx), simd.mul(q1, x1));
        let scale = simd.mul(rise, reciprocal(simd, spread));
        let min = simd.sub(x1, simd.mul(scale, q1));
        Grid {
            scale: eleven_bits(simd, scale),
            min: eleven_bits(simd, simd.mul(min, simd.splat(1.0 / GROUP as f32))),
        }
    }

    /// The sum of squared errors.
    #[inline(always)]
    fn error<S: Int8>(&self, simd: S, grid: Grid<S::V>) -> S::V {
        let inverse = reciprocal(simd, grid.scale);
        let mut error = simd.splat(0.0);
        for x in self.x {
            let x = simd.load(x);
            let q = quant(simd, x, grid.min, inverse);
            let off = simd.sub(simd.mul_add(q, grid.scale, grid.min), x);
            error = simd.mul_add(off, off, error);
        }
        error
    }

    /// Rounds to the grid as f16 holds it.
    #[inline(always)]
    fn keep<S: Int8>(self, simd: S, grid: Grid<S::V>) {
        let (mut scale, mut min) = (simd.to_array(grid.scale), simd.to_array(grid.min));
        for lane in 0..LANES {
            self.fitted.scale[lane] = to_half(scale[lane]);
            self.fitted.min[lane] = to_half(min[lane]);
            scale[lane] = self.fitted.scale[lane].to_f32();
            min[lane] = self.fitted.min[lane].to_f32();
        }
        let (inverse, min) = (reciprocal(simd, simd.load(&scale)), simd.load(&min));
        for (x, quants) in self.x.iter().zip(&mut self.fitted.quants) {
            let q = simd.to_array(quant(simd, simd.load(x), min, inverse));
            for (quant, q) in quants.iter_mut().zip(q) {
                *quant = q as u8;
            }
        }
    }
}

/// `(x - min) / scale`, rounded and cut to what four bits hold.
#[inline(always)]
fn quant<S: Int8>(simd: S, x: S::V, min: S::V, inverse: S::V) -> S::V {
    let steps = simd.mul(simd.sub(x, min), inverse);
    let held = simd.min(simd.max(steps, simd.splat(0.0)), simd.splat(TOP));
    simd.sub(simd.add(held, simd.splat(ROUND)), simd.splat(ROUND))
}

/// `1 / x`, zero where x is not above zero.
#[inline(always)]
fn reciprocal<S: Int8>(simd: S, x: S::V) -> S::V {
    let (zero, one) = (simd.splat(0.0), simd.splat(1.0));
    simd.if_less(zero, x, simd.div(one, x), zero)
}

/// Rounded to the eleven significant bits that f16 has.
#[inline(always)]
fn eleven_bits<S: Int8>(simd: S, x: S::V) -> S::V {
    let shifted = simd.mul(x, simd.splat((1 << 13) as f32 + 1.0));
    simd.sub(shifted, simd.sub(shifted, x))
}
