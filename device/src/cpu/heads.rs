//! The part of the CPU device that knows heads, positions and the KV cache.

use super::memory::{ensure_free, held, out_of_memory};
use super::{CpuDevice, ensure, shape_error};
use crate::checks::{check_cache, check_heads, check_rows};
use crate::{Act, AttentionShape, Device, DeviceError, KvShape, Rope, Rows};
use ropeteam_kernels::{self as kernels, KvCache, attention, kv, rope};

/// The shape in the kernels' words.
pub(super) fn kv_shape(shape: &KvShape) -> kv::Shape {
    kv::Shape {
        layers: shape.layers,
        blocks: shape.blocks,
        block_size: shape.block_size,
        kv_heads: shape.kv_heads,
        head_dim: shape.head_dim,
    }
}

/// The same in the trait's words.
fn cache_shape(shape: &kv::Shape) -> KvShape {
    KvShape {
        layers: shape.layers,
        blocks: shape.blocks,
        block_size: shape.block_size,
        kv_heads: shape.kv_heads,
        head_dim: shape.head_dim,
    }
}

impl CpuDevice {
    /// See `Device::alloc_kv`.
    pub(super) fn replace_cache(&mut self, shape: KvShape) -> Result<(), DeviceError> {
        check_cache(&shape)?;
        ensure(
            shape.head_dim <= attention::MAX_HEAD_DIM,
            "alloc_kv",
            || {
                format!(
                    "heads of {}, at most {}",
                    shape.head_dim,
                    attention::MAX_HEAD_DIM
                )
            },
        )?;
        self.kv = None;
        let bytes = self
            .kv_block_bytes(&shape)
            .saturating_mul(shape.blocks as u64);
        let (shape, format) = (kv_shape(&shape), self.kv_format);
        let kv = match &self.kv_file {
            None => {
                ensure_free("the KV cache", bytes)?;
                KvCache::new(shape, format)
            }
            Some(file) => {
                ensure_free("the KV cache", bytes.saturating_sub(held(file)))?;
                KvCache::kept_in(file, shape, format)
            }
        };
        self.kv = Some(kv.map_err(|_| out_of_memory("the KV cache", bytes))?);
        Ok(())
    }

    /// See `Device::rope_and_cache`.
    pub(super) fn rotate_and_store(
        &mut self,
        qkv: Act,
        layer: usize,
        shape: &AttentionShape,
        rope: &Rope,
        rows: &Rows,
    ) -> Result<(), DeviceError> {
        let op = "rope_and_cache";
        let kv = self
            .kv
            .as_mut()
            .ok_or_else(|| shape_error(op, "no KV cache yet".to_owned()))?;
        let cache = cache_shape(kv.shape());
        check_heads(op, &cache, shape, layer)?;
        check_rows(op, &cache, rows)?;
        ensure(2 * rope.inv_freq.len() <= shape.head_dim, op, || {
            format!(
                "{} pairs to rotate in heads of {}",
                rope.inv_freq.len(),
                shape.head_dim
            )
        })?;
        let cols = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
        let x = self.buffers.rows_mut(op, qkv, rows.positions.len(), cols)?;
        let at = rope::Rotation {
            cols,
            heads: shape.heads + shape.kv_heads,
            head_dim: shape.head_dim,
            interleaved: rope.interleaved,
        };
        let angles = self.rotations.angles(rope, &rows.positions);
        rope::rotate(&mut self.machine, x, at, angles);
        let columns = kv::Columns {
            x,
            cols,
            first_col: shape.heads * shape.head_dim,
        };
        kv.store(&mut self.machine, layer, &rows.slots, columns);
        Ok(())
    }

    /// See `Device::attention`.
    pub(super) fn attend(
        &mut self,
        qkv: Act,
        layer: usize,
        shape: &AttentionShape,
        rows: &Rows,
        out: Act,
    ) -> Result<(), DeviceError> {
        let op = "attention";
        let kv = self
            .kv
            .as_ref()
            .ok_or_else(|| shape_error(op, "no KV cache yet".to_owned()))?;
        let cache = cache_shape(kv.shape());
        check_heads(op, &cache, shape, layer)?;
        check_rows(op, &cache, rows)?;
        let out_cols = shape.heads * shape.head_dim;
        let cols = out_cols + 2 * shape.kv_heads * shape.head_dim;
        let [x, out] = self
            .buffers
            .pair(op, [qkv, out], rows.positions.len(), [cols, out_cols])?;
        let query = attention::Query {
            x,
            cols,
            heads: shape.heads,
            scale: shape.scale,
            window: shape.window,
            layer,
        };
        let segment = |index: usize| {
            let segment = &rows.segments[index];
            attention::Segment {
                first_row: segment.first_row,
                rows: segment.rows,
                first_position: rows.positions[segment.first_row] as usize,
                blocks: &segment.blocks,
            }
        };
        let segments: (usize, &(dyn Fn(usize) -> _ + Sync)) = (rows.segments.len(), &segment);
        kernels::attention(&mut self.machine, &mut self.tasks, kv, query, segments, out);
        Ok(())
    }
}
