//! Panels of GGUF's Q6_K, every bit as stored. A weight is `d * scale * (q - 32)` with q in six bits.
//!
//! A unit of 7 lines for 32 inputs: the int8 scales of inputs 0..16 for sixteen outputs, those of inputs 16..32, the f16 `d` of the
//! sixteen outputs (repeated from unit to unit, to be read in order); four lines of low nibbles as in `int4`; two lines of
//! high bit pairs, each for four quads. Those of quad j stand at bits 4 and 5 of a byte once the word is turned right by 2j bits.

use super::{StoredRow, byte, half_at, set_byte, set_half};
use crate::Dtype;
use crate::aligned::{LANES, Line};
use crate::strip::Strip;
use half::f16;

const UNIT_LINES: usize = 7;
/// Inputs of a unit.
const UNIT: usize = 32;
/// The first of the lines of nibbles and of those of bit pairs.
const NIBBLES: usize = 1;
const PAIRS: usize = 5;
/// Inputs, bytes and units of a stored block, and where its scales begin.
const BLOCK: usize = 256;
const BLOCK_BYTES: usize = 210;
const BLOCK_UNITS: usize = BLOCK / UNIT;
const SCALES: usize = 192;

pub(super) fn pack(rows: &[StoredRow<'_>], panel: &mut [Line]) {
    for (lane, stored) in rows.iter().enumerate() {
        assert_eq!(stored.dtype, Dtype::Q6_K, "what Int6 is packed from");
        let blocks = stored.bytes.as_chunks::<BLOCK_BYTES>().0;
        for (block, units) in blocks
            .iter()
            .zip(panel.chunks_mut(BLOCK_UNITS * UNIT_LINES))
        {
            for (unit, lines) in units.chunks_exact_mut(UNIT_LINES).enumerate() {
                write_unit(block, unit, lines, lane);
            }
        }
    }
}

fn write_unit(block: &[u8; BLOCK_BYTES], unit: usize, lines: &mut [Line], lane: usize) {
    for half in 0..2 {
        set_byte(
            &mut lines[0],
            half * LANES + lane,
            block[SCALES + 2 * unit + half],
        );
    }
    let d = f16::from_le_bytes([block[BLOCK_BYTES - 2], block[BLOCK_BYTES - 1]]);
    set_half(&mut lines[0], LANES + lane, d);
    for input in 0..UNIT {
        let q = quant(block, unit * UNIT + input);
        let (quad, at) = (input / 4, 4 * lane + input % 4);
        let nibble = (q & 15) << (4 * (quad % 2));
        set_byte(&mut lines[NIBBLES + quad / 2], at, nibble);
        let pair = u32::from(q >> 4) << (4 + 8 * (input % 4));
        lines[PAIRS + quad / 4][lane] |= pair.rotate_left(2 * (quad as u32 % 4));
    }
}

/// The six bits of element `at` of a block: each half of it has 64 bytes of low nibbles and 32 bytes of high bit pairs for four
/// runs of 32.
fn quant(block: &[u8; BLOCK_BYTES], at: usize) -> u8 {
    let (half, run, l) = (at / 128, at / 32 % 4, at % 32);
    let low = block[64 * half + 32 * (run % 2) + l];
    let nibble = if run < 2 { low & 15 } else { low >> 4 };
    let high = block[128 + 32 * half + l] >> (2 * run);
    nibble | (high & 3) << 4
}

pub(super) fn read(panel: Strip<'_>, lane: usize, out: &mut [f32]) {
    for (unit, out) in out.chunks_mut(UNIT).enumerate() {
        let lines = panel.unit::<UNIT_LINES>(unit);
        let d = half_at(lines[0], LANES + lane);
        for (input, out) in out.iter_mut().enumerate() {
            let scale = byte(lines[0], input / 16 * LANES + lane) as i8;
            let (quad, at) = (input / 4, 4 * lane + input % 4);
            let nibble = byte(lines[NIBBLES + quad / 2], at) >> (4 * (quad % 2)) & 15;
            let word = lines[PAIRS + quad / 4][lane].rotate_right(2 * (quad as u32 % 4));
            let pair = (word >> (4 + 8 * (input % 4))) as u8 & 3;
            *out = d * f32::from(scale) * (f32::from(nibble | pair << 4) - 32.0);
        }
    }
}
