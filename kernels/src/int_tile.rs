//! The register tiles of integer weights: R rows in int8 times P panels of sixteen outputs. Layouts of panels: `pack`; of rows:
//! `rows`.
//!
//! Sums of products are exact in i32 as far as scales reach (a group of 16 or 32 inputs, or a whole chunk of the row), and then
//! go to f32, group by group and chunk by chunk from the first to the last. No tile shape changes that order.

// Indices go through several arrays at once, and closures would lose the instruction set.
#![allow(clippy::needless_range_loop)]

use crate::aligned::Line;
use crate::product::{Ahead, Product, Rows};
use crate::rows::{CHUNK, Head, chunk_words};
use crate::simd::Int8;
use crate::strip::Strip;
use std::marker::PhantomData;

/// `Format::Int8`: quads of `w + 128`.
pub(crate) struct Int8Panels;
/// `Format::Int8Blocks`.
pub(crate) struct Int8BlockPanels;
/// `Format::Int6`.
pub(crate) struct Int6Panels;
/// `Format::Int4`.
pub(crate) struct Int4Panels;

/// The words of R prepared rows, and P panels.
pub(crate) struct Operands<'a, const R: usize, const P: usize> {
    x: Rows<'a>,
    panels: Strip<'a>,
}

impl<'a, const R: usize, const P: usize> Operands<'a, R, P> {
    /// Checks once that all words and lines are there that the tile will ask for.
    #[inline(always)]
    fn new<S: Int8>(x: Rows<'a>, panels: Strip<'a>, unit_lines: usize) -> Self {
        let lines = panels.len();
        panels.check(P);
        assert!(lines.is_multiple_of(unit_lines), "whole chunks");
        x.check(R, lines / unit_lines * chunk_words::<S>());
        Self { x, panels }
    }

    #[inline(always)]
    fn line(&self, panel: usize, at: usize) -> &'a Line {
        // SAFETY: callers ask for lines below the length of P panels (checked in `new`).
        unsafe { self.panels.line(panel, at) }
    }

    #[inline(always)]
    fn word(&self, row: usize, at: usize) -> u32 {
        // SAFETY: callers ask for words of chunks that go with lines of the panels, and every row has those (`new`).
        unsafe { self.x.words(row, at, 1)[0] }
    }

    #[inline(always)]
    fn quad<S: Int8>(&self, simd: S, row: usize, at: usize) -> S::Q {
        // SAFETY: as in `word`.
        simd.quad(unsafe { self.x.words(row, at, S::QUAD_WORDS) })
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

    /// The f32 at word `at` of a row.
    #[inline(always)]
    fn float(&self, row: usize, at: usize) -> f32 {
        f32::from_bits(self.word(row, at))
    }

    /// Turns sums into multiples of the scale of the first chunk.
    #[inline(always)]
    fn enter<S: Int8>(&self, simd: S, acc: &mut [[S::V; P]; R]) {
        for r in 0..R {
            let inverse = simd.splat(self.float(r, Head::INVERSE));
            for p in 0..P {
                acc[r][p] = simd.mul(acc[r][p], inverse);
            }
        }
    }

    /// Turns sums that are multiples of the scale of the chunk at word `chunk` into multiples of the next one's, or after the last
    /// chunk into what they stand for. So they can stay in one set of registers through all chunks.
    #[inline(always)]
    fn leave<S: Int8>(&self, simd: S, chunk: usize, last: bool, acc: &mut [[S::V; P]; R]) {
        for r in 0..R {
            let mut factor = self.float(r, chunk + Head::SCALE);
            if !last {
                factor *= self.float(r, chunk + chunk_words::<S>() + Head::INVERSE);
            }
            let factor = simd.splat(factor);
            for p in 0..P {
                acc[r][p] = simd.mul(acc[r][p], factor);
            }
        }
    }
}

/// `acc += sums * scales`.
#[inline(always)]
fn scale_sums<S: Int8, const R: usize, const P: usize>(
    simd: S,
    sums: &[[S::I; P]; R],
    scales: &[S::V; P],
    acc: &mut [[S::V; P]; R],
) {
    for r in 0..R {
        for p in 0..P {
            acc[r][p] = simd.mul_add(simd.to_float(sums[r][p]), scales[p], acc[r][p]);
        }
    }
}

/// Integer panels, group by group: as far as sums in i32 reach.
pub(crate) trait Groups<S: Int8> {
    /// Groups of a chunk.
    const COUNT: usize;
    /// Lines of a panel for a chunk.
    const LINES: usize;
    /// As in `Product`.
    const LOOKS_AHEAD_FROM: usize;
    /// Whether weights have one scale per output and no others: a factor at the end of the sums.
    const FACTORS: bool = false;

    /// Adds the products of a group: with `FACTORS` times the chunk's scale, else as multiples of it.
    fn add_group<const R: usize, const P: usize>(
        simd: S,
        tile: &Operands<'_, R, P>,
        at: GroupAt,
        total: &mut [[S::V; P]; R],
    );
}

/// A group of inputs.
#[derive(Clone, Copy)]
pub(crate) struct GroupAt {
    /// First line of its chunk in each panel, and first word in each row.
    line: usize,
    word: usize,
    /// Which of the chunk.
    group: usize,
}

/// `Product` of integer panels.
pub(crate) struct ByGroups<G>(PhantomData<G>);

