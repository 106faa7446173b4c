//! Online softmax over tiles of scores. What a query has summed so far is kept relative to a reference score, and rescaled when a
//! much higher score appears; sums over different positions can be joined.
//!
//! Scores and references are powers of two: `scale * log2(e) * q · k`.

use super::held::Held;
use super::sums::{Lanes, REFERENCE, Sums, TOTAL, VALUES};
use super::view::GROUPS;
use crate::aligned::LANES;
use crate::simd::{Int8, Simd};

/// A higher score moves the reference only from so many powers of two on: f32 has the room, and moving costs a pass over the sums.
const SLACK: f32 = 8.0;

/// The probabilities of a tile's scores, relative to the query's reference score; adds them to its total. Those of minus infinity are
/// zeros.
#[inline(always)]
pub(super) fn update<S: Int8, H: Held<S>>(
    simd: S,
    sums: &mut Sums,
    scores: &[S::V; GROUPS],
) -> [S::V; GROUPS] {
    let mut top = scores[0];
    for group in &scores[1..] {
        top = simd.max(top, *group);
    }
    let limit = simd.splat(sums[REFERENCE].0[0] + SLACK);
    if simd.any_less(limit, top) {
        move_reference::<S, H>(simd, sums, simd.highest(top));
    }
    let reference = simd.splat(zero_if_none(sums[REFERENCE].0[0]));
    let mut total = simd.load(&sums[TOTAL].0);
    let mut probabilities = *scores;
    for p in &mut probabilities {
        *p = H::exp2(simd, simd.sub(*p, reference));
        total = simd.add(total, *p);
    }
    simd.store(total, &mut sums[TOTAL].0);
    probabilities
}

/// A query that has seen nothing yet has zero as its reference: minus infinity has no difference to itself.
#[inline(always)]
fn zero_if_none(reference: f32) -> f32 {
    if reference == f32::NEG_INFINITY {
        0.0
    } else {
        reference
    }
}

#[inline(always)]
fn move_reference<S: Int8, H: Held<S>>(simd: S, sums: &mut Sums, to: f32) {
    let from = sums[REFERENCE].0[0];
    if from != f32::NEG_INFINITY {
        let factor = H::exp2(simd, simd.splat(from - to));
        for lanes in &mut sums[TOTAL..] {
            simd.store(simd.mul(simd.load(&lanes.0), factor), &mut lanes.0);
        }
    }
    sums[REFERENCE] = Lanes([to; LANES]);
}

/// Adds the sums of later positions, `more`, to those of earlier ones.
#[inline(always)]
pub(super) fn join<S: Int8, H: Held<S>>(simd: S, sums: &mut Sums, more: &Sums) {
    let (before, later) = (sums[REFERENCE].0[0], more[REFERENCE].0[0]);
    // Nothing but NaN has no reference either, and must spread.
    if later == f32::NEG_INFINITY && simd.sum(simd.load(&more[TOTAL].0)) == 0.0 {
        return;
    }
    if before == f32::NEG_INFINITY && simd.sum(simd.load(&sums[TOTAL].0)) == 0.0 {
        sums.copy_from_slice(more);
        return;
    }
    let reference = if later > before { later } else { before };
    let ours = H::exp2(simd, simd.splat(before - reference));
    let theirs = H::exp2(simd, simd.splat(later - reference));
    for (lanes, more) in sums[TOTAL..].iter_mut().zip(&more[TOTAL..]) {
        let more = simd.mul(simd.load(&more.0), theirs);
        let joined = simd.mul_add(simd.load(&lanes.0), ours, more);
        simd.store(joined, &mut lanes.0);
    }
    sums[REFERENCE] = Lanes([reference; LANES]);
}

/// The weighted mean of the values: a head's output.
#[inline(always)]
pub(super) fn finish<S: Simd>(simd: S, sums: &Sums, out: &mut [f32]) {
    let factor = simd.splat(1.0 / simd.sum(simd.load(&sums[TOTAL].0)));
    for (out, values) in out.chunks_mut(LANES).zip(&sums[VALUES..]) {
        let mean = simd.mul(simd.load(&values.0), factor);
        match <&mut [f32; LANES]>::try_from(&mut *out) {
            Ok(out) => simd.store(mean, out),
            Err(_) => simd.store_first(mean, out),
        }
    }
}
