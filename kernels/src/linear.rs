//! `out = x · weightᵀ + bias` on packed weights. One input row reads every weight once, at the memory's speed; many rows
//! go through the register tile, block by block, so that inputs and panels stay in the caches.

use crate::aligned::{LANES, Line};
use crate::disjoint::Disjoint;
use crate::int_tile::{ByGroups, Int4Panels, Int6Panels, Int8BlockPanels, Int8Panels};
use crate::matrix::Panels;
use crate::product::{Ahead, ByElement, Product};
use crate::shape::{Shape, shape_of};
use crate::simd::{Int8, Kernel};
use crate::tile::{Bf16Element, SingleElement, with_rows};
use crate::{Format, Isa, Machine, Matrix, PreparedRows};
use std::ops::Range;

/// Rows of one task: their prepared inputs stay in the second-level cache while the panels pass.
const ROWS_PER_TASK: usize = 96;
/// How far a tile that is alone with its lines looks ahead: far enough to hide the memory's latency.
const LINES_AHEAD: usize = 128;
/// Bytes of panels that all tiles of a task pass over before the next ones: they stay in the second-level cache.
const BYTES_PER_BLOCK: usize = 256 * 1024;

/// `out = x · weightᵀ + bias`: x is `[rows, inputs]`, out `[rows, outputs]`. x is turned into what the weight's format is
/// multiplied by (`Format::row_form`) first.
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
    prepared.fill(machine, weight.row_form(), x, weight.inputs());
    linear_prepared(machine, prepared, weight, out);
}

/// `linear` of rows that are prepared already.
///
/// # Panics
/// When lengths do not fit together, or the rows were prepared for weights of another form.
pub fn linear_prepared(
    machine: &mut Machine,
    x: &PreparedRows,
    weight: Matrix<'_>,
    out: &mut [f32],
) {
    let rows = x.rows();
    assert!(
        x.fits(weight.row_form(), weight.inputs()),
        "rows prepared for other weights"
    );
    assert_eq!(out.len(), rows * weight.outputs(), "out of {rows} rows");
    let isa = machine.isa;
    let out = Disjoint::new(out);
    for panels in weight.runs() {
        let cut = Cut::new(rows, &panels);
        machine.pool.run_ranges(cut.tasks(), &|_, tasks| {
            cut.rectangles(tasks, |at| {
                let block = Block {
                    isa,
                    x,
                    panels,
                    at,
                    out: &out,
                    outputs: weight.outputs(),
                };
                block.run();
            });
        });
    }
}

/// How the rows and panels are cut into tasks.
struct Cut {
    rows: usize,
    panels: usize,
    /// Panels of a task: a strip.
    wide: usize,
}

impl Cut {
    fn new(rows: usize, panels: &Panels<'_>) -> Self {
        Self {
            rows,
            panels: panels.count(),
            wide: panels.strip,
        }
    }

    /// Tasks beside each other.
    fn columns(&self) -> usize {
        self.panels.div_ceil(self.wide)
    }

    fn tasks(&self) -> usize {
        self.columns() * self.rows.div_ceil(ROWS_PER_TASK)
    }

    /// Tasks beside each other make one rectangle.
    fn rectangles(&self, tasks: Range<usize>, work: impl Fn(Rectangle)) {
        let columns = self.columns();
        let mut first = tasks.start;
        while first < tasks.end {
            let (row, column) = (first / columns, first % columns);
            let end_column = columns.min(column + tasks.end - first);
            work(Rectangle {
                first_row: row * ROWS_PER_TASK,
                end_row: self.rows.min((row + 1) * ROWS_PER_TASK),
                first_panel: column * self.wide,
                end_panel: self.panels.min(end_column * self.wide),
            });
            first += end_column - column;
        }
    }
}

/// Rows and panels of one task.
#[derive(Clone, Copy)]
struct Rectangle {
    first_row: usize,
    end_row: usize,
    first_panel: usize,
    end_panel: usize,
}

/// A rectangle of the output.
struct Block<'a> {
    isa: Isa,
    x: &'a PreparedRows,
    panels: Panels<'a>,
    at: Rectangle,
    out: &'a Disjoint<'a, f32>,
    /// Width of a row of `out`.
    outputs: usize,
}

