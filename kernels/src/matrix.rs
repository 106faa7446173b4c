//! Packed weight matrices: where they are kept, and the views that kernels read. How they are packed stands in `pack`.
//!
//! A matrix `[outputs, inputs]` lies in runs of panels, one run for each format in it: a panel holds sixteen outputs, line by
//! line along the inputs. Panels that register tiles read together lie in strips (see `strip`).

use crate::aligned::{AlignedLines, LANES, Line};
use crate::pack::{pack, read_lane};
use crate::shape::shape_of;
use crate::strip::Strip;
use crate::{Dtype, Format, Machine, RowForm};
use std::io;

/// A stored matrix, row-major.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Element format.
    pub dtype: Dtype,
    /// Rows (outputs).
    pub rows: usize,
    /// Exactly `rows` rows of `dtype.row_bytes(inputs)` bytes.
    pub bytes: &'a [u8],
    /// Row r of the matrix is row `row_order[r]` of `bytes`; `None`: as stored.
    pub row_order: Option<&'a [u32]>,
    /// One factor per row of `bytes`, for `Dtype::I8`; `None` for all else.
    pub scales: Option<&'a [f32]>,
}

/// Names a matrix in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixId(usize);

/// The matrices of a model, side by side in a few large areas: most of them are smaller than a huge page.
#[derive(Default)]
pub struct MatrixStore {
    areas: Vec<Area>,
    matrices: Vec<Stored>,
}

struct Area {
    memory: AlignedLines,
    used: usize,
}

struct Stored {
    outputs: usize,
    inputs: usize,
    runs: Vec<Run>,
}

/// Neighbouring outputs that are held in one format.
struct Run {
    format: Format,
    first_output: usize,
    outputs: usize,
    /// Panels of a strip.
    strip: usize,
    area: usize,
    first_line: usize,
    /// One per output, padded to whole panels; zeros when there is none.
    bias: Vec<f32>,
    /// Likewise, of a format with a factor per output; else empty.
    factors: Vec<f32>,
}

/// Lines of an area (64 MiB), unless one matrix needs more. What is not used is never touched.
const AREA_LINES: usize = 1 << 20;

impl MatrixStore {
    /// Bytes that a matrix takes once packed, biases and factors per output aside.
    pub fn bytes(format: Format, outputs: usize, inputs: usize) -> u64 {
        let lines = outputs.div_ceil(LANES) as u64 * format.panel_lines(inputs) as u64;
        lines * size_of::<Line>() as u64
    }

