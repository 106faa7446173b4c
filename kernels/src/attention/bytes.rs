//! Keys and values in int8. Queries and probabilities are rounded to fifteen bits, `128 * high + low` times a scale, and multiplied in
//! two passes of bytes: what the cache lost by rounding stays the only loss that counts.
//!
//! The cache holds bytes `w + 128`, so that sums start at `-128` times the sum of the inputs.

use super::held::{Held, Scored, Values};
use super::split::{PROBABILITY_WORDS, QUERY_WORDS, Split};
use super::sums::VALUES;
use super::view::{GROUPS, Group, Tile};
use crate::aligned::{LANES, Line};
use crate::exp::{DEGREE_BF16, exp2};
use crate::kv::KEY_CHUNK;
use crate::simd::{Int8, ROUND};

/// `kv::Format::Int8`.
pub(super) struct Bytes;

/// The largest input: `high` and `low` stay within `-127 ..= 127`.
const TOP: f32 = (127 * 128) as f32;
/// Inputs that are all smaller count as zeros.
const SMALLEST: f32 = 1e-30;

/// Words before the quads of some prepared inputs: where the sums of `high` and of `low` start.
const HIGH_START: usize = 0;
const LOW_START: usize = 1;
const STARTS: usize = 2;
/// A query and a tile's probabilities begin with a word that holds their scale.
const SCALE: usize = 0;
const SCALES: usize = 1;

/// Steps of a chunk of a key.
const CHUNK_STEPS: usize = KEY_CHUNK / 4;
/// Steps of a group of values.
const GROUP_STEPS: usize = LANES / 4;

/// Words of a chunk of a query.
const fn chunk_words<S: Int8>() -> usize {
    STARTS + 2 * CHUNK_STEPS * S::QUAD_WORDS
}

/// Scale of inputs up to `top`, and its inverse. What is not finite spreads.
#[inline(always)]
fn scale_of(top: f32) -> (f32, f32) {
    match top {
        ..SMALLEST => (0.0, 0.0),
        SMALLEST..f32::INFINITY => (top / TOP, TOP / top),
        _ => (f32::NAN, 0.0),
    }
}

/// Rounds sixteen inputs to `128 * high + low` times a scale.
#[inline(always)]
fn halves<S: Int8>(simd: S, x: S::V, inverse: f32) -> [S::V; 2] {
    let (round, base) = (simd.splat(ROUND), simd.splat(128.0));
    let scaled = simd.mul(x, simd.splat(inverse));
    let high = simd.sub(simd.mul_add(scaled, simd.splat(1.0 / 128.0), round), round);
    let rest = simd.sub(scaled, simd.mul(high, base));
    let low = simd.sub(simd.add(rest, round), round);
    [high, low]
}

/// Where sums of bytes `w + 128` with inputs of such a sum start.
#[inline(always)]
fn start_of<S: Int8>(simd: S, inputs: S::V) -> u32 {
    (-128 * simd.sum(inputs) as i32) as u32
}

/// Prepared inputs, a row of R after the other.
#[derive(Clone, Copy)]
struct Inputs<'a, const R: usize, const W: usize>(&'a [[u32; W]]);

impl<'a, const R: usize, const W: usize> Inputs<'a, R, W> {
    /// The first R of `rows`, of which words below `words` will be asked for.
    ///
    /// # Panics
    /// When there are fewer rows or words.
    #[inline(always)]
    fn new(rows: &'a [[u32; W]], words: usize) -> Self {
        assert!(R <= rows.len() && words <= W, "inputs of a tile");
        Self(rows)
    }

    #[inline(always)]
    fn words(self, row: usize, at: usize, count: usize) -> &'a [u32] {
        debug_assert!(row < R && at + count <= W);
        // SAFETY: callers ask for one of R rows and for words below those that `new` found.
        unsafe { self.0.get_unchecked(row).get_unchecked(at..at + count) }
    }

    #[inline(always)]
    fn float(self, row: usize, at: usize) -> f32 {
        f32::from_bits(self.words(row, at, 1)[0])
    }
}

/// Sums of bytes: those with the high and those with the low halves of R rows of inputs, times P panels.
struct Sums<S: Int8, const R: usize, const P: usize>([[[S::I; 2]; P]; R]);

// Indices go through several arrays at once, and closures would lose the instruction set.
#[allow(clippy::needless_range_loop)]
impl<S: Int8, const R: usize, const P: usize> Sums<S, R, P> {
    /// Sums that start as the words at `at` of each row say.
    #[inline(always)]
    fn start<const W: usize>(simd: S, rows: Inputs<'_, R, W>, at: usize) -> Self {
        let mut sums = [[[simd.splat_int(0); 2]; P]; R];
        for r in 0..R {
            let starts = rows.words(r, at, STARTS);
            let high = simd.splat_int(starts[HIGH_START] as i32);
            let low = simd.splat_int(starts[LOW_START] as i32);
            sums[r] = [[high, low]; P];
        }
        Self(sums)
    }

