//! Packed weight matrices: where they are kept, and the view that kernels read. How they are packed stands in `pack`.
//!
//! A matrix `[outputs, inputs]` lies in panels: panel p holds outputs `16 p ..`, one line per step of inputs (one input in f32,
//! a pair in bf16), zero where the matrix ends.

use crate::aligned::{AlignedLines, LANES, Line};
use crate::pack::pack;
use crate::{Dtype, Machine};
use std::io;

/// What numbers are held and multiplied as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// f32.
    F32,
    /// bf16; sums are f32.
    Bf16,
}

impl Format {
    /// Inputs that one line of a panel covers.
    pub(crate) const fn inputs_per_line(self) -> usize {
        match self {
            Format::F32 => 1,
            Format::Bf16 => 2,
        }
    }
}

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
    format: Format,
    outputs: usize,
    inputs: usize,
    area: usize,
    first_line: usize,
    bias: Vec<f32>,
}

/// Lines of an area (64 MiB), unless one matrix needs more. What is not used is never touched.
const AREA_LINES: usize = 1 << 20;

impl MatrixStore {
    /// Bytes that a matrix takes once packed, its bias aside.
    pub fn bytes(format: Format, outputs: usize, inputs: usize) -> u64 {
        let lines =
            outputs.div_ceil(LANES) as u64 * inputs.div_ceil(format.inputs_per_line()) as u64;
        lines * size_of::<Line>() as u64
    }

    /// Packs `parts`, stacked along the outputs. `bias` holds one value per output or is empty.
    ///
    /// # Errors
    /// When the system gives no memory.
    ///
    /// # Panics
    /// When lengths do not fit together or a `row_order` leads out of its part.
    pub fn pack(
        &mut self,
        machine: &mut Machine,
        format: Format,
        inputs: usize,
        parts: &[Source<'_>],
        bias: &[f32],
    ) -> io::Result<MatrixId> {
        let outputs: usize = parts.iter().map(|part| part.rows).sum();
        assert!(
            bias.is_empty() || bias.len() == outputs,
            "one bias per output"
        );
        let panels = outputs.div_ceil(LANES);
        let lines = panels * inputs.div_ceil(format.inputs_per_line());
        let area = self.area_with(lines)?;
        let Area { memory, used } = &mut self.areas[area];
        let first_line = *used;
        pack(
            machine,
            format,
            inputs,
            parts,
            &mut memory.lines_mut()[first_line..][..lines],
        );
        *used += lines;
        let mut padded = vec![0.0; panels * LANES];
        padded[..bias.len()].copy_from_slice(bias);
        self.matrices.push(Stored {
            format,
            outputs,
            inputs,
            area,
            first_line,
            bias: padded,
        });
        Ok(MatrixId(self.matrices.len() - 1))
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
        let stored = &self.matrices[id.0];
        let (format, outputs, inputs) = (stored.format, stored.outputs, stored.inputs);
        let steps = inputs.div_ceil(format.inputs_per_line());
        let lines = &self.areas[stored.area].memory.lines()[stored.first_line..];
        let lines = &lines[..outputs.div_ceil(LANES) * steps];
        Matrix {
            format,
            outputs,
            inputs,
            steps,
            lines,
            bias: &stored.bias,
        }
    }
}

/// A packed matrix.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    format: Format,
    outputs: usize,
    inputs: usize,
    /// Lines per panel.
    steps: usize,
    lines: &'a [Line],
    /// One per output, padded to whole panels; zeros when there is none.
    bias: &'a [f32],
}

impl<'a> Matrix<'a> {
    /// What its numbers are held as.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Outputs (rows of the matrix).
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Inputs (columns of the matrix).
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Lines per panel.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    pub(crate) fn panels(&self) -> usize {
        self.outputs.div_ceil(LANES)
    }

    #[inline(always)]
    pub(crate) fn panel(&self, panel: usize) -> &'a [Line] {
        &self.lines[panel * self.steps..][..self.steps]
    }

    /// The biases of a panel.
    #[inline(always)]
    pub(crate) fn panel_bias(&self, panel: usize) -> &'a [f32; LANES] {
        &self.bias.as_chunks().0[panel]
    }

    /// Writes row `row` of the matrix to `out`.
    ///
    /// # Panics
    /// When there is no such row or `out` is not `inputs` wide.
    pub fn read_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.outputs, "row {row} of {}", self.outputs);
        assert_eq!(out.len(), self.inputs, "width of a row");
        let (panel, lane) = (self.panel(row / LANES), row % LANES);
        match self.format {
            Format::F32 => {
                for (o, line) in out.iter_mut().zip(panel) {
                    *o = f32::from_bits(line[lane]);
                }
            }
            Format::Bf16 => {
                for (pair, line) in out.chunks_mut(2).zip(panel) {
                    pair[0] = f32::from_bits(line[lane] << 16);
                    if let Some(second) = pair.get_mut(1) {
                        *second = f32::from_bits(line[lane] & 0xffff_0000);
                    }
                }
            }
        }
    }
}
