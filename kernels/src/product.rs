//! How panels of each format are multiplied, as `linear` sees it: in units of lines and of prepared words that belong together.
//! Floats go through `tile`, integers through `int_tile`.

// Indices go through several arrays at once, and closures would lose the instruction set.
#![allow(clippy::needless_range_loop)]

use crate::aligned::Line;
use crate::simd::Int8;
use crate::strip::Strip;
use crate::tile::Element;
use std::marker::PhantomData;

/// Lines that are read soon: brought nearer while a tile multiplies, so that memory and arithmetic are busy at once. They are only
/// asked for, never read here, so they may lie beyond the end.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    next: *const Line,
    /// Lines asked for at a time.
    pace: usize,
}

impl Ahead {
    /// The lines from `next` on, `pace` at a time.
    #[inline(always)]
    pub(crate) fn new(next: *const Line, pace: usize) -> Self {
        Self { next, pace }
    }

    /// Asks for the next lines.
    #[inline(always)]
    pub(crate) fn advance<S: Int8>(&mut self, simd: S) {
        for _ in 0..self.pace {
            simd.prefetch(self.next);
            self.next = self.next.wrapping_add(1);
        }
    }
}

/// Prepared rows one after the other, from the word that goes with the first line of the panels.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    words: &'a [u32],
    /// Words from a row to the next.
    row_words: usize,
}

impl<'a> Rows<'a> {
    #[inline(always)]
    pub(crate) fn new(words: &'a [u32], row_words: usize) -> Self {
        Self { words, row_words }
    }

    /// # Panics
    /// Unless each of `rows` rows has `count` words.
    #[inline(always)]
    pub(crate) fn check(&self, rows: usize, count: usize) {
        let enough = (rows - 1) * self.row_words + count <= self.words.len();
        assert!(count <= self.row_words && enough, "inputs of a tile");
    }

    /// Words `at .. at + count` of a row.
    ///
    /// # Safety
    /// They are among what `check` found.
    #[inline(always)]
    pub(crate) unsafe fn words(&self, row: usize, at: usize, count: usize) -> &'a [u32] {
        let first = row * self.row_words + at;
        debug_assert!(at + count <= self.row_words && first + count <= self.words.len());
        // SAFETY: the caller's promise.
        unsafe { self.words.get_unchecked(first..first + count) }
    }
}

/// The products of prepared rows with the panels of one format.
pub(crate) trait Product<S: Int8> {
    /// Lines of a panel that go with `UNIT_WORDS` words of a prepared row.
    const UNIT_LINES: usize;
    const UNIT_WORDS: usize;
    /// Rows and panels of the largest register tile.
    const TILE: (usize, usize);
    /// Lines of a panel that are multiplied between two calls of `Ahead::advance`.
    const LINES_PER_ADVANCE: usize;
    /// Rows from which on a tile asks for lines that no other tile passes over: with so many operations from one line to the next
    /// the processor's own look-ahead falls behind, with fewer it does better alone. Measured on Zen 4.
    const LOOKS_AHEAD_FROM: usize;
    /// Whether the sums are multiplied by a factor per output at the end.
    const FACTORS: bool;

    /// Adds the products of all lines of P panels to `acc[row][panel]`; each of the R rows has the words that go with them.
    fn accumulate<const R: usize, const P: usize>(
        simd: S,
        x: Rows<'_>,
        panels: Strip<'_>,
        ahead: Ahead,
        acc: &mut [[S::V; P]; R],
    );
}

/// `Product` of floats.
pub(crate) struct ByElement<E>(PhantomData<E>);

impl<S: Int8, E: Element<S>> Product<S> for ByElement<E> {
    const UNIT_LINES: usize = 1;
    const UNIT_WORDS: usize = E::WORDS;
    const TILE: (usize, usize) = S::TILE;
    const LINES_PER_ADVANCE: usize = 8;
    const LOOKS_AHEAD_FROM: usize = 6;
    const FACTORS: bool = false;

    /// Adds up each output in one f32 sum from the first step to the last.
    ///
    /// Loops over arrays are written out here and in the kernels around it: `map` and `from_fn` take closures, and those are
    /// compiled without the instructions of the kernel whenever they are not inlined.
    #[inline(always)]
    fn accumulate<const R: usize, const P: usize>(
        simd: S,
        x: Rows<'_>,
        panels: Strip<'_>,
        mut ahead: Ahead,
        acc: &mut [[S::V; P]; R],
    ) {
        let steps = panels.len();
        panels.check(P);
        x.check(R, steps * E::WORDS);
        let mut sums = *acc;
        for first in (0..steps).step_by(<Self as Product<S>>::LINES_PER_ADVANCE) {
            ahead.advance(simd);
            for step in first..steps.min(first + <Self as Product<S>>::LINES_PER_ADVANCE) {
                // SAFETY: there are P panels (checked above) of `steps` lines.
                let mut lines = [E::line(simd, unsafe { panels.line(0, step) }); P];
                for p in 1..P {
                    // SAFETY: as above.
                    lines[p] = E::line(simd, unsafe { panels.line(p, step) });
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: every row has `steps * WORDS` words (checked above).
                    let words = unsafe { x.words(r, step * E::WORDS, E::WORDS) };
                    let inputs = E::inputs(simd, words);
                    for p in 0..P {
                        sums[p] = E::mul_add(simd, inputs, lines[p], sums[p]);
                    }
                }
            }
        }
        *acc = sums;
    }
}
