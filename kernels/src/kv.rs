//! The paged KV cache, laid out as panels for the register tile. Blocks are the caller's; a slot is
//! `block * block_size + offset`.
//!
//! Within a layer, block and head, positions come in groups of sixteen (the last group of a block may be padded). Keys of a
//! group are a panel of sixteen outputs, one per position, with a line per step of head elements. Values are panels of sixteen
//! head elements with a line per step of positions.
//!
//! In int8 a group of keys starts with lines of scales, one per position, a line for every 32 head elements; values have one scale
//! per position, and their lines stand between keys and values.

mod store;

use crate::Machine;
use crate::aligned::{AlignedLines, LANES, Line};
use crate::disjoint::Disjoint;
use std::fs::File;
use std::io;
use store::StoreRows;

/// What keys and values are held and multiplied as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// f32.
    F32,
    /// bf16; sums are f32.
    Bf16,
    /// Bytes `w + 128` times a scale; queries and probabilities have fifteen bits, sums are exact in i32 as far as a scale reaches.
    Int8,
}

/// Elements of an int8 key that share a scale.
pub(crate) const KEY_CHUNK: usize = 32;

impl Format {
    /// Numbers that a word of a line holds.
    const fn inputs_per_line(self) -> usize {
        match self {
            Format::F32 => 1,
            Format::Bf16 => 2,
            Format::Int8 => 4,
        }
    }

    /// Lines of scales before a group of keys of `head_dim` elements.
    const fn key_scales(self, head_dim: usize) -> usize {
        match self {
            Format::F32 | Format::Bf16 => 0,
            Format::Int8 => head_dim.div_ceil(KEY_CHUNK),
        }
    }

    /// Lines of scales for a group of values.
    const fn value_scales(self) -> usize {
        match self {
            Format::F32 | Format::Bf16 => 0,
            Format::Int8 => 1,
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

    /// Lines of a group of keys, scales included.
    fn group_key_lines(&self, format: Format) -> usize {
        let steps = self.head_dim.div_ceil(format.inputs_per_line());
        format.key_scales(self.head_dim) + steps
    }

    /// Lines of one head in one block before its values.
    fn value_start(&self, format: Format) -> usize {
        let lines = self.group_key_lines(format) + format.value_scales();
        self.groups().saturating_mul(lines)
    }

    /// Lines of one head in one block, keys and values; saturating.
    fn head_lines(&self, format: Format) -> usize {
        let steps = self
            .groups()
            .saturating_mul(LANES / format.inputs_per_line());
        let values = self.panels().saturating_mul(steps);
        self.value_start(format).saturating_add(values)
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

    /// A cache in a file in memory, with what a cache of the same shape and format left there; zeroes in a new file. The file must
    /// be without a name, and mapped by nobody else as long as the cache is there.
    ///
    /// # Errors
    /// When the system gives no memory.
    pub fn kept_in(file: &File, shape: Shape, format: Format) -> io::Result<Self> {
        let lines = shape.block_lines(format).saturating_mul(shape.blocks);
        let lines = AlignedLines::in_file(file, lines)?;
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

    /// Lines of scales before the steps of a key panel.
    pub(crate) fn key_scales(&self) -> usize {
        self.format.key_scales(self.shape.head_dim)
    }

    /// Steps (lines) that one group takes in a value panel.
    pub(crate) fn group_steps(&self) -> usize {
        LANES / self.format.inputs_per_line()
    }

    /// Lines of the `group`-th group of a block, counted from where the head starts (`head_start`).
    pub(crate) fn group_lines(&self, group: usize) -> GroupLines {
        let (shape, format) = (&self.shape, self.format);
        let key_lines = shape.group_key_lines(format);
        GroupLines {
            keys: group * key_lines,
            value_scales: shape.groups() * key_lines + group * format.value_scales(),
            values: shape.value_start(format) + group * self.group_steps(),
        }
    }

    /// Line where one head of one block starts.
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
        let format = self.format;
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
                    slots: &slots[from..to],
                    kv: Columns {
                        x: &kv.x[from * kv.cols..to * kv.cols],
                        ..kv
                    },
                });
            });
    }
}

/// Where a group of sixteen positions stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupLines {
    /// Its keys: scales, then steps.
    pub keys: usize,
    /// The scales of its values, if the format has any.
    pub value_scales: usize,
    /// Its part of the first panel of values.
    pub values: usize,
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