    /// Packs `parts`, stacked along the outputs, in one format. `bias` holds one value per output or is empty.
    ///
    /// # Errors
    /// When the system gives no memory.
    ///
    /// # Panics
    /// When lengths do not fit together, a `row_order` leads out of its part, or the format cannot hold a part.
    pub fn pack(
        &mut self,
        machine: &mut Machine,
        format: Format,
        inputs: usize,
        parts: &[Source<'_>],
        bias: &[f32],
    ) -> io::Result<MatrixId> {
        let parts: Vec<_> = parts.iter().map(|part| (format, *part)).collect();
        self.pack_mixed(machine, inputs, &parts, bias)
    }

    /// Like `pack`, each part in a format of its own. All have the same `row_form`.
    ///
    /// # Errors
    /// When the system gives no memory.
    ///
    /// # Panics
    /// As `pack`, and when the formats are multiplied by different forms of rows.
    pub fn pack_mixed(
        &mut self,
        machine: &mut Machine,
        inputs: usize,
        parts: &[(Format, Source<'_>)],
        bias: &[f32],
    ) -> io::Result<MatrixId> {
        let outputs: usize = parts.iter().map(|(_, part)| part.rows).sum();
        assert!(
            bias.is_empty() || bias.len() == outputs,
            "one bias per output"
        );
        let mut runs: Vec<Run> = Vec::new();
        let mut first_output = 0;
        for parts in parts.chunk_by(|a, b| a.0 == b.0) {
            let format = parts[0].0;
            assert!(
                runs.iter()
                    .all(|run| run.format.row_form() == format.row_form()),
                "one form of rows for a matrix"
            );
            let sources: Vec<_> = parts.iter().map(|(_, part)| *part).collect();
            let mut run = self.pack_run(machine, format, inputs, &sources)?;
            run.first_output = first_output;
            if !bias.is_empty() {
                run.bias[..run.outputs].copy_from_slice(&bias[first_output..][..run.outputs]);
            }
            first_output += run.outputs;
            runs.push(run);
        }
        self.matrices.push(Stored {
            outputs,
            inputs,
            runs,
        });
        Ok(MatrixId(self.matrices.len() - 1))
    }

    fn pack_run(
        &mut self,
        machine: &mut Machine,
        format: Format,
        inputs: usize,
        parts: &[Source<'_>],
    ) -> io::Result<Run> {
        let outputs: usize = parts.iter().map(|part| part.rows).sum();
        let panels = outputs.div_ceil(LANES);
        let lines = panels * format.panel_lines(inputs);
        let area = self.area_with(lines)?;
        let Area { memory, used } = &mut self.areas[area];
        let first_line = *used;
        let to = &mut memory.lines_mut()[first_line..][..lines];
        let strip = shape_of(machine.isa, format).panels;
        let factors = pack(machine, format, inputs, parts, strip, to);
        *used += lines;
        Ok(Run {
            format,
            first_output: 0,
            outputs,
            strip,
            area,
            first_line,
            bias: vec![0.0; panels * LANES],
            factors,
        })
    }

    /// The index of an area with room for `lines` more.
    fn area_with(&mut self, lines: usize) -> io::Result<usize> {
        let has_room = |area: &Area| area.memory.lines().len() - area.used >= lines;
        if let Some(index) = self.areas.iter().position(has_room) {
            return Ok(index);
        }
        let memory = AlignedLines::zeroed(lines.max(AREA_LINES))?;
        self.areas.push(Area { memory, used: 0 });
        Ok(self.areas.len() - 1)
    }

    /// A matrix to compute with.
    ///
    /// # Panics
    /// When the id is another store's and names nothing here.
    pub fn get(&self, id: MatrixId) -> Matrix<'_> {
        Matrix {
            stored: &self.matrices[id.0],
            areas: &self.areas,
        }
    }
}

/// A packed matrix.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    stored: &'a Stored,
    areas: &'a [Area],
}

impl<'a> Matrix<'a> {
    /// What rows are turned into to be multiplied by it.
    pub fn row_form(&self) -> RowForm {
        let first = self.stored.runs.first();
        first.map_or(RowForm::F32, |run| run.format.row_form())
    }

    /// Outputs (rows of the matrix).
    pub fn outputs(&self) -> usize {
        self.stored.outputs
    }

    /// Inputs (columns of the matrix).
    pub fn inputs(&self) -> usize {
        self.stored.inputs
    }

    /// Bytes that are read to multiply by it.
    pub fn bytes(&self) -> u64 {
        let runs = self.runs();
        runs.map(|run| size_of_val(run.lines) as u64).sum()
    }

    /// Its panels, format by format.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Panels<'a>> + use<'a> {
        let (areas, inputs) = (self.areas, self.stored.inputs);
        self.stored.runs.iter().map(move |run| {
            let panel_lines = run.format.panel_lines(inputs);
            let lines = run.outputs.div_ceil(LANES) * panel_lines;
            Panels {
                format: run.format,
                first_output: run.first_output,
                outputs: run.outputs,
                panel_lines,
                strip: run.strip,
                lines: &areas[run.area].memory.lines()[run.first_line..][..lines],
                bias: &run.bias,
                factors: &run.factors,
            }
        })
    }

    /// Writes row `row` of the matrix to `out`.
    ///
    /// # Panics
    /// When there is no such row or `out` is not `inputs` wide.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.outputs(), "row {row} of {}", self.outputs());
        assert_eq!(out.len(), self.inputs(), "width of a row");
        let run = self
            .runs()
            .find(|run| row < run.first_output + run.outputs)
            .expect("invariant: runs cover the outputs");
        let row = row - run.first_output;
        let factor = run.factors.get(row).copied().unwrap_or(1.0);
        read_lane(
            run.format,
            run.strip_from(row / LANES),
            row % LANES,
            factor,
            out,
        );
    }
}

/// Panels of one format.
#[derive(Clone, Copy)]
pub(crate) struct Panels<'a> {
    pub format: Format,
    /// The output that the first lane of the first panel is.
    pub first_output: usize,
    pub outputs: usize,
    /// Lines per panel.
    pub panel_lines: usize,
    /// Panels of a strip; the last may have fewer.
    pub strip: usize,
    lines: &'a [Line],
    bias: &'a [f32],
    factors: &'a [f32],
}

impl<'a> Panels<'a> {
    pub(crate) fn count(&self) -> usize {
        self.outputs.div_ceil(LANES)
    }

    /// The strip that a panel lies in, from this panel on.
    #[inline(always)]
    pub(crate) fn strip_from(&self, panel: usize) -> Strip<'a> {
        let beside = panel % self.strip;
        let first = panel - beside;
        let width = self.strip.min(self.count() - first);
        let lines = &self.lines[first * self.panel_lines..][..width * self.panel_lines];
        Strip::new(lines, width, beside)
    }

    /// Where the strip that begins with a panel begins, or would if there were so many: an address to ask for, not to read.
    #[inline(always)]
    pub(crate) fn first_line(&self, panel: usize) -> *const Line {
        self.lines.as_ptr().wrapping_add(panel * self.panel_lines)
    }

    /// The biases of a panel.
    #[inline(always)]
    pub(crate) fn bias(&self, panel: usize) -> &'a [f32; LANES] {
        &self.bias.as_chunks().0[panel]
    }

    /// The factors of a panel, of a format that has them.
    #[inline(always)]
    pub(crate) fn factors(&self, panel: usize) -> &'a [f32; LANES] {
        &self.factors.as_chunks().0[panel]
    }
}
