//! e^x and 2^x on sixteen lanes.

use crate::simd::{ROUND, Simd};

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

/// Degree of `exp2` for results that stay f32: relative error below 2e-7.
pub(crate) const DEGREE_F32: usize = 7;
/// Degree of `exp2` for results that are rounded to bf16: relative error below 3e-6.
pub(crate) const DEGREE_BF16: usize = 4;

/// 2^r for |r| <= 1/2, highest power first: Taylor's polynomial, (ln 2)^k / k!.
const TAYLOR: [f32; DEGREE_F32 + 1] = [
    1.525_273_4e-5,
    1.540_353e-4,
    1.333_355_8e-3,
    9.618_129e-3,
    5.550_411e-2,
    0.240_226_5,
    std::f32::consts::LN_2,
    1.0,
];
/// The same with the least relative error that degree 4 allows (Remez).
const SHORT: [f32; DEGREE_BF16 + 1] = [
    9.570_102e-3,
    5.591_786e-2,
    0.240_247_45,
    0.693_121_8,
    0.999_999_3,
];

/// 2^x for x <= 127; below -126 the result is 0, NaN stays NaN. How exact it is depends on `DEGREE`.
#[inline(always)]
pub(crate) fn exp2<S: Simd, const DEGREE: usize>(simd: S, x: S::V) -> S::V {
    let lowest = simd.splat(-126.0);
    let shifted = simd.add(simd.max(lowest, x), simd.splat(ROUND));
    let r = simd.sub(simd.max(lowest, x), simd.sub(shifted, simd.splat(ROUND)));
    let coefficients: &[f32] = if DEGREE == DEGREE_BF16 {
        &SHORT
    } else {
        &TAYLOR
    };
    let mut sum = simd.splat(coefficients[0]);
    for coefficient in &coefficients[1..] {
        sum = simd.mul_add(sum, r, simd.splat(*coefficient));
    }
    let result = simd.mul(sum, simd.pow2(shifted));
    simd.if_less(x, lowest, simd.splat(0.0), result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::simd::Bf16;
    use crate::simd::Kernel;

    struct Exp2<const DEGREE: usize>([f32; 16]);
    impl<const DEGREE: usize> Kernel for Exp2<DEGREE> {
        type Output = [f32; 16];
        #[inline(always)]
        fn run<S: Bf16>(self, simd: S) -> [f32; 16] {
            simd.to_array(exp2::<S, DEGREE>(simd, simd.load(&self.0)))
        }
    }

    fn check_powers<const DEGREE: usize>(most: f64) {
        for isa in Isa::all() {
            let mut worst = 0.0f64;
            for step in 0..100_000 {
                let x = -126.0 + step as f32 * (253.0 / 100_000.0);
                let exact = f64::from(x).exp2();
                let found = isa.dispatch(Exp2::<DEGREE>([x; 16]))[3];
                worst = worst.max((f64::from(found) / exact - 1.0).abs());
            }
            assert!(worst < most, "{}: relative error {worst:e}", isa.name());
            let mut x = [0.0; 16];
            x[1] = f32::NEG_INFINITY;
            x[2] = f32::NAN;
            x[3] = -1000.0;
            let y = isa.dispatch(Exp2::<DEGREE>(x));
            assert!(
                y[1] == 0.0 && y[2].is_nan() && y[3] == 0.0,
                "{}",
                isa.name()
            );
        }
    }

    #[test]
    fn powers_of_two_are_as_exact_as_their_degree() {
        check_powers::<DEGREE_F32>(2e-7);
        check_powers::<DEGREE_BF16>(3e-6);
    }

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