impl Block<'_> {
    fn run(&self) {
        let shape = shape_of(self.isa, self.panels.format);
        let wide = shape.panels.min(self.panels.strip);
        let mut panel = self.at.first_panel;
        while panel < self.at.end_panel {
            panel += match wide.min(self.at.end_panel - panel) {
                4.. => self.columns::<4>(shape, panel),
                2.. => self.columns::<2>(shape, panel),
                _ => self.columns::<1>(shape, panel),
            };
        }
    }

    /// All rows of the panels `panel .. panel + P`; returns P.
    fn columns<const P: usize>(&self, shape: Shape, panel: usize) -> usize {
        let rows = self.at.end_row - self.at.first_row;
        let of = rows.div_ceil(shape.rows);
        let units = self.panels.panel_lines.div_ceil(shape.unit_lines).max(1);
        let fit = BYTES_PER_BLOCK / (P * shape.unit_lines * size_of::<Line>());
        let block = if of > 1 { fit.max(1) } else { units };
        for first_unit in (0..units).step_by(block) {
            // Rows are shared out evenly, so that no tile is left with a thin rest: some tiles have one more than the others.
            let (fewer, wider) = (rows / of, rows % of);
            for (tile_rows, tiles) in [(fewer + 1, 0..wider), (fewer, wider..of)] {
                if tiles.is_empty() {
                    continue;
                }
                let at = TilesAt {
                    row: self.at.first_row + tiles.start * fewer + tiles.start.min(wider),
                    panel,
                    first_unit,
                    end_unit: units.min(first_unit + block),
                    last: first_unit + block >= units,
                    first: tiles.start,
                    end: tiles.end,
                    of,
                };
                with_rows!(tile_rows, R => self.isa.dispatch(Tiles::<R, P> { block: self, at }));
            }
        }
        P
    }

    /// The outputs of one row and some panels of this block; fewer than sixteen a panel where the matrix ends.
    ///
    /// # Safety
    /// The caller holds no other part of them, and no other block covers them (`linear` cuts the output into blocks).
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    unsafe fn out_lanes(&self, row: usize, panel: usize, panels: usize) -> &mut [f32] {
        let width = (panels * LANES).min(self.panels.outputs - panel * LANES);
        let first = self.panels.first_output + panel * LANES;
        // SAFETY: the caller's promise.
        unsafe { self.out.part(row * self.outputs + first, width) }
    }
}

/// Where register tiles of the same shape stand, one below the other.
#[derive(Clone, Copy)]
struct TilesAt {
    /// First row of the first of them.
    row: usize,
    panel: usize,
    first_unit: usize,
    end_unit: usize,
    /// Whether the sums end here.
    last: bool,
    /// Which tiles these are `of` how many that pass over the same lines.
    first: usize,
    end: usize,
    of: usize,
}

/// Register tiles of R rows and P panels. Each shape is compiled by itself: together they would be a function that takes minutes.
struct Tiles<'a, const R: usize, const P: usize> {
    block: &'a Block<'a>,
    at: TilesAt,
}

impl<const R: usize, const P: usize> Kernel for Tiles<'_, R, P> {
    type Output = ();
    #[inline(always)]
    fn run<S: Int8>(self, simd: S) {
        match self.block.panels.format {
            Format::F32 => self.compute::<S, ByElement<SingleElement>>(simd),
            Format::Bf16 => self.compute::<S, ByElement<Bf16Element>>(simd),
            Format::Int8 => self.compute::<S, ByGroups<Int8Panels>>(simd),
            Format::Int8Blocks => self.compute::<S, ByGroups<Int8BlockPanels>>(simd),
            Format::Int6 => self.compute::<S, ByGroups<Int6Panels>>(simd),
            Format::Int4 => self.compute::<S, ByGroups<Int4Panels>>(simd),
        }
    }
}

