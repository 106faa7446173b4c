//! The paged KV cache, laid out as panels for the register tile. Blocks are the caller's; a slot is
//! `block * block_size + offset`.
//!
//! Within a layer, block and head, positions come in groups of sixteen (the last group of a block may be padded). Keys of a
//! group are a panel of sixteen outputs, one per position, with a line per step of head elements. Values are panels of sixteen
//! head elements with a line per step of positions.

use crate::Machine;
use crate::aligned::{AlignedLines, LANES, Line};
use crate::disjoint::Disjoint;
use crate::simd::{Bf16, Kernel};
use std::io;

/// What keys and values are held and multiplied as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// f32.
    F32,
    /// bf16; sums are f32.
    Bf16,
}

impl Format {
    /// Numbers that a word of a line holds.
    const fn inputs_per_line(self) -> usize {
        match self {
            Format::F32 => 1,
            Format::Bf16 => 2,
        }
    }
}

/// Shape of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Decoder layers.
    pub layers: usize,
    /// Blocks in the pool.
    pub blocks: usize,
    /// Positions per block.
    pub block_size: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
}

impl Shape {
    /// Groups of sixteen positions per block.
    pub(crate) fn groups(&self) -> usize {
        self.block_size.div_ceil(LANES)
    }

    /// Panels of sixteen head elements.
    pub(crate) fn panels(&self) -> usize {
        self.head_dim.div_ceil(LANES)
    }

    /// Lines of one head in one block, keys and values; saturating.
    fn head_lines(&self, format: Format) -> usize {
        let per_line = format.inputs_per_line();
        let keys = self.head_dim.div_ceil(per_line);
        let values = self.panels().saturating_mul(LANES / per_line);
        self.groups().saturating_mul(keys.saturating_add(values))
    }

    /// Lines that one block takes, all layers; saturating.
    fn block_lines(&self, format: Format) -> usize {
        let heads = self.layers.saturating_mul(self.kv_heads);
        heads.saturating_mul(self.head_lines(format))
    }

    /// Bytes that one block takes, all layers, keys and values; saturating.
    pub fn block_bytes(&self, format: Format) -> u64 {
        (self.block_lines(format) as u64).saturating_mul(size_of::<Line>() as u64)
    }
}

/// Keys and values of all layers.
pub struct KvCache {
    shape: Shape,
    format: Format,
    lines: AlignedLines,
}

impl KvCache {
    /// An empty cache.
    ///
    /// # Errors
    /// When the system gives no memory.
    pub fn new(shape: Shape, format: Format) -> io::Result<Self> {
        let lines = shape.block_lines(format).saturating_mul(shape.blocks);
        let lines = AlignedLines::zeroed(lines)?;
        Ok(Self {
            shape,
            format,
            lines,
        })
    }

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// What its numbers are held as.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Steps (lines) of one group's key panel.
    pub(crate) fn key_steps(&self) -> usize {
        self.shape.head_dim.div_ceil(self.format.inputs_per_line())
    }

    /// Steps (lines) that one group takes in a value panel.
    pub(crate) fn group_steps(&self) -> usize {
        LANES / self.format.inputs_per_line()
    }

    /// Lines that the keys of one head take in a block; its values follow.
    pub(crate) fn key_lines(&self) -> usize {
        self.shape.groups() * self.key_steps()
    }

    /// Line where one head of one block starts: `key_lines` lines of keys, a panel of `key_steps` per group, then for each panel of
    /// values `group_steps` lines per group.
    pub(crate) fn head_start(&self, layer: usize, block: usize, head: usize) -> usize {
        ((layer * self.shape.blocks + block) * self.shape.kv_heads + head)
            * self.shape.head_lines(self.format)
    }

    /// All lines.
    pub(crate) fn lines(&self) -> &[Line] {
        self.lines.lines()
    }

    /// Stores keys and values of `slots.len()` rows in `layer`. Rows of `kv` are `cols` wide; at column `first_col` stand the
    /// keys of all heads, then the values. Slots of one block come one after the other, in ascending order.
    ///
    /// # Panics
    /// When a slot or the layer lies outside the cache, or the columns outside a row.
    pub fn store(&mut self, machine: &mut Machine, layer: usize, slots: &[u32], kv: Columns<'_>) {
        let shape = self.shape;
        assert!(layer < shape.layers, "layer {layer} of {}", shape.layers);
        let outside = |slot: &&u32| **slot as usize / shape.block_size >= shape.blocks;
        if let Some(slot) = slots.iter().find(outside) {
            panic!("slot {slot} of {} blocks", shape.blocks);
        }
        let (format, key_lines) = (self.format, self.key_lines());
        let head_lines = shape.head_lines(format);
        let start = self.head_start(layer, 0, 0);
        let lines = Disjoint::new(self.lines.lines_mut());
        let isa = machine.isa;
        machine
            .pool
            .run(slots.len().div_ceil(ROWS_PER_TASK), &|task| {
                let from = start_of_block(slots, shape.block_size, task * ROWS_PER_TASK);
                let to = start_of_block(slots, shape.block_size, (task + 1) * ROWS_PER_TASK);
                isa.dispatch(StoreRows {
                    shape,
                    format,
                    lines: &lines,
                    start,
                    head_lines,
                    key_lines,
                    slots: &slots[from..to],
                    kv: Columns {
                        x: &kv.x[from * kv.cols..to * kv.cols],
                        ..kv
                    },
                });
            });
    }
}

/// Rows that one task stores, give or take a block.
const ROWS_PER_TASK: usize = 32;

/// The first row from `row` on whose slot lies in another block than that of the row before; one past the last if there is none.
fn start_of_block(slots: &[u32], block_size: usize, row: usize) -> usize {
    let block = |row: usize| slots[row] as usize / block_size;
    let mut row = row.min(slots.len());
    while 0 < row && row < slots.len() && block(row) == block(row - 1) {
        row += 1;
    }
    row
}

/// Some columns of rows.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    /// The rows.
    pub x: &'a [f32],
    /// Width of a row.
    pub cols: usize,
    /// First of the columns meant.
    pub first_col: usize,
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

/// Some rows, all heads.
struct StoreRows<'a> {
    shape: Shape,
    format: Format,
    lines: &'a Disjoint<'a, Line>,
    /// Line where the layer starts.
    start: usize,
    /// Lines of a head in a block, and those of them that hold keys.
    head_lines: usize,
    key_lines: usize,
    slots: &'a [u32],
    kv: Columns<'a>,
}

impl Kernel for StoreRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Bf16>(self, _: S) {
        let Shape {
            block_size,
            kv_heads,
            head_dim,
            ..
        } = self.shape;
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
                let (key_place, value_place) = place.split_at_mut(self.key_lines);
                store_key(self.format, key_place, key, offset);
                store_value(self.format, value_place, value, offset, self.shape.groups());
            }
        }
    }
}

#[inline(always)]
fn store_key(format: Format, keys: &mut [Line], key: &[f32], offset: usize) {
    let (group, lane) = (offset / LANES, offset % LANES);
    let steps = key.len().div_ceil(format.inputs_per_line());
    let panel = &mut keys[group * steps..][..steps];
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
    }
}

#[inline(always)]
fn store_value(format: Format, values: &mut [Line], value: &[f32], offset: usize, groups: usize) {
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
        }
    }
}
