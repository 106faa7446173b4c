//! The methods of `Device`: each checks what the trait promises to refuse and hands on to the file of its operators.

use super::{AclDevice, BLOCK_STEP, HEAD_MAX, HEAD_STEP, RESERVE};
use crate::memory;
use crate::tensor::View;
use ropeteam_device::checks::{ensure, shape_error};
use ropeteam_device::{
    Act, Answer, AttentionLimits, AttentionShape, ColumnMask, Counters, Device, DeviceError,
    DeviceInfo, HeadNorms, Ids, KvPrecision, KvShape, Rope, Rows, TensorView, Weight,
};

impl Device for AclDevice {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            kind: "ascend",
            name: self.name.clone(),
            precision: self.options.precision,
            kv: KvPrecision::ByWeights,
            activations: self.options.activations,
            attention: AttentionLimits {
                block_size_step: BLOCK_STEP,
                head_dim_step: HEAD_STEP,
                head_dim_max: HEAD_MAX,
                windows: false,
            },
            free_bytes: memory::free_bytes(&self.session)
                .unwrap_or(0)
                .saturating_sub(RESERVE),
        }
    }

    fn load_linear(
        &mut self,
        parts: &[TensorView<'_>],
        bias: &[TensorView<'_>],
    ) -> Result<Weight, DeviceError> {
        self.bring_linear("load_linear", parts, bias)
    }

    fn load_embedding(
        &mut self,
        table: &TensorView<'_>,
        head: bool,
    ) -> Result<Weight, DeviceError> {
        self.bring_table(table, head)
    }

    fn load_vector(&mut self, vector: &TensorView<'_>) -> Result<Weight, DeviceError> {
        self.bring_vector(vector)
    }

    fn alloc(&mut self, rows: usize, cols: usize) -> Result<Act, DeviceError> {
        self.buffers
            .alloc(&self.session, &mut self.arena, rows, cols)
    }

    fn kv_block_bytes(&self, shape: &KvShape) -> u64 {
        let elements = 2 * shape.layers * shape.block_size * shape.kv_heads * shape.head_dim;
        elements as u64 * 2
    }

    fn alloc_kv(&mut self, shape: KvShape) -> Result<(), DeviceError> {
        self.replace_cache(shape)
    }

    fn embed(&mut self, table: Weight, ids: &[u32], out: Act) -> Result<(), DeviceError> {
        self.embed_rows(table, ids, out)
    }

    fn rms_norm(
        &mut self,
        x: Act,
        weight: Weight,
        eps: f32,
        rows: usize,
        out: Act,
    ) -> Result<(), DeviceError> {
        let gamma = self.weights.vector("rms_norm", weight)?;
        let len = self.weights.len(weight);
        let float = self.float();
        let [x, out] = self
            .buffers
            .pair("rms_norm", float, [x, out], rows, [len; 2])?;
        self.norm(x, gamma, eps, &[rows, 1], out)
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
        let op = "add_rms_norm";
        let gamma = self.weights.vector(op, weight)?;
        let cols = [self.weights.len(weight); 2];
        let float = self.float();
        if x != out {
            let [x, out] = self.buffers.pair(op, float, [x, out], rows, cols)?;
            self.copy(x, out)?;
        }
        let [out, residual] = self.buffers.pair(op, float, [out, residual], rows, cols)?;
        self.add_norm_in_place(out, residual, gamma, eps, rows)
    }

    fn linear(&mut self, x: Act, weight: Weight, rows: usize, out: Act) -> Result<(), DeviceError> {
        let op = "linear";
        let [inputs, outputs] = self.weights.linear(op, weight)?;
        let float = self.float();
        let [x, out] = self
            .buffers
            .pair(op, float, [x, out], rows, [inputs, outputs])?;
        self.product(x, weight, out)
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
        let op = "head_norm";
        let gamma = self.weights.vector(op, weight)?;
        let size = self.weights.len(weight);
        let cols = self.buffers.cols(op, x)?;
        let end = heads
            .checked_mul(size)
            .and_then(|width| width.checked_add(first_col));
        ensure(end.is_some_and(|end| end <= cols), op, || {
            format!("{heads} heads of {size} from column {first_col} in rows of {cols}")
        })?;
        let float = self.float();
        let x = self.buffers.rows(op, float, x, rows, cols)?;
        let x = x.columns(first_col, heads * size, Some(heads));
        let normed = self.norm_heads(0, x, [rows, heads, size], gamma, eps)?;
        self.copy(normed, x)
    }

    fn rope_and_cache(
        &mut self,
        qkv: Act,
        layer: usize,
        shape: &AttentionShape,
        rope: &Rope,
        rows: &Rows,
    ) -> Result<(), DeviceError> {
        self.rotate_and_store(qkv, layer, (shape, None), rope, rows)
    }

    fn norm_rope_and_cache(
        &mut self,
        qkv: Act,
        norms: HeadNorms,
        layer: usize,
        shape: &AttentionShape,
        rope: &Rope,
        rows: &Rows,
    ) -> Result<(), DeviceError> {
        self.rotate_and_store(qkv, layer, (shape, Some(norms)), rope, rows)
    }

    fn attention(
        &mut self,
        qkv: Act,
        layer: usize,
        shape: &AttentionShape,
        rows: &Rows,
        out: Act,
    ) -> Result<(), DeviceError> {
        self.attend(qkv, layer, shape, rows, out)
    }

    fn silu_mul(&mut self, x: Act, rows: usize, out: Act) -> Result<(), DeviceError> {
        let op = "silu_mul";
        let cols = self.buffers.cols(op, out)?;
        let float = self.float();
        let [x, out] = self
            .buffers
            .pair(op, float, [x, out], rows, [2 * cols, cols])?;
        self.gate(x, out)
    }

    fn gated_linear(
        &mut self,
        x: Act,
        weight: Weight,
        rows: usize,
        out: Act,
    ) -> Result<(), DeviceError> {
        let op = "gated_linear";
        let [inputs, outputs] = self.weights.linear(op, weight)?;
        let float = self.float();
        let most = self.buffers.capacity(op, x)?;
        let [x, out] = self
            .buffers
            .pair(op, float, [x, out], rows, [2 * inputs, outputs])?;
        self.scratch
            .gated
            .reserve(&mut self.arena, op, most * inputs * 2)?;
        let gated = View::new(self.scratch.gated.address, float, &[rows, inputs]);
        self.gate(x, gated)?;
        self.product(gated, weight, out)
    }

    fn add(&mut self, x: Act, y: Act, rows: usize) -> Result<(), DeviceError> {
        let cols = self.buffers.cols("add", x)?;
        let float = self.float();
        let [x, y] = self.buffers.pair("add", float, [x, y], rows, [cols; 2])?;
        self.add_in_place(x, y)
    }

    fn take_rows(&mut self, x: Act, rows: &[u32], out: Act) -> Result<(), DeviceError> {
        let op = "take_rows";
        let (cols, most) = (self.buffers.cols(op, x)?, self.buffers.capacity(op, x)?);
        if let Some(row) = rows.iter().find(|row| **row as usize >= most) {
            return Err(shape_error(
                op,
                format!("row {row} of a buffer of {most} rows"),
            ));
        }
        let float = self.float();
        self.buffers.pair(op, float, [x, out], 0, [cols; 2])?;
        let out = self.buffers.rows(op, float, out, rows.len(), cols)?;
        let x = self.buffers.rows(op, float, x, most, cols)?;
        self.select(x, rows, out)
    }

    fn read_rows(
        &mut self,
        x: Act,
        first: usize,
        rows: usize,
        out: &mut Vec<f32>,
    ) -> Result<(), DeviceError> {
        self.read(x, first, rows, out)
    }

    fn read_argmax(
        &mut self,
        x: Act,
        first: usize,
        rows: usize,
        allowed: &ColumnMask,
        out: &mut Vec<Option<u32>>,
    ) -> Result<(), DeviceError> {
        self.read_best(x, (first, rows), allowed, out)
    }

    fn highest_max(&self) -> usize {
        self.most_highest()
    }

    fn read_highest(
        &mut self,
        x: Act,
        first: usize,
        counts: &[usize],
        allowed: &ColumnMask,
        out: &mut Vec<Vec<(u32, f32)>>,
    ) -> Result<(), DeviceError> {
        self.read_top(x, first, counts, allowed, out)
    }

    fn steps_ahead(&self) -> usize {
        self.options.steps_ahead
    }

    fn begin_step(&mut self, ids: &Ids<'_>, rows: &Rows, alike: bool) -> Result<bool, DeviceError> {
        self.begin_or_replay(ids, rows, alike)
    }

    fn end_step(&mut self) -> Result<bool, DeviceError> {
        self.end_or_execute()
    }

    fn embed_found(&mut self, table: Weight, rows: usize, out: Act) -> Result<(), DeviceError> {
        self.embed_found_rows(table, rows, out)
    }

    fn find_best(&mut self, x: Act, rows: usize) -> Result<Answer, DeviceError> {
        self.ask_best(x, rows)
    }

    fn collect_best(
        &mut self,
        answer: Answer,
        allowed: &ColumnMask,
        out: &mut Vec<Option<u32>>,
    ) -> Result<bool, DeviceError> {
        self.await_best(answer, allowed, out)
    }

    fn counters(&self) -> Counters {
        Counters {
            launches: self.launcher.launches,
            waited: self.session.waited(),
        }
    }
}
