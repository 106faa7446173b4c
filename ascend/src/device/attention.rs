//! Rotation, the way into the cache, and attention over it: `RopeWithSinCosCache`, `ScatterPaKvCache`, and
//! `FusedInferAttentionScore` over all sequences of a step at once (TND, with a block table; causal from the right below as soon as
//! a sequence has more than one row).

use super::AclDevice;
use super::buffers::ELEMENT;
use crate::launch::Operator;
use crate::tensor::{TensorList, View};
use ropeteam_acl_sys::types::aclrtStream;
use ropeteam_device::checks::{check_heads, ensure, shape_error};
use ropeteam_device::{Act, AttentionShape, DeviceError, HeadNorms, KvShape, Rope, Rows};
use std::ptr::null;

/// All tokens before a query, and after it as far as the mask lets it.
const ALL_TOKENS: i64 = 2_147_483_647;
/// No mask is needed.
const SPARSE_NONE: i64 = 0;
/// Causal, the last query row seeing all tokens.
const SPARSE_RIGHT_DOWN: i64 = 3;
/// Sums in f32.
const PRECISE: i64 = 0;

/// An attention over the rows of a step.
#[derive(Clone, Copy)]
pub struct Attention {
    layer: usize,
    shape: AttentionShape,
    count: usize,
    out: View,
}

/// Queries that were rotated and wait for their attention.
#[derive(Clone, Copy, PartialEq)]
pub struct Rotated {
    qkv: Act,
    layer: usize,
    query: View,
}

impl AclDevice {
    /// See `Device::rope_and_cache` and `Device::norm_rope_and_cache`.
    pub(super) fn rotate_and_store(
        &mut self,
        qkv: Act,
        layer: usize,
        (shape, norms): (&AttentionShape, Option<HeadNorms>),
        rope: &Rope,
        rows: &Rows,
    ) -> Result<(), DeviceError> {
        let op = "rope_and_cache";
        let cache = self.cache_of(op, shape, layer, rows)?;
        ensure(2 * rope.inv_freq.len() <= shape.head_dim, op, || {
            format!(
                "{} pairs to rotate in heads of {}",
                rope.inv_freq.len(),
                shape.head_dim
            )
        })?;
        self.send_rows(op, &cache, rows)?;
        let count = rows.positions.len();
        let (float, most) = (self.float(), self.buffers.capacity(op, qkv)?);
        let (queries, keys) = (
            shape.heads * shape.head_dim,
            shape.kv_heads * shape.head_dim,
        );
        let x = self
            .buffers
            .rows(op, float, qkv, count, queries + 2 * keys)?;
        let arena = &mut self.arena;
        let scratch = &mut self.scratch;
        scratch.query.reserve(arena, op, most * queries * ELEMENT)?;
        scratch.key.reserve(arena, op, most * keys * ELEMENT)?;
        scratch.value.reserve(arena, op, most * keys * ELEMENT)?;
        let query = View::new(scratch.query.address, float, &[count, queries]);
        let key = View::new(scratch.key.address, float, &[count, keys]);
        let value = View::new(scratch.value.address, float, &[count, keys]);

        let mut sources = [x.columns(0, queries, None), x.columns(queries, keys, None)];
        if let Some(norms) = norms {
            let parts = [
                (0, 0, shape.heads, norms.query),
                (1, queries, shape.kv_heads, norms.key),
            ];
            for (place, first, heads, weight) in parts {
                let gamma = self.weights.vector(op, weight)?;
                let size = self.weights.len(weight);
                ensure(size == shape.head_dim, op, || {
                    format!("a norm of {size} for heads of {}", shape.head_dim)
                })?;
                let part = x.columns(first, heads * size, Some(heads));
                let normed =
                    self.norm_heads(place, part, [count, heads, size], gamma, norms.eps)?;
                sources[place] = View::new(normed.address, float, &[count, heads * size]);
            }
        }
        self.rotate(sources, [query, key], shape, rope, rows)?;
        self.copy(x.columns(queries + keys, keys, None), value)?;
        self.store(layer, &cache, count, [key, value])?;
        self.rotated = Some(Rotated { qkv, layer, query });
        Ok(())
    }

