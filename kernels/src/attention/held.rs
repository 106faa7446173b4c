//! What the formats of the cache differ in: how a register tile of queries meets keys and values.

use super::split::{PROBABILITY_WORDS, QUERY_WORDS, Split};
use super::view::{GROUPS, Group, Tile};
use crate::aligned::Line;
use crate::simd::Int8;

/// Keys and values as a format holds them.
pub(super) trait Held<S: Int8> {
    /// 2^x, as exact as goes with the format.
    fn exp2(simd: S, x: S::V) -> S::V;

    /// Panels that a register tile of `rows` queries takes at once: 1, 2 or 4.
    fn panels(rows: usize) -> usize;

    /// Prepares a query.
    fn query(simd: S, x: &[f32], words: &mut [u32; QUERY_WORDS]);

    /// `scores[i][group ..][..P] = q_i · kᵀ * factor` for the R queries from `first` on and the keys of P groups.
    fn score_groups<const R: usize, const P: usize>(
        simd: S,
        split: &Split<'_, '_>,
        tiles: [&Tile; 2],
        at: Scored,
        scores: &mut [[S::V; GROUPS]; R],
    );

    /// Prepares a query's probabilities of a tile; those of groups that are not `seen` are zeros. `lines` are those of the cache.
    fn probabilities(
        simd: S,
        lines: &[Line],
        seen: &[Group],
        probabilities: &[S::V; GROUPS],
        words: &mut [u32; PROBABILITY_WORDS],
    );

    /// Adds the products of prepared probabilities with the values of the panels `panel .. panel + P` to the sums of the queries.
    fn add_panels<const R: usize, const P: usize>(
        simd: S,
        split: &mut Split<'_, '_>,
        at: Values<'_>,
        panel: usize,
    );
}

/// Which scores a register tile computes.
#[derive(Clone, Copy)]
pub(super) struct Scored {
    /// First of the queries.
    pub first: usize,
    /// First of the groups.
    pub group: usize,
    pub factor: f32,
}

/// Which values a register tile of queries adds.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    /// The tile, and the one whose lines are brought nearer meanwhile.
    pub tiles: [&'a Tile; 2],
    /// First of the queries.
    pub first: usize,
    /// Groups that any of them sees, and positions of the last one that any sees.
    pub seen: usize,
    pub last_positions: usize,
}
