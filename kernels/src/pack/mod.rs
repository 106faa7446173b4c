//! Packing stored weights into panels (see `matrix`): once, at load, on all threads, straight from the checkpoint's bytes.
//! Each format's layout stands in a file with what writes and what reads it.

mod fit;
mod float;
mod int4;
mod int6;
mod int8;

use crate::aligned::{LANES, Line};
use crate::dequant::dequant_row;
use crate::disjoint::Disjoint;
use crate::strip::Strip;
use crate::{Dtype, Format, Isa, Machine, Source};
use half::f16;

/// Packs `parts`, stacked along the outputs, into strips of `strip` panels. Returns the factors per output, padded to whole panels, of a
/// format that has them; else nothing.
pub(crate) fn pack(
    machine: &mut Machine,
    format: Format,
    inputs: usize,
    parts: &[Source<'_>],
    strip: usize,
    lines: &mut [Line],
) -> Vec<f32> {
    let outputs: usize = parts.iter().map(|part| part.rows).sum();
    let panels = outputs.div_ceil(LANES);
    let panel_lines = format.panel_lines(inputs);
    let mut factors = vec![0.0; panels * LANES];
    let isa = machine.isa;
    let (lines, shared_factors) = (Disjoint::new(lines), Disjoint::new(&mut factors));
    machine.pool.run(panels.div_ceil(strip), &|task| {
        let first = task * strip;
        let width = strip.min(panels - first);
        // SAFETY: each strip belongs to one task.
        let lines = unsafe { lines.part(first * panel_lines, width * panel_lines) };
        let mut packed = vec![Line::default(); panel_lines];
        for beside in 0..width {
            let panel = first + beside;
            let end = outputs.min((panel + 1) * LANES);
            let rows: Vec<_> = (panel * LANES..end)
                .map(|output| stored_row(parts, inputs, output))
                .collect();
            packed.fill(Line::default());
            let to = PanelMut {
                lines: &mut packed,
                // SAFETY: likewise.
                factors: unsafe { shared_factors.part(panel * LANES, LANES) },
            };
            pack_panel(isa, format, inputs, &rows, to);
            let turns = lines[beside..].iter_mut().step_by(width);
            turns.zip(&packed).for_each(|(to, line)| *to = *line);
        }
    });
    if format == Format::Int8 {
        factors
    } else {
        Vec::new()
    }
}

/// A panel to be written: zeroed lines.
struct PanelMut<'a> {
    lines: &'a mut [Line],
    /// One per lane.
    factors: &'a mut [f32],
}

fn pack_panel(isa: Isa, format: Format, inputs: usize, rows: &[StoredRow<'_>], to: PanelMut<'_>) {
    match format {
        Format::F32 => float::pack_single(rows, inputs, to.lines),
        Format::Bf16 => float::pack_bf16(rows, inputs, to.lines),
        Format::Int8 => int8::pack(rows, inputs, to),
        Format::Int8Blocks => int8::pack_blocks(rows, inputs, to.lines),
        Format::Int6 => int6::pack(rows, to.lines),
        Format::Int4 => int4::pack(isa, rows, inputs, to.lines),
    }
}

/// Writes lane `lane` of a panel to `out`, which is as wide as the matrix.
pub(crate) fn read_lane(
    format: Format,
    panel: Strip<'_>,
    lane: usize,
    factor: f32,
    out: &mut [f32],
) {
    match format {
        Format::F32 => float::read_single(panel, lane, out),
        Format::Bf16 => float::read_bf16(panel, lane, out),
        Format::Int8 => int8::read(panel, lane, factor, out),
        Format::Int8Blocks => int8::read_blocks(panel, lane, out),
        Format::Int6 => int6::read(panel, lane, out),
        Format::Int4 => int4::read(panel, lane, out),
    }
}

/// One stored row.
#[derive(Clone, Copy)]
struct StoredRow<'a> {
    dtype: Dtype,
    bytes: &'a [u8],
    /// Factor on all its numbers, of `Dtype::I8`.
    factor: f32,
}

impl StoredRow<'_> {
    fn read(&self, row: &mut [f32]) {
        dequant_row(self.dtype, self.bytes, row);
        if self.dtype == Dtype::I8 {
            row.iter_mut().for_each(|x| *x *= self.factor);
        }
    }
}

/// Output `output` of the stacked parts.
fn stored_row<'a>(parts: &[Source<'a>], inputs: usize, output: usize) -> StoredRow<'a> {
    let mut row = output;
    for part in parts {
        if row < part.rows {
            let stored = part.row_order.map_or(row, |order| order[row] as usize);
            let width = part
                .dtype
                .row_bytes(inputs)
                .expect("invariant: rows of whole blocks");
            return StoredRow {
                dtype: part.dtype,
                bytes: &part.bytes[stored * width..][..width],
                factor: part.scales.map_or(1.0, |scales| scales[stored]),
            };
        }
        row -= part.rows;
    }
    unreachable!("invariant: outputs are counted over the parts")
}

/// Writes byte `byte` of a line, counted over its words from the low byte of the first.
fn set_byte(line: &mut Line, byte: usize, value: u8) {
    line[byte / 4] |= u32::from(value) << (8 * (byte % 4));
}

fn byte(line: &Line, byte: usize) -> u8 {
    (line[byte / 4] >> (8 * (byte % 4))) as u8
}

/// Writes 16-bit number `at` of a line.
fn set_half(line: &mut Line, at: usize, value: f16) {
    line[at / 2] |= u32::from(value.to_bits()) << (16 * (at % 2));
}

/// To nearest, within f16's range.
fn to_half(x: f32) -> f16 {
    f16::from_f32(x.clamp(f16::MIN.to_f32(), f16::MAX.to_f32()))
}

fn half_at(line: &Line, at: usize) -> f32 {
    f16::from_bits((line[at / 2] >> (16 * (at % 2))) as u16).to_f32()
}

#[cfg(test)]
mod tests;