impl<S: Int8, G: Groups<S>> Product<S> for ByGroups<G> {
    const UNIT_LINES: usize = G::LINES;
    const UNIT_WORDS: usize = chunk_words::<S>();
    const TILE: (usize, usize) = S::INT_TILE;
    const LINES_PER_ADVANCE: usize = G::LINES.div_ceil(G::COUNT);
    const LOOKS_AHEAD_FROM: usize = G::LOOKS_AHEAD_FROM;
    const FACTORS: bool = G::FACTORS;

    #[inline(always)]
    fn accumulate<const R: usize, const P: usize>(
        simd: S,
        x: Rows<'_>,
        panels: Strip<'_>,
        mut ahead: Ahead,
        acc: &mut [[S::V; P]; R],
    ) {
        let tile = Operands::<R, P>::new::<S>(x, panels, G::LINES);
        let groups = panels.len() / G::LINES * G::COUNT;
        let mut total = *acc;
        if !G::FACTORS {
            tile.enter(simd, &mut total);
        }
        for group in 0..groups {
            ahead.advance(simd);
            let chunk = group / G::COUNT;
            let at = GroupAt {
                line: chunk * G::LINES,
                word: chunk * chunk_words::<S>(),
                group: group % G::COUNT,
            };
            G::add_group(simd, &tile, at, &mut total);
            if !G::FACTORS && at.group + 1 == G::COUNT {
                tile.leave(simd, at.word, group + 1 == groups, &mut total);
            }
        }
        *acc = total;
    }
}

impl<S: Int8> Groups<S> for Int8Panels {
    const COUNT: usize = 1;
    const LINES: usize = CHUNK / 4;
    const LOOKS_AHEAD_FROM: usize = 5;
    const FACTORS: bool = true;

    #[inline(always)]
    fn add_group<const R: usize, const P: usize>(
        simd: S,
        tile: &Operands<'_, R, P>,
        at: GroupAt,
        total: &mut [[S::V; P]; R],
    ) {
        let mut sums = tile.start(simd, at.word + Head::OFFSET);
        for i in 0..CHUNK / 4 {
            let bytes = tile.bytes(simd, at.line + i);
            let quad = at.word + Head::QUADS + i * S::QUAD_WORDS;
            tile.add(simd, quad, bytes, &mut sums);
        }
        for r in 0..R {
            let scale = simd.splat(tile.float(r, at.word + Head::SCALE));
            for p in 0..P {
                total[r][p] = simd.mul_add(simd.to_float(sums[r][p]), scale, total[r][p]);
            }
        }
    }
}

impl<S: Int8> Groups<S> for Int4Panels {
    const COUNT: usize = CHUNK / 32;
    const LINES: usize = CHUNK / 32 * 5;
    const LOOKS_AHEAD_FROM: usize = 2;

    #[inline(always)]
    fn add_group<const R: usize, const P: usize>(
        simd: S,
        tile: &Operands<'_, R, P>,
        at: GroupAt,
        total: &mut [[S::V; P]; R],
    ) {
        let first = at.line + at.group * 5;
        let quads = at.word + Head::QUADS + at.group * 8 * S::QUAD_WORDS;
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
        scale_sums(simd, &sums, &scales, total);
        for r in 0..R {
            let sum = simd.splat(tile.float(r, at.word + Head::SUM_32 + at.group));
            for p in 0..P {
                total[r][p] = simd.mul_add(minima[p], sum, total[r][p]);
            }
        }
    }
}

impl<S: Int8> Groups<S> for Int8BlockPanels {
    const COUNT: usize = CHUNK / 32;
    const LINES: usize = CHUNK / 64 * 17;
    const LOOKS_AHEAD_FROM: usize = 5;

    #[inline(always)]
    fn add_group<const R: usize, const P: usize>(
        simd: S,
        tile: &Operands<'_, R, P>,
        at: GroupAt,
        total: &mut [[S::V; P]; R],
    ) {
        // Two groups share a line of scales.
        let scales_at = at.line + at.group / 2 * 17;
        let first = scales_at + 1 + at.group % 2 * 8;
        let quads = at.word + Head::QUADS + at.group * 8 * S::QUAD_WORDS;
        let mut sums = tile.start(simd, at.word + Head::OFFSET_32 + at.group);
        for i in 0..8 {
            let bytes = tile.bytes(simd, first + i);
            tile.add(simd, quads + i * S::QUAD_WORDS, bytes, &mut sums);
        }
        let mut scales = [simd.splat(0.0); P];
        for p in 0..P {
            scales[p] = simd.halves(tile.line(p, scales_at), at.group % 2);
        }
        scale_sums(simd, &sums, &scales, total);
    }
}

impl<S: Int8> Groups<S> for Int6Panels {
    const COUNT: usize = CHUNK / 16;
    const LINES: usize = CHUNK / 32 * 7;
    const LOOKS_AHEAD_FROM: usize = 2;

    #[inline(always)]
    fn add_group<const R: usize, const P: usize>(
        simd: S,
        tile: &Operands<'_, R, P>,
        at: GroupAt,
        total: &mut [[S::V; P]; R],
    ) {
        // Two groups share seven lines (see `pack`).
        let (scales_at, half) = (at.line + at.group / 2 * 7, at.group % 2);
        let quads = at.word + Head::QUADS + at.group * 4 * S::QUAD_WORDS;
        let mut sums = tile.start(simd, at.word + Head::OFFSET_16 + at.group);
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
        scale_sums(simd, &sums, &scales, total);
    }
}