    /// Adds the products of a line of each panel with the quads at words `at[0]` (high) and `at[1]` (low) of each row.
    #[inline(always)]
    fn add<const W: usize>(
        &mut self,
        simd: S,
        lines: [&Line; P],
        rows: Inputs<'_, R, W>,
        at: [usize; 2],
    ) {
        let mut w = [simd.quads(simd.bytes(lines[0])); P];
        for p in 1..P {
            w[p] = simd.quads(simd.bytes(lines[p]));
        }
        for r in 0..R {
            for half in 0..2 {
                let quad = simd.quad(rows.words(r, at[half], S::QUAD_WORDS));
                for p in 0..P {
                    let sum = &mut self.0[r][p][half];
                    *sum = simd.dot_quads(quad, w[p], *sum);
                }
            }
        }
    }

    #[inline(always)]
    fn float(&self, simd: S, row: usize, panel: usize) -> S::V {
        let [high, low] = self.0[row][panel];
        let high = simd.to_float(high);
        simd.mul_add(high, simd.splat(128.0), simd.to_float(low))
    }
}

// Indices go through several arrays at once, and closures would lose the instruction set.
#[allow(clippy::needless_range_loop)]
impl<S: Int8> Held<S> for Bytes {
    #[inline(always)]
    fn exp2(simd: S, x: S::V) -> S::V {
        exp2::<S, DEGREE_BF16>(simd, x)
    }

    /// There are two sums in i32 for each output.
    #[inline(always)]
    fn panels(rows: usize) -> usize {
        if rows <= 3 && S::TILE.1 > 1 { 2 } else { 1 }
    }

    #[inline(always)]
    fn query(simd: S, x: &[f32], words: &mut [u32; QUERY_WORDS]) {
        let (mut top, mut finite) = (0.0f32, true);
        for x in x {
            top = if x.abs() > top { x.abs() } else { top };
            finite &= x.is_finite();
        }
        let (scale, inverse) = scale_of(if finite { top } else { f32::NAN });
        words[SCALE] = scale.to_bits();
        let chunks = words[SCALES..].chunks_exact_mut(chunk_words::<S>());
        for (words, x) in chunks.zip(x.chunks(KEY_CHUNK)) {
            let mut padded = [[0.0; LANES]; KEY_CHUNK / LANES];
            // What is not finite has no bytes; the scale tells of it.
            if finite {
                padded.as_flattened_mut()[..x.len()].copy_from_slice(x);
            }
            let (starts, quads) = words.split_at_mut(STARTS);
            let (high_quads, low_quads) = quads.split_at_mut(CHUNK_STEPS * S::QUAD_WORDS);
            let (mut high_sum, mut low_sum) = (simd.splat(0.0), simd.splat(0.0));
            for i in 0..KEY_CHUNK / LANES {
                let [high, low] = halves(simd, simd.load(&padded[i]), inverse);
                let at = i * GROUP_STEPS * S::QUAD_WORDS;
                simd.prepare_quads(high, &mut high_quads[at..][..GROUP_STEPS * S::QUAD_WORDS]);
                simd.prepare_quads(low, &mut low_quads[at..][..GROUP_STEPS * S::QUAD_WORDS]);
                high_sum = simd.add(high_sum, high);
                low_sum = simd.add(low_sum, low);
            }
            starts[HIGH_START] = start_of(simd, high_sum);
            starts[LOW_START] = start_of(simd, low_sum);
        }
    }

    #[inline(always)]
    fn score_groups<const R: usize, const P: usize>(
        simd: S,
        split: &Split<'_, '_>,
        tiles: [&Tile; 2],
        at: Scored,
        scores: &mut [[S::V; GROUPS]; R],
    ) {
        // Known at compile time: shapes that an instruction set does not use cost no code.
        assert!(P == <Self as Held<S>>::panels(R), "shape of a tile");
        let (scales, steps) = (split.key_scales, split.key_steps);
        let keys = |tile: &Tile| {
            let mut keys = [&split.lines[..0]; P];
            for p in 0..P {
                keys[p] = &split.lines[tile.groups[at.group + p].keys..][..scales + steps];
            }
            keys
        };
        let (here, next) = (keys(tiles[0]), keys(tiles[1]));
        let words = SCALES + scales * chunk_words::<S>();
        let rows = Inputs::<R, _>::new(&split.queries[at.first..], words);
        let mut total = [[simd.splat(0.0); P]; R];
        for chunk in 0..scales {
            let word = SCALES + chunk * chunk_words::<S>();
            let mut sums = Sums::<S, R, P>::start(simd, rows, word);
            for step in 0..CHUNK_STEPS.min(steps - chunk * CHUNK_STEPS) {
                let line = scales + chunk * CHUNK_STEPS + step;
                let mut lines = [&here[0][line]; P];
                for p in 0..P {
                    lines[p] = &here[p][line];
                    simd.prefetch(&raw const next[p][line]);
                }
                let high = word + STARTS + step * S::QUAD_WORDS;
                let low = high + CHUNK_STEPS * S::QUAD_WORDS;
                sums.add(simd, lines, rows, [high, low]);
            }
            for p in 0..P {
                let scale = simd.load_bits(&here[p][chunk]);
                for r in 0..R {
                    total[r][p] = simd.mul_add(sums.float(simd, r, p), scale, total[r][p]);
                }
            }
        }
        for r in 0..R {
            let factor = simd.splat(rows.float(r, SCALE) * at.factor);
            for p in 0..P {
                scores[r][at.group + p] = simd.mul(total[r][p], factor);
            }
        }
    }

