//! Online softmax over tiles of scores: what has been summed so far is rescaled when a higher score appears.

use super::MAX_HEAD_DIM;
use crate::aligned::LANES;
use crate::exp::exp;
use crate::simd::Simd;

/// Groups of sixteen positions per tile.
pub(super) const GROUPS: usize = 4;
/// Positions per tile.
pub(super) const TILE: usize = GROUPS * LANES;
/// Panels of sixteen head elements at most.
const MAX_PANELS: usize = MAX_HEAD_DIM / LANES;

/// Scores, then probabilities, of one query and tile.
pub(super) type Scores = [f32; TILE];

/// Where the softmax of R queries stands.
pub(super) struct State<V, const R: usize> {
    /// Highest score so far.
    highest: [f32; R],
    /// Sum of the probabilities so far, lane by lane.
    pub total: [V; R],
    /// Weighted sum of the values so far, in panels of sixteen head elements.
    pub values: [[V; MAX_PANELS]; R],
}

impl<V: Copy, const R: usize> State<V, R> {
    #[inline(always)]
    pub(super) fn new<S: Simd<V = V>>(simd: S) -> Self {
        let zero = simd.splat(0.0);
        Self {
            highest: [f32::NEG_INFINITY; R],
            total: [zero; R],
            values: [[zero; MAX_PANELS]; R],
        }
    }

    /// Turns scores into probabilities relative to the highest score so far, and rescales what was summed before (`panels` panels
    /// of values). Scores of minus infinity become zeros.
    #[inline(always)]
    pub(super) fn update<S: Simd<V = V>>(
        &mut self,
        simd: S,
        scores: &mut [Scores; R],
        panels: usize,
    ) {
        for (i, scores) in scores.iter_mut().enumerate() {
            let lanes: &mut [[f32; LANES]] = scores.as_chunks_mut().0;
            let mut top = simd.load(&lanes[0]);
            for lanes in &lanes[1..] {
                top = simd.max(top, simd.load(lanes));
            }
            let (before, top) = (self.highest[i], simd.highest(top));
            let highest = if top > before { top } else { before };
            // A query that has seen nothing yet keeps zero as its reference: minus infinity has no difference to itself.
            let reference = if highest == f32::NEG_INFINITY {
                0.0
            } else {
                highest
            };
            self.highest[i] = highest;
            if highest != before {
                let factor = exp(simd, simd.splat(before - reference));
                self.total[i] = simd.mul(self.total[i], factor);
                for values in &mut self.values[i][..panels] {
                    *values = simd.mul(*values, factor);
                }
            }
            for lanes in lanes {
                let p = exp(simd, simd.sub(simd.load(lanes), simd.splat(reference)));
                self.total[i] = simd.add(self.total[i], p);
                simd.store(p, lanes);
            }
        }
    }
}
