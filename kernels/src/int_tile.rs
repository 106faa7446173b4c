//! The register tiles of integer weights: R rows in int8 times P panels of sixteen outputs. Layouts of panels: `pack`; of rows:
//! `rows`.
//!
//! Sums of products are exact in i32 as far as scales reach (a group of 16 or 32 inputs, or a whole chunk of the row), and then
//! go to f32, group by group and chunk by chunk from the first to the last. No tile shape changes that order.

// Indices go through several arrays at once, and closures would lose the instruction set.
#![allow(clippy::needless_range_loop)]

use crate::aligned::Line;
use crate::product::{Ahead, Product};
use crate::rows::{CHUNK, Head, chunk_words};
use crate::simd::Int8;

/// `Format::Int8`: quads of `w + 128`.
pub(crate) struct Int8Panels;
/// `Format::Int8Blocks`.
pub(crate) struct Int8BlockPanels;
/// `Format::Int6`.
pub(crate) struct Int6Panels;
/// `Format::Int4`.
pub(crate) struct Int4Panels;

/// The words of R prepared rows, and the lines of P panels.
struct Operands<'a, const R: usize, const P: usize> {
    x: &'a [&'a [u32]; R],
    panels: &'a [&'a [Line]; P],
}

impl<'a, const R: usize, const P: usize> Operands<'a, R, P> {
    /// Checks once that all words and lines are there that the tile will ask for.
    #[inline(always)]
    fn new<S: Int8>(x: &'a [&'a [u32]; R], panels: &'a [&'a [Line]; P], unit_lines: usize) -> Self {
        let lines = panels[0].len();
        for panel in panels {
            assert!(panel.len() == lines, "panels of a tile");
        }
        for row in x {
            let words = lines.div_ceil(unit_lines) * chunk_words::<S>();
            assert!(row.len() >= words, "inputs of a tile");
        }
        Self { x, panels }
    }

    #[inline(always)]
    fn line(&self, panel: usize, at: usize) -> &'a Line {
        debug_assert!(at < self.panels[panel].len());
        // SAFETY: callers ask for lines below the length that all panels share (asserted in `new`).
        unsafe { self.panels[panel].get_unchecked(at) }
    }

    #[inline(always)]
    fn word(&self, row: usize, at: usize) -> u32 {
        debug_assert!(at < self.x[row].len());
        // SAFETY: callers ask for words of chunks that go with lines of the panels, and every row has those (`new`).
        unsafe { *self.x[row].get_unchecked(at) }
    }

    #[inline(always)]
    fn quad<S: Int8>(&self, simd: S, row: usize, at: usize) -> S::Q {
        debug_assert!(at + S::QUAD_WORDS <= self.x[row].len());
        // SAFETY: as in `word`.
        simd.quad(unsafe { self.x[row].get_unchecked(at..at + S::QUAD_WORDS) })
    }

    /// Adds the products of one line of each panel with the quads at word `at` of each row.
    #[inline(always)]
    fn add<S: Int8>(&self, simd: S, at: usize, lines: [S::B; P], sums: &mut [[S::I; P]; R]) {
        let mut w = [simd.quads(lines[0]); P];
        for p in 1..P {
            w[p] = simd.quads(lines[p]);
        }
        for r in 0..R {
            let quad = self.quad(simd, r, at);
            for p in 0..P {
                sums[r][p] = simd.dot_quads(quad, w[p], sums[r][p]);
            }
        }
    }

    /// Line `at` of each panel.
    #[inline(always)]
    fn bytes<S: Int8>(&self, simd: S, at: usize) -> [S::B; P] {
        let mut bytes = [simd.bytes(self.line(0, at)); P];
        for p in 1..P {
            bytes[p] = simd.bytes(self.line(p, at));
        }
        bytes
    }

    /// Sums that start at word `at` of each row.
    #[inline(always)]
    fn start<S: Int8>(&self, simd: S, at: usize) -> [[S::I; P]; R] {
        let mut sums = [[simd.splat_int(0); P]; R];
        for r in 0..R {
            sums[r] = [simd.splat_int(self.word(r, at) as i32); P];
        }
        sums
    }

    /// `acc += partial * scale of the chunk`, which starts at word `chunk`.
    #[inline(always)]
    fn finish<S: Int8>(
        &self,
        simd: S,
        chunk: usize,
        partial: &[[S::V; P]; R],
        acc: &mut [[S::V; P]; R],
    ) {
        for r in 0..R {
            let scale = simd.splat(f32::from_bits(self.word(r, chunk + Head::SCALE)));
            for p in 0..P {
                acc[r][p] = simd.mul_add(partial[r][p], scale, acc[r][p]);
            }
        }
    }
}

