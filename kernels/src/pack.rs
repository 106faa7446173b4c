//! Weight matrices as the register tile wants them: panels of sixteen outputs, packed once at load, in parallel and straight
//! from the checkpoint's bytes. Also the way back, one row at a time, for tables that are both embedding and output head.

use crate::aligned::{AlignedLines, LANES, Line};
use crate::dequant::dequant_row;
use crate::disjoint::Disjoint;
use crate::{Dtype, Machine};
use half::bf16;

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
    /// Exactly `rows` rows of `dtype.row_bytes(cols)` bytes.
    pub bytes: &'a [u8],
    /// Row r of the matrix is row `row_order[r]` of `bytes`; `None`: as stored.
    pub row_order: Option<&'a [u32]>,
}

/// A matrix `[outputs, inputs]` in panels: panel p holds outputs `16 p ..`, one line per step of inputs, zero where the
/// matrix ends.
pub struct PackedMatrix {
    format: Format,
    outputs: usize,
    inputs: usize,
    lines: AlignedLines,
    /// One per output, padded to whole panels with zeros; zeros when there is none.
    bias: Vec<f32>,
}

/// Panels packed by one task: enough to be worth a claim, few enough to share out evenly.
const PANELS_PER_TASK: usize = 4;

impl PackedMatrix {
    /// Bytes that a matrix takes once packed, its bias aside.
    pub fn bytes(format: Format, outputs: usize, inputs: usize) -> u64 {
        let lines =
            outputs.div_ceil(LANES) as u64 * inputs.div_ceil(format.inputs_per_line()) as u64;
        lines * size_of::<Line>() as u64
    }

    /// Packs `parts`, stacked along the outputs. `bias` holds one value per output or is empty.
    ///
    /// # Panics
    /// When lengths do not fit together or a `row_order` leads out of its part.
    pub fn pack(
        machine: &mut Machine,
        format: Format,
        inputs: usize,
        parts: &[Source<'_>],
        bias: &[f32],
    ) -> Self {
        let outputs = parts.iter().map(|p| p.rows).sum();
        let panels = usize::div_ceil(outputs, LANES);
        let steps = inputs.div_ceil(format.inputs_per_line());
        let mut lines = AlignedLines::zeroed(panels * steps);
        let all_lines = Disjoint::new(lines.lines_mut());
        machine.pool.run(panels.div_ceil(PANELS_PER_TASK), &|task| {
            let mut row = vec![0.0; inputs];
            let first = task * PANELS_PER_TASK;
            for panel in first..panels.min(first + PANELS_PER_TASK) {
                // SAFETY: each panel belongs to one task.
                let panel_lines = unsafe { all_lines.part(panel * steps, steps) };
                for lane in 0..LANES.min(outputs - panel * LANES) {
                    let (dtype, bytes) = stored_row(parts, inputs, panel * LANES + lane);
                    pack_lane(format, dtype, bytes, &mut row, panel_lines, lane);
                }
            }
        });
        let mut padded_bias = vec![0.0; panels * LANES];
        if !bias.is_empty() {
            assert_eq!(bias.len(), outputs, "one bias per output");
            padded_bias[..outputs].copy_from_slice(bias);
        }
        Self {
            format,
            outputs,
            inputs,
            lines,
            bias: padded_bias,
        }
    }

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
        self.inputs.div_ceil(self.format.inputs_per_line())
    }

    pub(crate) fn panels(&self) -> usize {
        self.outputs.div_ceil(LANES)
    }

    pub(crate) fn panel(&self, panel: usize) -> &[Line] {
        &self.lines.lines()[panel * self.steps()..][..self.steps()]
    }

    /// The biases of a panel.
    pub(crate) fn panel_bias(&self, panel: usize) -> &[f32; LANES] {
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

/// The stored bytes of output `output` of the stacked parts.
fn stored_row<'a>(parts: &[Source<'a>], inputs: usize, output: usize) -> (Dtype, &'a [u8]) {
    let mut row = output;
    for part in parts {
        if row < part.rows {
            let stored = part.row_order.map_or(row, |order| order[row] as usize);
            let width = part
                .dtype
                .row_bytes(inputs)
                .expect("invariant: rows of whole blocks");
            return (part.dtype, &part.bytes[stored * width..][..width]);
        }
        row -= part.rows;
    }
    unreachable!("invariant: outputs are counted over the parts")
}

