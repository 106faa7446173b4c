//! What a query has summed so far.

use crate::aligned::LANES;

/// A vector in memory.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Lanes(pub [f32; LANES]);

impl Lanes {
    pub(super) const ZERO: Self = Self([0.0; LANES]);
}

/// Where the sums of one query stand: the reference score in all lanes, the sum of the probabilities lane by lane, then the
/// weighted sum of the values in panels of sixteen head elements.
pub(super) type Sums = [Lanes];

/// Index of the reference score.
pub(super) const REFERENCE: usize = 0;
/// Index of the sum of the probabilities.
pub(super) const TOTAL: usize = 1;
/// Index of the first panel of values.
pub(super) const VALUES: usize = 2;

/// Sums over nothing.
#[inline(always)]
pub(super) fn clear(sums: &mut Sums) {
    sums.fill(Lanes::ZERO);
    sums[REFERENCE] = Lanes([f32::NEG_INFINITY; LANES]);
}