/// `partial += sums * scales`.
#[inline(always)]
fn scale_sums<S: Int8, const R: usize, const P: usize>(
    simd: S,
    sums: &[[S::I; P]; R],
    scales: &[S::V; P],
    partial: &mut [[S::V; P]; R],
) {
    for r in 0..R {
        for p in 0..P {
            partial[r][p] = simd.mul_add(simd.to_float(sums[r][p]), scales[p], partial[r][p]);
        }
    }
}

impl<S: Int8> Product<S> for Int8Panels {
    const UNIT_LINES: usize = CHUNK / 4;
    const UNIT_WORDS: usize = chunk_words::<S>();
    const TILE: (usize, usize) = S::INT_TILE;
    const LINES_PER_ADVANCE: usize = 8;
    const FACTORS: bool = true;

    #[inline(always)]
    fn accumulate<const R: usize, const P: usize>(
        simd: S,
        x: &[&[u32]; R],
        panels: &[&[Line]; P],
        mut ahead: Ahead<'_, P>,
        acc: &mut [[S::V; P]; R],
    ) {
        let unit = <Self as Product<S>>::UNIT_LINES;
        let tile = Operands::new::<S>(x, panels, unit);
        let lines = panels[0].len();
        for unit_at in 0..lines.div_ceil(unit) {
            let (first, chunk) = (unit_at * unit, unit_at * chunk_words::<S>());
            let mut sums = tile.start(simd, chunk + Head::OFFSET);
            let count = unit.min(lines - first);
            for eighth in (0..count).step_by(8) {
                ahead.advance(simd);
                for i in eighth..count.min(eighth + 8) {
                    let bytes = tile.bytes(simd, first + i);
                    let quad = chunk + Head::QUADS + i * S::QUAD_WORDS;
                    tile.add(simd, quad, bytes, &mut sums);
                }
            }
            let mut partial = [[simd.splat(0.0); P]; R];
            for r in 0..R {
                for p in 0..P {
                    partial[r][p] = simd.to_float(sums[r][p]);
                }
            }
            tile.finish(simd, chunk, &partial, acc);
        }
    }
}

/// Panels of a tile that holds f32 sums beside those in i32.
const fn half_of(tile: (usize, usize)) -> (usize, usize) {
    (tile.0, tile.1.div_ceil(2))
}

impl<S: Int8> Product<S> for Int4Panels {
    const UNIT_LINES: usize = CHUNK / 32 * 5;
    const UNIT_WORDS: usize = chunk_words::<S>();
    const TILE: (usize, usize) = half_of(S::INT_TILE);
    // A group.
    const LINES_PER_ADVANCE: usize = 5;
    const FACTORS: bool = false;

    #[inline(always)]
    fn accumulate<const R: usize, const P: usize>(
        simd: S,
        x: &[&[u32]; R],
        panels: &[&[Line]; P],
        mut ahead: Ahead<'_, P>,
        acc: &mut [[S::V; P]; R],
    ) {
        let unit = <Self as Product<S>>::UNIT_LINES;
        let tile = Operands::new::<S>(x, panels, unit);
        let groups = panels[0].len() / 5;
        for unit_at in 0..groups.div_ceil(CHUNK / 32) {
            let chunk = unit_at * chunk_words::<S>();
            let mut partial = [[simd.splat(0.0); P]; R];
            for group in 0..(CHUNK / 32).min(groups - unit_at * (CHUNK / 32)) {
                ahead.advance(simd);
                let first = unit_at * unit + group * 5;
                let quads = chunk + Head::QUADS + group * 8 * S::QUAD_WORDS;
                let mut sums = [[simd.splat_int(0); P]; R];
                for i in 0..4 {
                    let bytes = tile.bytes(simd, first + 1 + i);
                    let (mut low, mut high) = (bytes, bytes);
                    for p in 0..P {
                        low[p] = simd.low_nibbles(bytes[p]);
                        high[p] = simd.high_nibbles(bytes[p]);
                    }
                    tile.add(simd, quads + 2 * i * S::QUAD_WORDS, low, &mut sums);
                    tile.add(simd, quads + (2 * i + 1) * S::QUAD_WORDS, high, &mut sums);
                }
                let (mut scales, mut minima) = ([simd.splat(0.0); P], [simd.splat(0.0); P]);
                for p in 0..P {
                    scales[p] = simd.halves(tile.line(p, first), 0);
                    minima[p] = simd.halves(tile.line(p, first), 1);
                }
                scale_sums(simd, &sums, &scales, &mut partial);
                for r in 0..R {
                    let sum =
                        simd.splat(f32::from_bits(tile.word(r, chunk + Head::SUM_32 + group)));
                    for p in 0..P {
                        partial[r][p] = simd.mul_add(minima[p], sum, partial[r][p]);
                    }
                }
            }
            tile.finish(simd, chunk, &partial, acc);
        }
    }
}

