//! e^x on sixteen lanes.

use crate::simd::Simd;

/// 1.5 * 2^23: adding it rounds a small number to a whole one, which then stands in the low bits.
const ROUND: f32 = 12_582_912.0;
/// ln 2 in two parts, the first with enough trailing zeros that its multiples up to 128 are exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Beyond these the result is not a normal f32.
const LOWEST: f32 = -87.336_54;
const HIGHEST: f32 = 88.0;

/// e^x with a relative error below 3e-7. Below -87.3 the result is 0, above 88 it is e^88; NaN stays NaN.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor polynomial of degree 7.
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: S::V) -> S::V {
    let clamped = simd.max(simd.splat(LOWEST), simd.min(simd.splat(HIGHEST), x));
    let shifted = simd.mul_add(
        clamped,
        simd.splat(std::f32::consts::LOG2_E),
        simd.splat(ROUND),
    );
    let n = simd.sub(shifted, simd.splat(ROUND));
    let r = simd.mul_add(n, simd.splat(-LN2_HIGH), clamped);
    let r = simd.mul_add(n, simd.splat(-LN2_LOW), r);
    let mut sum = simd.splat(1.0 / 5040.0);
    for coefficient in [
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        sum = simd.mul_add(sum, r, simd.splat(coefficient));
    }
    let result = simd.mul(sum, simd.pow2(shifted));
    simd.if_less(x, simd.splat(LOWEST), simd.splat(0.0), result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::simd::Bf16;
    use crate::simd::Kernel;

    struct Exp([f32; 16]);
    impl Kernel for Exp {
        type Output = [f32; 16];
        #[inline(always)]
        fn run<S: Bf16>(self, simd: S) -> [f32; 16] {
            simd.to_array(exp(simd, simd.load(&self.0)))
        }
    }

    #[test]
    fn the_error_is_as_documented() {
        for isa in Isa::all() {
            let mut worst = 0.0f64;
            for step in 0..200_000 {
                let x = -87.3 + step as f32 * (175.2 / 200_000.0);
                let exact = f64::from(x).exp();
                worst = worst.max((f64::from(isa.dispatch(Exp([x; 16]))[3]) / exact - 1.0).abs());
            }
            assert!(worst < 3e-7, "{}: relative error {worst:e}", isa.name());
        }
    }

    #[test]
    fn the_ends_are_exact() {
        for isa in Isa::all() {
            let mut x = [0.0; 16];
            x[1] = f32::NEG_INFINITY;
            x[2] = f32::NAN;
            x[3] = -1000.0;
            x[4] = f32::INFINITY;
            let y = isa.dispatch(Exp(x));
            assert_eq!((y[0], y[1], y[3]), (1.0, 0.0, 0.0), "{}", isa.name());
            assert!(y[2].is_nan() && y[4].is_finite(), "{}", isa.name());
        }
    }
}
