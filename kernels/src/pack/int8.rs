//! Panels of int8, held as `w + 128`: a line per quad of inputs, the first in the low byte of a word.
//!
//! `Format::Int8` has a factor per output beside the panels. `Format::Int8Blocks` has a unit of 17 lines for 64 inputs: the f16
//! scales of inputs 0..32 for sixteen outputs, those of inputs 32..64, then the lines of these inputs.

use super::{PanelMut, StoredRow, byte, half_at, set_byte, set_half, to_half};
use crate::Dtype;
use crate::aligned::{LANES, Line};
use crate::strip::Strip;
use half::f16;

/// Inputs with a scale in common.
const BLOCK: usize = 32;
/// Lines of a unit, and of one of the two blocks in it.
const UNIT_LINES: usize = 17;
const BLOCK_LINES: usize = 8;

/// Packs rows of `Dtype::I8` as they are, all others rounded by their largest number.
pub(super) fn pack(rows: &[StoredRow<'_>], inputs: usize, to: PanelMut<'_>) {
    let mut row = vec![0.0; inputs];
    for (lane, stored) in rows.iter().enumerate() {
        let mut write = |input: usize, q: i8| {
            set_byte(&mut to.lines[input / 4], 4 * lane + input % 4, unsigned(q))
        };
        if stored.dtype == Dtype::I8 {
            to.factors[lane] = stored.factor;
            for (input, q) in stored.bytes.iter().enumerate() {
                write(input, *q as i8);
            }
            continue;
        }
        stored.read(&mut row);
        let factor = absolute_max(&row) / 127.0;
        to.factors[lane] = factor;
        for (input, q) in rounded(&row, factor).enumerate() {
            write(input, q);
        }
    }
}

pub(super) fn read(panel: Strip<'_>, lane: usize, factor: f32, out: &mut [f32]) {
    for (out, line) in out.chunks_mut(4).zip(panel.lines()) {
        for (i, out) in out.iter_mut().enumerate() {
            *out = signed(byte(line, 4 * lane + i)) * factor;
        }
    }
}

/// Packs Q8_0 as it is, all else rounded by the largest number of each block.
pub(super) fn pack_blocks(rows: &[StoredRow<'_>], inputs: usize, panel: &mut [Line]) {
    let mut row = vec![0.0; inputs];
    for (lane, stored) in rows.iter().enumerate() {
        if stored.dtype == Dtype::Q8_0 {
            for (block, bytes) in stored.bytes.as_chunks::<34>().0.iter().enumerate() {
                let scale = f16::from_le_bytes([bytes[0], bytes[1]]);
                let quants = bytes[2..].iter().map(|q| *q as i8);
                write_block(panel, lane, block, scale, quants);
            }
            continue;
        }
        stored.read(&mut row);
        for (block, x) in row.chunks(BLOCK).enumerate() {
            let scale = to_half(absolute_max(x) / 127.0);
            write_block(panel, lane, block, scale, rounded(x, scale.to_f32()));
        }
    }
}

fn write_block(
    panel: &mut [Line],
    lane: usize,
    block: usize,
    scale: f16,
    quants: impl Iterator<Item = i8>,
) {
    let unit = &mut panel[block / 2 * UNIT_LINES..][..UNIT_LINES];
    set_half(&mut unit[0], block % 2 * LANES + lane, scale);
    let lines = &mut unit[1 + block % 2 * BLOCK_LINES..][..BLOCK_LINES];
    for (input, q) in quants.enumerate() {
        set_byte(&mut lines[input / 4], 4 * lane + input % 4, unsigned(q));
    }
}

pub(super) fn read_blocks(panel: Strip<'_>, lane: usize, out: &mut [f32]) {
    for (block, out) in out.chunks_mut(BLOCK).enumerate() {
        let unit = panel.unit::<UNIT_LINES>(block / 2);
        let scale = half_at(unit[0], block % 2 * LANES + lane);
        let lines = &unit[1 + block % 2 * BLOCK_LINES..][..BLOCK_LINES];
        for (input, out) in out.iter_mut().enumerate() {
            *out = signed(byte(lines[input / 4], 4 * lane + input % 4)) * scale;
        }
    }
}

fn unsigned(q: i8) -> u8 {
    q as u8 ^ 0x80
}

fn signed(byte: u8) -> f32 {
    f32::from((byte ^ 0x80) as i8)
}

fn absolute_max(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |max, x| x.abs().max(max))
}

/// To the nearest multiple of `scale`; all zeros when that is zero.
fn rounded(x: &[f32], scale: f32) -> impl Iterator<Item = i8> {
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    x.iter()
        .map(move |x| (x * inverse).round().clamp(-127.0, 127.0) as i8)
}