    /// Norms heads into the `place`-th buffer for such.
    pub(super) fn norm_heads(
        &mut self,
        place: usize,
        x: View,
        [rows, heads, size]: [usize; 3],
        gamma: View,
        eps: f32,
    ) -> Result<View, DeviceError> {
        let bytes = rows * heads * size * ELEMENT;
        self.scratch.heads[place].reserve(&mut self.arena, "normed heads", bytes)?;
        let address = self.scratch.heads[place].address;
        let out = View::new(address, x.data_type, &[rows, heads, size]);
        self.norm(x, gamma, eps, &[rows, heads, 1], out)?;
        Ok(out)
    }

    /// The cache's shape, once it is one for this attention. Windows are fine as long as no row looks out of one.
    fn cache_of(
        &self,
        op: &'static str,
        shape: &AttentionShape,
        layer: usize,
        rows: &Rows,
    ) -> Result<KvShape, DeviceError> {
        let cache = self.cache.as_ref().map(|cache| cache.shape);
        let cache = cache.ok_or_else(|| shape_error(op, "no KV cache yet".to_owned()))?;
        check_heads(op, &cache, shape, layer)?;
        ensure(shape.heads / shape.kv_heads <= 64, op, || {
            format!(
                "{} query heads for {} KV heads",
                shape.heads, shape.kv_heads
            )
        })?;
        let highest = rows.positions.iter().copied().max().unwrap_or(0) as usize;
        let fits = shape.window.is_none_or(|window| highest < window);
        ensure(fits, op, || {
            format!(
                "a window of {:?} at position {highest}; the Ascend device offers none",
                shape.window
            )
        })?;
        Ok(cache)
    }

    /// `out = rotated(source)`, of queries and keys.
    fn rotate(
        &mut self,
        sources: [View; 2],
        out: [View; 2],
        shape: &AttentionShape,
        rope: &Rope,
        rows: &Rows,
    ) -> Result<(), DeviceError> {
        if rope.inv_freq.is_empty() {
            self.copy(sources[0], out[0])?;
            return self.copy(sources[1], out[1]);
        }
        let highest = rows.positions.iter().copied().max().unwrap_or(0);
        let table = self.rotations(rope, highest as usize)?;
        let (Some(cache), Some(step)) = (&self.cache, self.inputs.views()) else {
            return Ok(());
        };
        let (sections, size, neox) = (
            cache.sections.handle(),
            shape.head_dim as i64,
            !rope.interleaved,
        );
        launch!(
            self,
            aclnnRopeWithSinCosCacheGetWorkspaceSize,
            aclnnRopeWithSinCosCache,
            [
                step.positions,
                sources[0],
                sources[1],
                table,
                out[0],
                out[1],
            ],
            [size, neox.into()],
            |t| (t[0], t[1], t[2], t[3], sections, size, neox, t[4], t[5])
        )
    }