// Indices go through several arrays at once.
#[allow(clippy::needless_range_loop)]
impl<const R: usize, const P: usize> Tiles<'_, R, P> {
    #[inline(always)]
    fn compute<S: Int8, M: Product<S>>(&self, simd: S) {
        // Known at compile time: shapes that an instruction set does not use cost no code.
        assert!(R <= M::TILE.0 && P <= M::TILE.1, "shape of a tile");
        let (block, at) = (self.block, self.at);
        let first_line = at.first_unit * M::UNIT_LINES;
        let end_line = block.panels.panel_lines.min(at.end_unit * M::UNIT_LINES);
        let panels = block.panels.strip_from(at.panel);
        let panels = panels.part(first_line, end_line);
        let (mut bias, mut factors) = ([simd.splat(0.0); P], [simd.splat(0.0); P]);
        for p in 0..P {
            bias[p] = simd.load(block.panels.bias(at.panel + p));
            if M::FACTORS {
                factors[p] = simd.load(block.panels.factors(at.panel + p));
            }
        }
        for tile in at.first..at.end {
            let row = at.row + (tile - at.first) * R;
            let mut sums = [[simd.splat(0.0); P]; R];
            for r in 0..R {
                if at.first_unit > 0 {
                    sums[r] = self.load(simd, row + r);
                } else if !M::FACTORS {
                    sums[r] = bias;
                }
            }
            let x = block.x.from(row, at.first_unit * M::UNIT_WORDS);
            let ahead = self.ahead::<S, M>(tile);
            M::accumulate::<R, P>(simd, x, panels, ahead, &mut sums);
            if M::FACTORS && at.last {
                for r in 0..R {
                    for p in 0..P {
                        sums[r][p] = simd.mul_add(sums[r][p], factors[p], bias[p]);
                    }
                }
            }
            self.store(simd, row, &sums);
        }
    }

    /// What the sums of a row have come to in the blocks before.
    #[inline(always)]
    fn load<S: Int8>(&self, simd: S, row: usize) -> [S::V; P] {
        let mut lanes = [[0.0; LANES]; P];
        // SAFETY: the block owns these outputs; the part ends with the call.
        let out = unsafe { self.block.out_lanes(row, self.at.panel, P) };
        let lanes = match out.as_chunks::<LANES>() {
            (whole, []) if whole.len() == P => whole,
            _ => {
                lanes.as_flattened_mut()[..out.len()].copy_from_slice(out);
                &lanes[..]
            }
        };
        let mut sums = [simd.splat(0.0); P];
        for p in 0..P {
            sums[p] = simd.load(&lanes[p]);
        }
        sums
    }

    /// Writes the sums of R rows, as far as there are outputs.
    #[inline(always)]
    fn store<S: Int8>(&self, simd: S, row: usize, sums: &[[S::V; P]; R]) {
        if (self.at.panel + P) * LANES <= self.block.panels.outputs {
            // Out of their registers at once: whatever is asked between two rows costs as much as the rows.
            for r in 0..R {
                // SAFETY: the block owns these outputs; the part ends with this round.
                let out = unsafe { self.block.out_lanes(row + r, self.at.panel, P) };
                let out = &mut out.as_chunks_mut::<LANES>().0[..P];
                for p in 0..P {
                    simd.store(sums[r][p], &mut out[p]);
                }
            }
            return;
        }
        for r in 0..R {
            let mut lanes = [[0.0; LANES]; P];
            for p in 0..P {
                simd.store(sums[r][p], &mut lanes[p]);
            }
            // SAFETY: as above.
            let out = unsafe { self.block.out_lanes(row + r, self.at.panel, P) };
            out.copy_from_slice(&lanes.as_flattened()[..out.len()]);
        }
    }

    /// The lines to come. A tile that is alone with its lines looks a little ahead, if it has to; tiles that pass over the same lines
    /// share those that come after them.
    #[inline(always)]
    fn ahead<S: Int8, M: Product<S>>(&self, tile: usize) -> Ahead {
        let (panels, at) = (&self.block.panels, self.at);
        let pace = (M::LINES_PER_ADVANCE * P).div_ceil(at.of);
        if at.of == 1 {
            let next = panels.first_line(at.panel).wrapping_add(LINES_AHEAD);
            let pace = if R < M::LOOKS_AHEAD_FROM { 0 } else { pace };
            return Ahead::new(next, pace);
        }
        let next = if at.last {
            panels.first_line(at.panel + P)
        } else {
            let here = panels.first_line(at.panel);
            here.wrapping_add(at.end_unit * M::UNIT_LINES * P)
        };
        let lines = (at.end_unit - at.first_unit) * M::UNIT_LINES * P;
        let share = lines.div_ceil(at.of);
        Ahead::new(next.wrapping_add(tile * share), pace)
    }
}

#[cfg(test)]
mod tests;