/// Writes one stored row into lane `lane` of a panel. `row` is scratch.
fn pack_lane(
    format: Format,
    dtype: Dtype,
    bytes: &[u8],
    row: &mut [f32],
    panel: &mut [Line],
    lane: usize,
) {
    if format == Format::Bf16 && dtype == Dtype::BF16 {
        let (pairs, last) = bytes.as_chunks::<4>();
        for (line, pair) in panel.iter_mut().zip(pairs) {
            line[lane] = u32::from_le_bytes(*pair);
        }
        if let [low, high] = *last {
            panel[pairs.len()][lane] = u32::from(u16::from_le_bytes([low, high]));
        }
        return;
    }
    dequant_row(dtype, bytes, row);
    match format {
        Format::F32 => {
            for (line, x) in panel.iter_mut().zip(row) {
                line[lane] = x.to_bits();
            }
        }
        Format::Bf16 => {
            for (line, pair) in panel.iter_mut().zip(row.chunks(2)) {
                line[lane] = pack_pair(pair[0], pair.get(1).copied().unwrap_or(0.0));
            }
        }
    }
}

/// Two numbers rounded to bf16 (to nearest, ties to even), the first in the low half.
#[inline(always)]
pub(crate) fn pack_pair(first: f32, second: f32) -> u32 {
    u32::from(bf16::from_f32(first).to_bits()) | u32::from(bf16::from_f32(second).to_bits()) << 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    fn check(format: Format, rows: [usize; 2], inputs: usize) {
        let value = |r: usize, c: usize| (r * inputs + c) as f32 % 128.0 - 64.0;
        let bytes_of = |first: usize, rows: usize| -> Vec<u8> {
            (0..rows * inputs)
                .flat_map(|i| value(first + i / inputs, i % inputs).to_le_bytes())
                .collect()
        };
        let (a, b) = (bytes_of(0, rows[0]), bytes_of(rows[0], rows[1]));
        let reversed: Vec<u32> = (0..rows[1] as u32).rev().collect();
        let parts = [
            Source {
                dtype: Dtype::F32,
                rows: rows[0],
                bytes: &a,
                row_order: None,
            },
            Source {
                dtype: Dtype::F32,
                rows: rows[1],
                bytes: &b,
                row_order: Some(&reversed),
            },
        ];
        let mut machine = Machine::new(Isa::best(), 2);
        let packed = PackedMatrix::pack(&mut machine, format, inputs, &parts, &[]);
        let mut row = vec![0.0; inputs];
        for r in 0..rows[0] + rows[1] {
            let stored = if r < rows[0] {
                r
            } else {
                rows[0] + rows[1] - 1 - (r - rows[0])
            };
            packed.read_row(r, &mut row);
            let expected: Vec<f32> = (0..inputs).map(|c| value(stored, c)).collect();
            assert_eq!(row, expected, "{format:?} row {r}");
        }
    }

    #[test]
    fn rows_come_back_as_they_were_stacked() {
        for format in [Format::F32, Format::Bf16] {
            for inputs in [1, 2, 7, 64] {
                check(format, [3, 2], inputs);
                check(format, [16, 49], inputs);
            }
        }
    }

    #[test]
    fn bf16_rows_of_odd_length_keep_their_last_element() {
        let bytes: Vec<u8> = [1.5f32, -2.0, 3.0]
            .iter()
            .flat_map(|x| bf16::from_f32(*x).to_le_bytes())
            .collect();
        let part = Source {
            dtype: Dtype::BF16,
            rows: 1,
            bytes: &bytes,
            row_order: None,
        };
        let packed = PackedMatrix::pack(
            &mut Machine::new(Isa::best(), 1),
            Format::Bf16,
            3,
            &[part],
            &[],
        );
        let mut row = [0.0; 3];
        packed.read_row(0, &mut row);
        assert_eq!(row, [1.5, -2.0, 3.0]);
    }
}
