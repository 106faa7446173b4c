//! A device that rounds each projection when its first input arrives. All tokens of the calibration text pass in one step, so that
//! a projection is called once, with all its inputs, and what follows is computed with rounded weights: later projections are
//! rounded for the inputs that they are going to meet.
//!
//! Everything else is the inner device's work.

use crate::spec::{DecoderSpec, Projection};
use ropeteam_device::{
    Act, AttentionShape, ColumnMask, Device, DeviceError, DeviceInfo, KvShape, Rope, Rows,
    TensorView, Weight,
};
use std::collections::HashMap;

/// Rounds the projections of a model.
pub(super) trait Rounding {
    /// Rounds `projection` of layer `layer`, whose inputs are the rows of `x`, and loads what came of it into `device`.
    fn round(
        &mut self,
        layer: usize,
        projection: &Projection,
        x: &[f32],
        device: &mut dyn Device,
    ) -> Result<Weight, DeviceError>;
}

/// See the file.
pub(super) struct Calibrating<'a> {
    inner: &'a mut dyn Device,
    rounding: &'a mut dyn Rounding,
    /// Projections in the order in which a decoder loads them.
    awaited: Vec<(usize, Projection)>,
    loads: usize,
    rounded: HashMap<u32, Weight>,
    /// What `gated_linear` multiplies: a projection's inputs must exist to be seen.
    gated: Option<Act>,
}

/// Ids of weights that are not on the inner device yet, or under another id there.
const AWAITED: u32 = 1 << 31;

impl<'a> Calibrating<'a> {
    /// For the decoder `spec`.
    pub fn new(
        spec: &DecoderSpec,
        inner: &'a mut dyn Device,
        rounding: &'a mut dyn Rounding,
    ) -> Self {
        let awaited = (0..spec.layers())
            .flat_map(|layer| {
                let projections = spec.projections();
                projections.in_order().map(|projection| (layer, projection))
            })
            .collect();
        Self {
            inner,
            rounding,
            awaited,
            loads: 0,
            rounded: HashMap::new(),
            gated: None,
        }
    }

    /// The weight on the inner device, rounded now if it was not before.
    fn inner_weight(&mut self, weight: Weight, x: Act, rows: usize) -> Result<Weight, DeviceError> {
        if weight.0 & AWAITED == 0 {
            return Ok(weight);
        }
        if let Some(rounded) = self.rounded.get(&weight.0) {
            return Ok(*rounded);
        }
        let (layer, projection) = &self.awaited[(weight.0 ^ AWAITED) as usize];
        let mut inputs = Vec::new();
        self.inner.read_rows(x, 0, rows, &mut inputs)?;
        let rounded = self
            .rounding
            .round(*layer, projection, &inputs, self.inner)?;
        self.rounded.insert(weight.0, rounded);
        Ok(rounded)
    }
}