    /// Keys and values go to their slots.
    fn store(
        &mut self,
        layer: usize,
        shape: &KvShape,
        count: usize,
        [key, value]: [View; 2],
    ) -> Result<(), DeviceError> {
        let (Some(cache), Some(step)) = (&self.cache, self.inputs.views()) else {
            return Ok(());
        };
        let float = key.data_type;
        let heads = [shape.kv_heads, shape.head_dim];
        let rows = |view: View| View::new(view.address, float, &[count, heads[0], heads[1]]);
        let whole = [shape.blocks, shape.block_size, heads[0], heads[1]];
        let [keys, values] = cache
            .layer(layer)
            .map(|region| View::new(region.address, float, &whole));
        launch!(
            self,
            aclnnScatterPaKvCacheGetWorkspaceSize,
            aclnnScatterPaKvCache,
            [rows(key), keys, step.slots, rows(value), values],
            [],
            |t| (
                t[0],
                t[1],
                t[2],
                t[3],
                t[4],
                null(),
                null(),
                null(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                null(),
                null()
            )
        )
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
        let cache = self.cache_of(op, shape, layer, rows)?;
        self.send_rows(op, &cache, rows)?;
        let count = rows.positions.len();
        let (float, queries) = (self.float(), shape.heads * shape.head_dim);
        let cols = [queries + 2 * shape.kv_heads * shape.head_dim, queries];
        let [_, out] = self.buffers.pair(op, float, [qkv, out], count, cols)?;
        let query = View::new(self.scratch.query.address, float, &[count, queries]);
        let wanted = Rotated { qkv, layer, query };
        ensure(self.rotated == Some(wanted), op, || {
            "these rows were not rotated for this layer just before".to_owned()
        })?;
        let attention = Attention {
            layer,
            shape: *shape,
            count,
            out,
        };
        let stream = self.session.compute;
        if !self.graphs.records() {
            return self.attend_rotated(&attention, stream);
        }
        self.graphs.begin_group()?;
        self.attend_rotated(&attention, stream)?;
        Ok(self.graphs.end_group(attention)?)
    }

    /// Attention of the rotated queries; in `stream`, which updates a graph if it is not the one that computes.
    pub(super) fn attend_rotated(
        &mut self,
        attention: &Attention,
        stream: aclrtStream,
    ) -> Result<(), DeviceError> {
        let Attention {
            layer,
            shape,
            count,
            out,
        } = *attention;
        let acl = self.session.acl;
        let (Some(cache), Some(step)) = (&self.cache, self.inputs.views()) else {
            return Ok(());
        };
        let float = out.data_type;
        let KvShape {
            blocks, block_size, ..
        } = cache.shape;
        let width = shape.kv_heads * shape.head_dim;
        let heads = [count, shape.heads, shape.head_dim];
        let query = View::new(self.scratch.query.address, float, &heads).create(acl)?;
        let out = View::new(out.address, float, &heads).create(acl)?;
        let [keys, values] = cache.layer(layer).map(|region| {
            let view = View::new(region.address, float, &[blocks, block_size, width]);
            TensorList::of(acl, view.create(acl)?)
        });
        let (keys, values) = (keys?, values?);
        let mask = match step.is_decode {
            true => None,
            false => Some(cache.mask.create(acl)?),
        };
        let table = step.block_table.create(acl)?;
        let lse = cache.softmax_lse.create(acl)?;
        let sparse = match mask {
            None => SPARSE_NONE,
            Some(_) => SPARSE_RIGHT_DOWN,
        };
        let operator: Operator = operator!(aclnnFusedInferAttentionScoreV4);
        let (ends, lens) = (step.query_ends.handle(), step.kv_lens.handle());
        self.launcher.launch_once(operator, stream, |made| {
            let absent = null();
            // SAFETY: tensors, lists and numbers that live until the launch returned; null where the operator allows it.
            unsafe {
                acl.operators
                    .aclnnFusedInferAttentionScoreV4GetWorkspaceSize(
                        query.handle(),
                        keys.handle(),
                        values.handle(),
                        absent,
                        mask.as_ref()
                            .map_or(absent, |mask| mask.handle().cast_const()),
                        ends,
                        lens,
                        absent,
                        absent,
                        absent,
                        absent,
                        absent,
                        absent,
                        absent,
                        table.handle(),
                        absent,
                        absent,
                        absent,
                        absent,
                        absent,
                        absent,
                        absent,
                        absent,
                        null(),
                        absent,
                        absent,
                        absent,
                        absent,
                        absent,
                        shape.heads as i64,
                        shape.scale.into(),
                        ALL_TOKENS,
                        ALL_TOKENS,
                        c"TND".as_ptr().cast_mut(),
                        shape.kv_heads as i64,
                        sparse,
                        PRECISE,
                        block_size as i64,
                        0,
                        false,
                        0,
                        0,
                        0,
                        out.handle(),
                        lse.handle(),
                        &mut made.workspace,
                        &mut made.executor,
                    )
            }
        })
    }
}
