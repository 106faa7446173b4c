//! `out = x · weightᵀ + bias` on packed weights. One input row reads every weight once, at the memory's speed; many rows
//! go through the register tile, block by block, so that inputs and panels stay in the caches.

use crate::aligned::{LANES, Line};
use crate::disjoint::Disjoint;
use crate::simd::{Bf16, Kernel};
use crate::tile::{Bf16Element, Element, SingleElement, accumulate, panels_per_tile, with_rows};
use crate::{Format, Machine, Matrix};

/// Rows of one task: their prepared inputs stay in the second-level cache while the panels pass.
const ROWS_PER_TASK: usize = 96;
/// Panels of one register tile at most.
const MAX_PANELS: usize = 4;
/// Steps after which partial sums go to `out`, so that the panels in use stay in the second-level cache.
const STEPS_PER_BLOCK: usize = 1024;
/// Bytes of weights worth a task of their own when there are few rows.
const BYTES_PER_TASK: usize = 96 * 1024;

/// Input rows as the register tile reads them; a buffer that is kept from call to call.
#[derive(Default)]
pub struct PreparedRows {
    words: Vec<u32>,
    row_words: usize,
}

impl PreparedRows {
    /// Prepares the rows of `x`, each `cols` wide.
    fn fill(&mut self, machine: &mut Machine, format: Format, x: &[f32], cols: usize) {
        let isa = machine.isa;
        self.row_words = isa.dispatch(RowWords { format, cols });
        let row_words = self.row_words;
        let len = x.len().checked_div(cols).unwrap_or(0) * row_words;
        if self.words.len() < len {
            self.words.resize(len, 0);
        }
        machine.for_rows(&mut self.words[..len], row_words, |first, words| {
            let rows = words.len() / row_words;
            let x = &x[first * cols..][..rows * cols];
            isa.dispatch(Prepare {
                format,
                x,
                cols,
                words,
                row_words,
            });
        });
    }

    fn row(&self, row: usize) -> &[u32] {
        &self.words[row * self.row_words..][..self.row_words]
    }
}

/// `out = x · weightᵀ + bias`: x is `[rows, inputs]`, out `[rows, outputs]`. With `Format::Bf16` x is rounded to bf16 first.
///
/// # Panics
/// When lengths do not fit together.
pub fn linear(
    machine: &mut Machine,
    prepared: &mut PreparedRows,
    x: &[f32],
    weight: Matrix<'_>,
    out: &mut [f32],
) {
    let rows = x.len().checked_div(weight.inputs()).unwrap_or(0);
    assert_eq!(x.len(), rows * weight.inputs(), "x of {rows} rows");
    assert_eq!(out.len(), rows * weight.outputs(), "out of {rows} rows");
    prepared.fill(machine, weight.format(), x, weight.inputs());
    let isa = machine.isa;
    let panel_bytes = weight.steps() * size_of::<Line>();
    let groups = (BYTES_PER_TASK / (MAX_PANELS * panel_bytes).max(1)).max(1);
    let panels_per_task = MAX_PANELS * if rows < ROWS_PER_TASK / 4 { groups } else { 1 };
    let column_tasks = weight.panels().div_ceil(panels_per_task);
    let out = Disjoint::new(out);
    machine
        .pool
        .run(column_tasks * rows.div_ceil(ROWS_PER_TASK), &|task| {
            let first_row = task / column_tasks * ROWS_PER_TASK;
            let first_panel = task % column_tasks * panels_per_task;
            isa.dispatch(Block {
                x: prepared,
                weight,
                first_row,
                end_row: rows.min(first_row + ROWS_PER_TASK),
                first_panel,
                end_panel: weight.panels().min(first_panel + panels_per_task),
                out: &out,
            });
        });
}

struct RowWords {
    format: Format,
    cols: usize,
}

impl Kernel for RowWords {
    type Output = usize;
    #[inline(always)]
    fn run<S: Bf16>(self, _: S) -> usize {
        match self.format {
            Format::F32 => self.cols,
            Format::Bf16 => self.cols.div_ceil(2) * S::PAIR_WORDS,
        }
    }
}

struct Prepare<'a> {
    format: Format,
    x: &'a [f32],
    cols: usize,
    words: &'a mut [u32],
    row_words: usize,
}

impl Kernel for Prepare<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Bf16>(self, simd: S) {
        for (x, words) in self
            .x
            .chunks_exact(self.cols)
            .zip(self.words.chunks_exact_mut(self.row_words))
        {
            match self.format {
                Format::F32 => SingleElement::prepare(simd, x, words),
                Format::Bf16 => Bf16Element::prepare(simd, x, words),
            }
        }
    }
}

