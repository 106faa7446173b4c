//! Panels of int4. A weight is `scale * q + min` with q in four bits; groups of 32 inputs have a scale and a minimum in common.
//!
//! A unit of 5 lines for such a group: the f16 scales of sixteen outputs and their f16 minima, then four lines that hold two quads
//! each, the first in the low nibbles of the bytes, the second in the high ones.
//!
//! Q4_0 (`min = -8 scale`), Q4_1 and Q4_K are held with the very nibbles of the file. Q4_K's scale and minimum are products of an
//! f16 and six bits and are rounded to f16 here, by one part in 2048 at most: a hundredth of the step between two nibbles. What
//! lies beyond f16's range is held at its end.

use super::fit::{Fit, Fitted, GROUP};
use super::{StoredRow, byte, half_at, set_byte, set_half, to_half};
use crate::aligned::{LANES, Line};
use crate::dequant::q4_k_scale_min;
use crate::strip::Strip;
use crate::{Dtype, Isa};
use half::f16;

const UNIT_LINES: usize = 5;

/// Packs Q4_0, Q4_1 and Q4_K with their nibbles, all else rounded (see `fit`).
pub(super) fn pack(isa: Isa, rows: &[StoredRow<'_>], inputs: usize, panel: &mut [Line]) {
    let floats: Vec<Option<Vec<f32>>> = rows.iter().map(|row| floats(row, inputs)).collect();
    let groups = panel
        .chunks_exact_mut(UNIT_LINES)
        .take(inputs.div_ceil(GROUP));
    for (group, lines) in groups.enumerate() {
        let mut fitted = Fitted::default();
        if floats.iter().any(Option::is_some) {
            let x = transposed(&floats, group);
            isa.dispatch(Fit {
                x: &x,
                fitted: &mut fitted,
            });
        }
        for (lane, row) in rows.iter().enumerate() {
            if floats[lane].is_none() {
                copy_group(row, group, &mut fitted, lane);
            }
            write_lane(&fitted, lines, lane);
        }
    }
}

/// The numbers of a row that has no nibbles of its own.
fn floats(row: &StoredRow<'_>, inputs: usize) -> Option<Vec<f32>> {
    if matches!(row.dtype, Dtype::Q4_0 | Dtype::Q4_1 | Dtype::Q4_K) {
        return None;
    }
    let mut x = vec![0.0; inputs];
    row.read(&mut x);
    Some(x)
}

/// Input by input, the numbers of a group in all lanes. A group that reaches beyond the inputs repeats the last, which costs the
/// others no precision.
fn transposed(floats: &[Option<Vec<f32>>], group: usize) -> [[f32; LANES]; GROUP] {
    let mut x = [[0.0; LANES]; GROUP];
    for (lane, row) in floats.iter().enumerate() {
        let Some(row) = row else { continue };
        for (i, x) in x.iter_mut().enumerate() {
            x[lane] = row[(group * GROUP + i).min(row.len() - 1)];
        }
    }
    x
}

/// Takes a group of 32 over from a row of nibbles.
fn copy_group(row: &StoredRow<'_>, group: usize, to: &mut Fitted, lane: usize) {
    let half = |bytes: &[u8], at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
    let (scale, min, quants) = match row.dtype {
        Dtype::Q4_0 => {
            let block = &row.bytes.as_chunks::<18>().0[group];
            let d = half(block, 0);
            (d, -8.0 * d, split_nibbles(&block[2..]))
        }
        Dtype::Q4_1 => {
            let block = &row.bytes.as_chunks::<20>().0[group];
            (half(block, 0), half(block, 2), split_nibbles(&block[4..]))
        }
        _ => {
            let block = &row.bytes.as_chunks::<144>().0[group / 8];
            let part = group % 8;
            let (scale, min) = q4_k_scale_min(&block[4..16], part);
            let bytes = &block[16 + part / 2 * 32..][..32];
            let mut quants = [0; GROUP];
            for (q, byte) in quants.iter_mut().zip(bytes) {
                *q = byte >> (4 * (part % 2)) & 15;
            }
            (half(block, 0) * scale, -half(block, 2) * min, quants)
        }
    };
    to.scale[lane] = to_half(scale);
    to.min[lane] = to_half(min);
    for (to, q) in to.quants.iter_mut().zip(quants) {
        to[lane] = q;
    }
}

/// The low nibbles of sixteen bytes, then the high ones.
fn split_nibbles(bytes: &[u8]) -> [u8; GROUP] {
    let mut quants = [0; GROUP];
    for (i, byte) in bytes.iter().enumerate() {
        quants[i] = byte & 15;
        quants[i + 16] = byte >> 4;
    }
    quants
}

fn write_lane(group: &Fitted, lines: &mut [Line], lane: usize) {
    set_half(&mut lines[0], lane, group.scale[lane]);
    set_half(&mut lines[0], LANES + lane, group.min[lane]);
    for (input, quants) in group.quants.iter().enumerate() {
        let quad = input / 4;
        let nibble = quants[lane] << (4 * (quad % 2));
        set_byte(&mut lines[1 + quad / 2], 4 * lane + input % 4, nibble);
    }
}

pub(super) fn read(panel: Strip<'_>, lane: usize, out: &mut [f32]) {
    for (group, out) in out.chunks_mut(GROUP).enumerate() {
        let lines = panel.unit::<UNIT_LINES>(group);
        let (scale, min) = (half_at(lines[0], lane), half_at(lines[0], LANES + lane));
        for (input, out) in out.iter_mut().enumerate() {
            let quad = input / 4;
            let q = byte(lines[1 + quad / 2], 4 * lane + input % 4) >> (4 * (quad % 2)) & 15;
            *out = f32::from(q) * scale + min;
        }
    }
}