impl Device for Calibrating<'_> {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    /// Projections are not loaded before they are rounded. The one that no layer awaits is the head.
    fn load_linear(
        &mut self,
        parts: &[TensorView<'_>],
        bias: &[TensorView<'_>],
    ) -> Result<Weight, DeviceError> {
        let index = self.loads;
        self.loads += 1;
        let Some((_, projection)) = self.awaited.get(index) else {
            return self.inner.load_linear(parts, bias);
        };
        let expected = projection
            .parts
            .iter()
            .map(|(_, rows)| [*rows, projection.inputs]);
        if !parts.iter().map(|part| part.shape).eq(expected) {
            return Err(DeviceError::Shape {
                op: "load_linear",
                detail: format!("matrix {index} is not the awaited {projection:?}"),
            });
        }
        Ok(Weight(AWAITED | index as u32))
    }

    fn linear(&mut self, x: Act, weight: Weight, rows: usize, out: Act) -> Result<(), DeviceError> {
        let weight = self.inner_weight(weight, x, rows)?;
        self.inner.linear(x, weight, rows, out)
    }

    fn gated_linear(
        &mut self,
        x: Act,
        weight: Weight,
        rows: usize,
        out: Act,
    ) -> Result<(), DeviceError> {
        if weight.0 & AWAITED == 0 {
            return self.inner.gated_linear(x, weight, rows, out);
        }
        let gated = match self.gated {
            Some(gated) => gated,
            None => {
                let inputs = self.awaited[(weight.0 ^ AWAITED) as usize].1.inputs;
                *self.gated.insert(self.inner.alloc(rows, inputs)?)
            }
        };
        self.inner.silu_mul(x, rows, gated)?;
        self.linear(gated, weight, rows, out)
    }

    fn load_embedding(
        &mut self,
        table: &TensorView<'_>,
        head: bool,
    ) -> Result<Weight, DeviceError> {
        self.inner.load_embedding(table, head)
    }

    fn load_vector(&mut self, vector: &TensorView<'_>) -> Result<Weight, DeviceError> {
        self.inner.load_vector(vector)
    }

    fn alloc(&mut self, rows: usize, cols: usize) -> Result<Act, DeviceError> {
        self.inner.alloc(rows, cols)
    }

    fn kv_block_bytes(&self, shape: &KvShape) -> u64 {
        self.inner.kv_block_bytes(shape)
    }

    fn alloc_kv(&mut self, shape: KvShape) -> Result<(), DeviceError> {
        self.inner.alloc_kv(shape)
    }

    fn embed(&mut self, table: Weight, ids: &[u32], out: Act) -> Result<(), DeviceError> {
        self.inner.embed(table, ids, out)
    }

    fn rms_norm(
        &mut self,
        x: Act,
        weight: Weight,
        eps: f32,
        rows: usize,
        out: Act,
    ) -> Result<(), DeviceError> {
        self.inner.rms_norm(x, weight, eps, rows, out)
    }

    fn add_rms_norm(
        &mut self,
        x: Act,
        residual: Act,
        weight: Weight,
        eps: f32,
        rows: usize,
        out: Act,
    ) -> Result<(), DeviceError> {
        self.inner.add_rms_norm(x, residual, weight, eps, rows, out)
    }

    fn head_norm(
        &mut self,
        x: Act,
        first_col: usize,
        heads: usize,
        weight: Weight,
        eps: f32,
        rows: usize,
    ) -> Result<(), DeviceError> {
        self.inner.head_norm(x, first_col, heads, weight, eps, rows)
    }

    fn rope_and_cache(
        &mut self,
        qkv: Act,
        layer: usize,
        shape: &AttentionShape,
        rope: &Rope,
        rows: &Rows,
    ) -> Result<(), DeviceError> {
        self.inner.rope_and_cache(qkv, layer, shape, rope, rows)
    }

    fn attention(
        &mut self,
        qkv: Act,
        layer: usize,
        shape: &AttentionShape,
        rows: &Rows,
        out: Act,
    ) -> Result<(), DeviceError> {
        self.inner.attention(qkv, layer, shape, rows, out)
    }

    fn silu_mul(&mut self, x: Act, rows: usize, out: Act) -> Result<(), DeviceError> {
        self.inner.silu_mul(x, rows, out)
    }

    fn add(&mut self, x: Act, y: Act, rows: usize) -> Result<(), DeviceError> {
        self.inner.add(x, y, rows)
    }

    fn take_rows(&mut self, x: Act, rows: &[u32], out: Act) -> Result<(), DeviceError> {
        self.inner.take_rows(x, rows, out)
    }

    fn read_rows(
        &mut self,
        x: Act,
        first: usize,
        rows: usize,
        out: &mut Vec<f32>,
    ) -> Result<(), DeviceError> {
        self.inner.read_rows(x, first, rows, out)
    }

    fn read_argmax(
        &mut self,
        x: Act,
        first: usize,
        rows: usize,
        allowed: &ColumnMask,
        out: &mut Vec<Option<u32>>,
    ) -> Result<(), DeviceError> {
        self.inner.read_argmax(x, first, rows, allowed, out)
    }
}