    #[inline(always)]
    fn probabilities(
        simd: S,
        lines: &[Line],
        seen: &[Group],
        probabilities: &[S::V; GROUPS],
        words: &mut [u32; PROBABILITY_WORDS],
    ) {
        // Each value's scale goes into its probability. The scale of a position that is not seen may be anything.
        let zero = simd.splat(0.0);
        let mut weights = [zero; GROUPS];
        let mut top = zero;
        for g in 0..seen.len() {
            let scales = simd.load_bits(&lines[seen[g].value_scales]);
            let p = probabilities[g];
            weights[g] = simd.if_less(zero, p, simd.mul(p, scales), zero);
            top = simd.max(top, weights[g]);
        }
        let (scale, inverse) = scale_of(simd.highest(top));
        words[SCALE] = scale.to_bits();
        let (starts, quads) = words[SCALES..].split_at_mut(STARTS);
        let (high_quads, low_quads) = quads.split_at_mut(GROUPS * GROUP_STEPS * S::QUAD_WORDS);
        let (mut high_sum, mut low_sum) = (zero, zero);
        for g in 0..GROUPS {
            let [high, low] = halves(simd, weights[g], inverse);
            let at = g * GROUP_STEPS * S::QUAD_WORDS;
            simd.prepare_quads(high, &mut high_quads[at..][..GROUP_STEPS * S::QUAD_WORDS]);
            simd.prepare_quads(low, &mut low_quads[at..][..GROUP_STEPS * S::QUAD_WORDS]);
            high_sum = simd.add(high_sum, high);
            low_sum = simd.add(low_sum, low);
        }
        starts[HIGH_START] = start_of(simd, high_sum);
        starts[LOW_START] = start_of(simd, low_sum);
    }

    #[inline(always)]
    fn add_panels<const R: usize, const P: usize>(
        simd: S,
        split: &mut Split<'_, '_>,
        at: Values<'_>,
        panel: usize,
    ) {
        // Known at compile time, as above; a last panel may stand alone.
        let whole = <Self as Held<S>>::panels(R);
        assert!(P == whole || P == 1, "shape of a tile");
        let words = SCALES + STARTS + 2 * GROUPS * GROUP_STEPS * S::QUAD_WORDS;
        let rows = Inputs::<R, _>::new(split.words, words);
        assert!(at.seen <= GROUPS, "groups of a tile");
        let mut sums = Sums::<S, R, P>::start(simd, rows, SCALES);
        for g in 0..at.seen {
            let values = |tile: &Tile| {
                let mut values = [&split.lines[..0]; P];
                for p in 0..P {
                    let start = tile.groups[g].values + (panel + p) * split.panel_lines;
                    values[p] = &split.lines[start..][..GROUP_STEPS];
                }
                values
            };
            let (here, next) = (values(at.tiles[0]), values(at.tiles[1]));
            for step in 0..GROUP_STEPS {
                let mut lines = [&here[0][step]; P];
                for p in 0..P {
                    lines[p] = &here[p][step];
                    simd.prefetch(&raw const next[p][step]);
                }
                let high = SCALES + STARTS + (g * GROUP_STEPS + step) * S::QUAD_WORDS;
                let low = high + GROUPS * GROUP_STEPS * S::QUAD_WORDS;
                sums.add(simd, lines, rows, [high, low]);
            }
        }
        let len = split.len;
        let values = &mut split.sums[at.first * len..][..R * len];
        for r in 0..R {
            let scale = simd.splat(rows.float(r, SCALE));
            for p in 0..P {
                let place = &mut values[r * len + VALUES + panel + p].0;
                let sum = simd.mul_add(sums.float(simd, r, p), scale, simd.load(place));
                simd.store(sum, place);
            }
        }
    }
}
