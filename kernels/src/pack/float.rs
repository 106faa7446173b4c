//! Panels of floats: a line per input in f32, a line per pair of inputs in bf16 (the first in the low half of a word). Where the
//! matrix ends lines hold zeros.

use super::StoredRow;
use crate::Dtype;
use crate::aligned::Line;
use crate::strip::Strip;
use half::bf16;

pub(super) fn pack_single(rows: &[StoredRow<'_>], inputs: usize, panel: &mut [Line]) {
    let mut row = vec![0.0; inputs];
    for (lane, stored) in rows.iter().enumerate() {
        stored.read(&mut row);
        for (line, x) in panel.iter_mut().zip(&row) {
            line[lane] = x.to_bits();
        }
    }
}

pub(super) fn pack_bf16(rows: &[StoredRow<'_>], inputs: usize, panel: &mut [Line]) {
    let mut row = Vec::new();
    for (lane, stored) in rows.iter().enumerate() {
        if stored.dtype == Dtype::BF16 {
            copy_bf16(stored.bytes, panel, lane);
            continue;
        }
        row.resize(inputs, 0.0);
        stored.read(&mut row);
        for (line, pair) in panel.iter_mut().zip(row.chunks(2)) {
            line[lane] = pack_pair(pair[0], pair.get(1).copied().unwrap_or(0.0));
        }
    }
}

fn copy_bf16(bytes: &[u8], panel: &mut [Line], lane: usize) {
    let (pairs, last) = bytes.as_chunks::<4>();
    for (line, pair) in panel.iter_mut().zip(pairs) {
        line[lane] = u32::from_le_bytes(*pair);
    }
    if let [low, high] = *last {
        panel[pairs.len()][lane] = u32::from(u16::from_le_bytes([low, high]));
    }
}

pub(super) fn read_single(panel: Strip<'_>, lane: usize, out: &mut [f32]) {
    for (o, line) in out.iter_mut().zip(panel.lines()) {
        *o = f32::from_bits(line[lane]);
    }
}

pub(super) fn read_bf16(panel: Strip<'_>, lane: usize, out: &mut [f32]) {
    for (pair, line) in out.chunks_mut(2).zip(panel.lines()) {
        pair[0] = f32::from_bits(line[lane] << 16);
        if let Some(second) = pair.get_mut(1) {
            *second = f32::from_bits(line[lane] & 0xffff_0000);
        }
    }
}

/// Two numbers rounded to bf16 (to nearest, ties to even), the first in the low half.
#[inline(always)]
fn pack_pair(first: f32, second: f32) -> u32 {
    u32::from(bf16::from_f32(first).to_bits()) | u32::from(bf16::from_f32(second).to_bits()) << 16
}
