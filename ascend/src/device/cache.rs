//! The paged KV cache `[blocks, block_size, kv_heads, head_dim]`, two allocations per layer, and what attention needs beside it:
//! the causal mask and the table of rotations.

use super::AclDevice;
use super::buffers::ELEMENT;
use super::weights::encode;
use super::{BLOCK_STEP, HEAD_MAX, HEAD_STEP};
use crate::memory::Region;
use crate::tensor::{IntArray, View};
use ropeteam_acl_sys::types::*;
use ropeteam_device::checks::{check_cache, ensure};
use ropeteam_device::{DeviceError, KvShape, Rope};

/// Side of the mask that the causal mode takes, whatever the lengths are.
const MASK_SIDE: usize = 2048;
/// Positions of the first table of rotations; it doubles when sequences grow beyond.
const POSITIONS: usize = 4096;
/// Largest block that attention takes.
const BLOCK_MAX: usize = 512;

/// The cache.
pub struct Cache {
    /// Its shape.
    pub shape: KvShape,
    /// Keys and values of each layer.
    layers: Vec<[Region; 2]>,
    /// `[2048, 2048]`: 1 where a key lies behind the query.
    pub mask: View,
    /// A place that attention could write to.
    pub softmax_lse: View,
    /// Sections of a multimodal rotation: none.
    pub sections: IntArray,
    table: Option<Rotations>,
}

/// Cosines and sines by position.
struct Rotations {
    rope: Rope,
    positions: usize,
    view: View,
}

impl Cache {
    /// Whether the table of rotations reaches so far.
    pub fn reaches(&self, position: usize) -> bool {
        let table = self.table.as_ref();
        table.is_some_and(|table| position < table.positions)
    }

    /// Keys and values of a layer.
    pub fn layer(&self, layer: usize) -> [&Region; 2] {
        let [keys, values] = &self.layers[layer];
        [keys, values]
    }
}

impl AclDevice {
    /// See `Device::alloc_kv`.
    pub(super) fn replace_cache(&mut self, shape: KvShape) -> Result<(), DeviceError> {
        let op = "alloc_kv";
        check_cache(&shape)?;
        let (block, head) = (shape.block_size, shape.head_dim);
        ensure(
            block.is_multiple_of(BLOCK_STEP) && block <= BLOCK_MAX,
            op,
            || {
                format!(
                    "blocks of {block} tokens; the Ascend device takes multiples of {BLOCK_STEP} up to {BLOCK_MAX}"
                )
            },
        )?;
        ensure(
            head.is_multiple_of(HEAD_STEP) && head <= HEAD_MAX,
            op,
            || {
                format!(
                    "heads of {head}; the Ascend device takes multiples of {HEAD_STEP} up to {HEAD_MAX}"
                )
            },
        )?;
        let width = shape.kv_heads * head;
        ensure(width <= 65535, op, || {
            format!("{} KV heads of {head} in a row", shape.kv_heads)
        })?;
        // Memory is not freed under queued work.
        self.forget_graphs()?;
        self.session.finish(self.session.compute)?;
        self.rotated = None;
        let (mask, softmax_lse) = match self.cache.take() {
            Some(cache) => (cache.mask, cache.softmax_lse),
            None => (self.bring_mask()?, self.bring_lse()?),
        };
        let bytes = shape.blocks * block * width * ELEMENT;
        let mut layers = Vec::with_capacity(shape.layers);
        for _ in 0..shape.layers {
            layers.push([
                Region::new(&self.session, "the KV cache", bytes)?,
                Region::new(&self.session, "the KV cache", bytes)?,
            ]);
        }
        self.staging.release();
        self.cache = Some(Cache {
            shape,
            layers,
            mask,
            softmax_lse,
            sections: IntArray::new(self.session.acl, &[0, 0, 0])?,
            table: None,
        });
        Ok(())
    }

    fn bring_mask(&mut self) -> Result<View, DeviceError> {
        let mut mask = vec![0u8; MASK_SIDE * MASK_SIDE];
        for (row, line) in mask.chunks_exact_mut(MASK_SIDE).enumerate() {
            line[row + 1..].fill(1);
        }
        let address = self.bring_bytes(&mask)?;
        Ok(View::new(address, ACL_BOOL, &[MASK_SIDE, MASK_SIDE]))
    }

    fn bring_lse(&mut self) -> Result<View, DeviceError> {
        let address = self.bring_bytes(&[0; size_of::<f32>()])?;
        Ok(View::new(address, ACL_FLOAT, &[1]))
    }

    /// The table of a rotation, up to `highest`.
    pub(super) fn rotations(&mut self, rope: &Rope, highest: usize) -> Result<View, DeviceError> {
        let known = self.cache.as_ref().and_then(|cache| cache.table.as_ref());
        if let Some(table) = known
            && table.rope == *rope
            && highest < table.positions
        {
            return Ok(table.view);
        }
        let (float, pairs) = (self.float(), rope.inv_freq.len());
        let positions = (highest + 1).next_power_of_two().max(POSITIONS);
        let mut bytes = vec![0u8; positions * 2 * pairs * ELEMENT];
        let mut line = vec![0f32; 2 * pairs];
        for (position, out) in bytes.chunks_exact_mut(2 * pairs * ELEMENT).enumerate() {
            for (i, freq) in rope.inv_freq.iter().enumerate() {
                let angle = position as f32 * freq;
                line[i] = angle.cos() * rope.scale;
                line[pairs + i] = angle.sin() * rope.scale;
            }
            encode(float, &line, out);
        }
        self.forget_graphs()?;
        let address = self.bring_bytes(&bytes)?;
        let view = View::new(address, float, &[positions, 2 * pairs]);
        if let Some(cache) = &mut self.cache {
            cache.table = Some(Rotations {
                rope: rope.clone(),
                positions,
                view,
            });
        }
        Ok(view)
    }
}
