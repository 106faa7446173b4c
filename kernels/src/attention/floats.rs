//! Keys and values in f32 or bf16.

use super::held::{Held, Scored, Values};
use super::products::{InputRows, Panels, add_products};
use super::split::{PROBABILITY_WORDS, QUERY_WORDS, Split};
use super::sums::VALUES;
use super::view::{GROUPS, Group, TILE, Tile};
use crate::aligned::Line;
use crate::exp::{DEGREE_BF16, DEGREE_F32, exp2};
use crate::simd::Int8;
use crate::tile::{Bf16Element, Element, SingleElement, panels_per_tile};

/// `kv::Format::F32`.
pub(super) struct Singles;
/// `kv::Format::Bf16`.
pub(super) struct Bf16s;

/// Implements `Held` by the products of an element.
macro_rules! held {
    ($held:ty, $element:ty, $degree:ident) => {
        impl<S: Int8> Held<S> for $held {
            #[inline(always)]
            fn exp2(simd: S, x: S::V) -> S::V {
                exp2::<S, $degree>(simd, x)
            }
            #[inline(always)]
            fn panels(rows: usize) -> usize {
                panels_per_tile::<S>(rows)
            }
            #[inline(always)]
            fn query(simd: S, x: &[f32], words: &mut [u32; QUERY_WORDS]) {
                <$element>::prepare(simd, x, words);
            }
            #[inline(always)]
            fn score_groups<const R: usize, const P: usize>(
                simd: S,
                split: &Split<'_, '_>,
                tiles: [&Tile; 2],
                at: Scored,
                scores: &mut [[S::V; GROUPS]; R],
            ) {
                score_groups::<S, $element, R, P>(simd, split, tiles, at, scores);
            }
            #[inline(always)]
            fn probabilities(
                simd: S,
                _: &[Line],
                _: &[Group],
                probabilities: &[S::V; GROUPS],
                words: &mut [u32; PROBABILITY_WORDS],
            ) {
                let mut lanes = [0.0; TILE];
                for (lanes, p) in lanes.as_chunks_mut().0.iter_mut().zip(probabilities) {
                    simd.store(*p, lanes);
                }
                <$element>::prepare(simd, &lanes, words);
            }
            #[inline(always)]
            fn add_panels<const R: usize, const P: usize>(
                simd: S,
                split: &mut Split<'_, '_>,
                at: Values<'_>,
                panel: usize,
            ) {
                add_panels::<S, $element, R, P>(simd, split, at, panel);
            }
        }
    };
}

held!(Singles, SingleElement, DEGREE_F32);
held!(Bf16s, Bf16Element, DEGREE_BF16);

// Indices go through several arrays at once.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn score_groups<S: Int8, E: Element<S>, const R: usize, const P: usize>(
    simd: S,
    split: &Split<'_, '_>,
    tiles: [&Tile; 2],
    at: Scored,
    scores: &mut [[S::V; GROUPS]; R],
) {
    let (mut starts, mut next) = ([0; P], [0; P]);
    for p in 0..P {
        starts[p] = tiles[0].groups[at.group + p].keys;
        next[p] = tiles[1].groups[at.group + p].keys;
    }
    let panels = Panels {
        lines: split.lines,
        starts,
        next,
        steps: split.key_steps,
    };
    let rows = InputRows::<QUERY_WORDS>(split.queries[at.first..].as_flattened());
    let mut sums = [[simd.splat(0.0); P]; R];
    add_products::<S, E, R, P, _>(simd, rows, panels, &mut sums);
    let factor = simd.splat(at.factor);
    for r in 0..R {
        for p in 0..P {
            scores[r][at.group + p] = simd.mul(sums[r][p], factor);
        }
    }
}

// Indices go through several arrays at once.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn add_panels<S: Int8, E: Element<S>, const R: usize, const P: usize>(
    simd: S,
    split: &mut Split<'_, '_>,
    at: Values<'_>,
    panel: usize,
) {
    let len = split.len;
    let values = &mut split.sums[at.first * len..][..R * len];
    let mut sums = [[simd.splat(0.0); P]; R];
    for r in 0..R {
        for p in 0..P {
            sums[r][p] = simd.load(&values[r * len + VALUES + panel + p].0);
        }
    }
    for g in 0..at.seen {
        let (mut starts, mut next) = ([0; P], [0; P]);
        for p in 0..P {
            let panel = (panel + p) * split.panel_lines;
            starts[p] = at.tiles[0].groups[g].values + panel;
            next[p] = at.tiles[1].groups[g].values + panel;
        }
        let whole = g + 1 < at.seen;
        let panels = Panels {
            lines: split.lines,
            starts,
            next,
            // Positions that no query sees may hold what an earlier owner of the block left.
            steps: if whole {
                split.group_steps
            } else {
                at.last_positions.div_ceil(E::INPUTS)
            },
        };
        let words = &split.words.as_flattened()[g * split.group_steps * E::WORDS..];
        let rows = InputRows::<PROBABILITY_WORDS>(words);
        add_products::<S, E, R, P, _>(simd, rows, panels, &mut sums);
    }
    for r in 0..R {
        for p in 0..P {
            simd.store(sums[r][p], &mut values[r * len + VALUES + panel + p].0);
        }
    }
}