impl<S: Int8> Product<S> for Int8BlockPanels {
    const UNIT_LINES: usize = CHUNK / 64 * 17;
    const UNIT_WORDS: usize = chunk_words::<S>();
    const TILE: (usize, usize) = half_of(S::INT_TILE);
    // A group and its half of a line of scales.
    const LINES_PER_ADVANCE: usize = 9;
    const FACTORS: bool = false;

    #[inline(always)]
    fn accumulate<const R: usize, const P: usize>(
        simd: S,
        x: &[&[u32]; R],
        panels: &[&[Line]; P],
        mut ahead: Ahead<'_, P>,
        acc: &mut [[S::V; P]; R],
    ) {
        let unit = <Self as Product<S>>::UNIT_LINES;
        let tile = Operands::new::<S>(x, panels, unit);
        // Two groups of 32 share 17 lines.
        let groups = panels[0].len() / 17 * 2;
        for unit_at in 0..groups.div_ceil(CHUNK / 32) {
            let chunk = unit_at * chunk_words::<S>();
            let mut partial = [[simd.splat(0.0); P]; R];
            for group in 0..(CHUNK / 32).min(groups - unit_at * (CHUNK / 32)) {
                ahead.advance(simd);
                let scales_at = unit_at * unit + group / 2 * 17;
                let first = scales_at + 1 + group % 2 * 8;
                let quads = chunk + Head::QUADS + group * 8 * S::QUAD_WORDS;
                let mut sums = tile.start(simd, chunk + Head::OFFSET_32 + group);
                for i in 0..8 {
                    let bytes = tile.bytes(simd, first + i);
                    tile.add(simd, quads + i * S::QUAD_WORDS, bytes, &mut sums);
                }
                let mut scales = [simd.splat(0.0); P];
                for p in 0..P {
                    scales[p] = simd.halves(tile.line(p, scales_at), group % 2);
                }
                scale_sums(simd, &sums, &scales, &mut partial);
            }
            tile.finish(simd, chunk, &partial, acc);
        }
    }
}

impl<S: Int8> Product<S> for Int6Panels {
    const UNIT_LINES: usize = CHUNK / 32 * 7;
    const UNIT_WORDS: usize = chunk_words::<S>();
    const TILE: (usize, usize) = half_of(S::INT_TILE);
    // Half a unit.
    const LINES_PER_ADVANCE: usize = 4;
    const FACTORS: bool = false;

    #[inline(always)]
    fn accumulate<const R: usize, const P: usize>(
        simd: S,
        x: &[&[u32]; R],
        panels: &[&[Line]; P],
        mut ahead: Ahead<'_, P>,
        acc: &mut [[S::V; P]; R],
    ) {
        let unit = <Self as Product<S>>::UNIT_LINES;
        let tile = Operands::new::<S>(x, panels, unit);
        // A group of 16 inputs has half of the 7 lines of a unit in `pack`.
        let groups = panels[0].len() / 7 * 2;
        for unit_at in 0..groups.div_ceil(CHUNK / 16) {
            let chunk = unit_at * chunk_words::<S>();
            let mut partial = [[simd.splat(0.0); P]; R];
            for group in 0..(CHUNK / 16).min(groups - unit_at * (CHUNK / 16)) {
                ahead.advance(simd);
                let (scales_at, half) = (unit_at * unit + group / 2 * 7, group % 2);
                let quads = chunk + Head::QUADS + group * 4 * S::QUAD_WORDS;
                let mut sums = tile.start(simd, chunk + Head::OFFSET_16 + group);
                let mut pairs = tile.bytes(simd, scales_at + 5 + half);
                for i in 0..2 {
                    let bytes = tile.bytes(simd, scales_at + 1 + 2 * half + i);
                    let (mut low, mut high) = (bytes, bytes);
                    for p in 0..P {
                        low[p] = simd.six_bits(simd.low_nibbles(bytes[p]), pairs[p]);
                        pairs[p] = simd.turn_two_bits(pairs[p]);
                        high[p] = simd.six_bits(simd.high_nibbles(bytes[p]), pairs[p]);
                        pairs[p] = simd.turn_two_bits(pairs[p]);
                    }
                    tile.add(simd, quads + 2 * i * S::QUAD_WORDS, low, &mut sums);
                    tile.add(simd, quads + (2 * i + 1) * S::QUAD_WORDS, high, &mut sums);
                }
                let mut scales = [simd.splat(0.0); P];
                for p in 0..P {
                    let line = tile.line(p, scales_at);
                    scales[p] = simd.mul(simd.signed_bytes(line, half), simd.halves(line, 1));
                }
                scale_sums(simd, &sums, &scales, &mut partial);
            }
            tile.finish(simd, chunk, &partial, acc);
        }
    }
}