/// A rectangle of the output.
struct Block<'a> {
    x: &'a PreparedRows,
    weight: Matrix<'a>,
    first_row: usize,
    end_row: usize,
    first_panel: usize,
    end_panel: usize,
    out: &'a Disjoint<'a, f32>,
}

impl Kernel for Block<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Bf16>(self, simd: S) {
        match self.weight.format() {
            Format::F32 => self.all::<S, SingleElement>(simd),
            Format::Bf16 => self.all::<S, Bf16Element>(simd),
        }
    }
}

impl Block<'_> {
    #[inline(always)]
    fn all<S: Bf16, E: Element<S>>(&self, simd: S) {
        let wide = panels_per_tile::<S>(self.end_row - self.first_row);
        let mut panel = self.first_panel;
        while panel < self.end_panel {
            panel += match wide {
                _ if self.end_panel - panel < wide => self.columns::<S, E, 1>(simd, panel),
                4 => self.columns::<S, E, 4>(simd, panel),
                2 => self.columns::<S, E, 2>(simd, panel),
                _ => self.columns::<S, E, 1>(simd, panel),
            };
        }
    }

    /// All rows of the panels `panel .. panel + P`; returns P.
    #[inline(always)]
    fn columns<S: Bf16, E: Element<S>, const P: usize>(&self, simd: S, panel: usize) -> usize {
        let rows = self.end_row - self.first_row;
        // Panels of a lone row are wider than others, so its tile stays a lone row.
        let tiles = rows.div_ceil(S::TILE.0);
        let steps = self.weight.steps();
        for first_step in (0..steps.max(1)).step_by(STEPS_PER_BLOCK) {
            let end_step = steps.min(first_step + STEPS_PER_BLOCK);
            let mut row = self.first_row;
            for tile in 0..tiles {
                // Rows are shared out evenly, so that no tile is left with a thin rest.
                let tile_rows = (self.end_row - row).div_ceil(tiles - tile);
                let at = TileAt {
                    row,
                    panel,
                    first_step,
                    end_step,
                };
                with_rows!(tile_rows, R => self.tile::<S, E, R, P>(simd, at));
                row += tile_rows;
            }
        }
        P
    }

    #[inline(always)]
    fn tile<S: Bf16, E: Element<S>, const R: usize, const P: usize>(&self, simd: S, at: TileAt) {
        let mut panels: [&[Line]; P] = [&[]; P];
        for (p, lines) in panels.iter_mut().enumerate() {
            *lines = &self.weight.panel(at.panel + p)[at.first_step..at.end_step];
        }
        let mut x: [&[u32]; R] = [&[]; R];
        for (r, words) in x.iter_mut().enumerate() {
            *words = &self.x.row(at.row + r)[at.first_step * E::WORDS..];
        }
        let mut sums = [[simd.splat(0.0); P]; R];
        for (r, sums) in sums.iter_mut().enumerate() {
            for (p, sum) in sums.iter_mut().enumerate() {
                *sum = if at.first_step == 0 {
                    simd.load(self.weight.panel_bias(at.panel + p))
                } else {
                    // SAFETY: the block owns these outputs; the part ends with the load.
                    simd.load_padded(unsafe { self.out_lanes(at.row + r, at.panel + p) }, 0.0)
                };
            }
        }
        accumulate::<S, E, R, P>(simd, &x, &panels, &mut sums);
        for (r, sums) in sums.iter().enumerate() {
            for (p, sum) in sums.iter().enumerate() {
                // SAFETY: the block owns these outputs; the part ends with the store.
                let out = unsafe { self.out_lanes(at.row + r, at.panel + p) };
                match <&mut [f32; LANES]>::try_from(&mut *out) {
                    Ok(out) => simd.store(*sum, out),
                    Err(_) => simd.store_first(*sum, out),
                }
            }
        }
    }

    /// The outputs of one row and panel of this block.
    ///
    /// # Safety
    /// The caller holds no other part of them, and no other block covers them (`linear` cuts the output into blocks).
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    unsafe fn out_lanes(&self, row: usize, panel: usize) -> &mut [f32] {
        let outputs = self.weight.outputs();
        let width = LANES.min(outputs - panel * LANES);
        // SAFETY: the caller's promise.
        unsafe { self.out.part(row * outputs + panel * LANES, width) }
    }
}

/// Where a register tile stands.
#[derive(Clone, Copy)]
struct TileAt {
    row: usize,
    panel: usize,
    first_step: usize,
    end_step: usize,
}
