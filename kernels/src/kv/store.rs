//! How keys and values of rows are written into the cache.

use super::{Columns, Format, KEY_CHUNK, Shape};
use crate::aligned::{LANES, Line};
use crate::disjoint::Disjoint;
use crate::simd::{Int8, Kernel, ROUND};

/// Some rows, all heads.
pub(super) struct StoreRows<'a> {
    pub shape: Shape,
    pub format: Format,
    pub lines: &'a Disjoint<'a, Line>,
    /// Line where the layer starts.
    pub start: usize,
    /// Lines of a head in a block.
    pub head_lines: usize,
    pub slots: &'a [u32],
    pub kv: Columns<'a>,
}

impl Kernel for StoreRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Int8>(self, _: S) {
        let (shape, format) = (self.shape, self.format);
        let Shape {
            block_size,
            kv_heads,
            head_dim,
            ..
        } = shape;
        let scales_start = shape.groups() * shape.group_key_lines(format);
        let value_start = shape.value_start(format);
        let width = kv_heads * head_dim;
        for (slot, row) in self.slots.iter().zip(self.kv.x.chunks_exact(self.kv.cols)) {
            let (block, offset) = (*slot as usize / block_size, *slot as usize % block_size);
            let (keys, values) = row[self.kv.first_col..][..2 * width].split_at(width);
            let heads = keys
                .chunks_exact(head_dim)
                .zip(values.chunks_exact(head_dim));
            for (head, (key, value)) in heads.enumerate() {
                let first = self.start + (block * kv_heads + head) * self.head_lines;
                // SAFETY: a block belongs to the rows of one task (`start_of_block`), which holds one head of it at a time.
                let place = unsafe { self.lines.part(first, self.head_lines) };
                let (place, values) = place.split_at_mut(value_start);
                let (keys, scales) = place.split_at_mut(scales_start);
                store_key(format, keys, key, offset);
                let scales = scales.get_mut(offset / LANES);
                store_value(format, values, scales, value, offset, shape.groups());
            }
        }
    }
}

#[inline(always)]
fn store_key(format: Format, keys: &mut [Line], key: &[f32], offset: usize) {
    let (group, lane) = (offset / LANES, offset % LANES);
    let scales = format.key_scales(key.len());
    let steps = key.len().div_ceil(format.inputs_per_line());
    let lines = &mut keys[group * (scales + steps)..][..scales + steps];
    let (scales, panel) = lines.split_at_mut(scales);
    match format {
        Format::F32 => {
            for (line, x) in panel.iter_mut().zip(key) {
                line[lane] = x.to_bits();
            }
        }
        Format::Bf16 => {
            // Rounded sixteen pairs at a time; a store for each of them has to follow.
            for (lines, key) in panel.chunks_mut(LANES).zip(key.chunks(2 * LANES)) {
                let mut padded = [0.0; 2 * LANES];
                padded[..key.len()].copy_from_slice(key);
                let mut words = [0; LANES];
                for (word, pair) in words.iter_mut().zip(padded.as_chunks::<2>().0) {
                    *word = pack_pair(pair[0], pair[1]);
                }
                for (line, word) in lines.iter_mut().zip(words) {
                    line[lane] = word;
                }
            }
        }
        Format::Int8 => {
            let chunks = panel
                .chunks_mut(KEY_CHUNK / 4)
                .zip(key.chunks(KEY_CHUNK))
                .zip(scales);
            for ((lines, key), scale) in chunks {
                let mut padded = [0.0; KEY_CHUNK];
                padded[..key.len()].copy_from_slice(key);
                let to_bytes = ToBytes::of(&padded);
                scale[lane] = to_bytes.scale.to_bits();
                for (line, quad) in lines.iter_mut().zip(padded.as_chunks::<4>().0) {
                    line[lane] = u32::from_le_bytes(quad.map(|x| to_bytes.byte(x)));
                }
            }
        }
    }
}

/// How some numbers become bytes `w + 128`.
#[derive(Clone, Copy)]
struct ToBytes {
    /// What a step of w stands for; infinite where a number was not finite, so that it spreads.
    scale: f32,
    inverse: f32,
}

impl ToBytes {
    /// Below it numbers count as zeros.
    const SMALLEST: f32 = 1e-30;

    #[inline(always)]
    fn of(x: &[f32]) -> Self {
        let (mut top, mut finite) = (0.0f32, true);
        for x in x {
            let x = x.abs();
            top = if x > top { x } else { top };
            finite &= x < f32::INFINITY;
        }
        match top {
            _ if !finite => Self {
                scale: f32::INFINITY,
                inverse: 0.0,
            },
            ..Self::SMALLEST => Self {
                scale: 0.0,
                inverse: 0.0,
            },
            _ => Self {
                scale: top / 127.0,
                inverse: 127.0 / top,
            },
        }
    }

    #[inline(always)]
    fn byte(self, x: f32) -> u8 {
        // What is not finite times zero is NaN, and becomes a zero here.
        let whole = (x * self.inverse + ROUND) - ROUND;
        (whole as i32 + 128) as u8
    }
}

#[inline(always)]
fn store_value(
    format: Format,
    values: &mut [Line],
    scales: Option<&mut Line>,
    value: &[f32],
    offset: usize,
    groups: usize,
) {
    let to_bytes = scales.map(|scales| {
        let to_bytes = ToBytes::of(value);
        scales[offset % LANES] = to_bytes.scale.to_bits();
        to_bytes
    });
    let panel_lines = groups * LANES / format.inputs_per_line();
    for (panel, value) in values
        .chunks_exact_mut(panel_lines)
        .zip(value.chunks(LANES))
    {
        let line = &mut panel[offset / format.inputs_per_line()];
        match format {
            Format::F32 => {
                for (word, x) in line.iter_mut().zip(value) {
                    *word = x.to_bits();
                }
            }
            // The even position of a pair comes first. It clears the odd one, so that what an earlier owner left there, be it
            // infinite, never meets a product.
            Format::Bf16 if offset.is_multiple_of(2) => {
                for (word, x) in line.iter_mut().zip(value) {
                    *word = pack_pair(*x, 0.0);
                }
            }
            Format::Bf16 => {
                for (word, x) in line.iter_mut().zip(value) {
                    *word = *word & 0xffff | pack_pair(0.0, *x);
                }
            }
            Format::Int8 => {
                let shift = 8 * (offset % 4);
                for (word, x) in line.iter_mut().zip(value) {
                    let byte = to_bytes.map_or(128, |to_bytes| to_bytes.byte(*x));
                    *word = *word & !(0xff << shift) | u32::from(byte) << shift;
                }
            }
        }
    }
}

/// Two numbers rounded to bf16 (to nearest, ties to even), the first in the low half. Without a branch, so that loops over it become
/// vector code.
#[inline(always)]
fn pack_pair(first: f32, second: f32) -> u32 {
    round(first) >> 16 | round(second) & 0xffff_0000
}

/// The bf16 nearest to a number, as the high half of a word; NaN stays NaN.
#[inline(always)]
fn round(x: f32) -> u32 {
    let bits = x.to_bits();
    let up = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    if x.is_nan() { bits | 0x0040_0000 } else { up }
}
