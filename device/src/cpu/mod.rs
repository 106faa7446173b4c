//! The CPU device: buffers, weights and cache in main memory, operators from `ropeteam_kernels`.
//! Each method checks what the caller passed and picks the kernel; arithmetic is not here.

mod buffers;
mod heads;
mod memory;
mod rotation;
mod weights;

use crate::checks::{ensure, shape_error};
use crate::{
    Act, AttentionLimits, AttentionShape, ColumnMask, Device, DeviceError, DeviceInfo, Float, Join,
    KvPrecision, KvShape, Precision, Rope, Rows, TensorView, Weight,
};
use buffers::Buffers;
use heads::kv_shape;
pub use ropeteam_kernels::Isa;
use ropeteam_kernels::{self as kernels, KvCache, Machine, PreparedRows, attention, kv};
use rotation::Rotations;
use std::fs::File;
use weights::Weights;

/// How a CPU device works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// What weights are held in.
    pub precision: Precision,
    /// What keys and values are held in.
    pub kv: KvPrecision,
    /// Threads that compute, the calling one included; at least one.
    pub threads: usize,
}

/// A CPU with its main memory.
pub struct CpuDevice {
    precision: Precision,
    kv_precision: KvPrecision,
    kv_format: kv::Format,
    machine: Machine,
    weights: Weights,
    buffers: Buffers,
    kv: Option<KvCache>,
    /// Where the cache is kept.
    kv_file: Option<File>,
    rotations: Rotations,
    prepared: PreparedRows,
    tasks: attention::Tasks,
}

impl CpuDevice {
    /// A device that uses the best instructions of this machine.
    pub fn new(options: CpuOptions) -> Self {
        Self::with_isa(options, Isa::best())
    }

    /// A device that uses the instructions of `isa` only.
    pub fn with_isa(options: CpuOptions, isa: Isa) -> Self {
        Self {
            precision: options.precision,
            kv_precision: options.kv,
            kv_format: match (options.kv, options.precision) {
                (KvPrecision::Int8, _) => kv::Format::Int8,
                (KvPrecision::ByWeights, Precision::F32) => kv::Format::F32,
                (KvPrecision::ByWeights, _) => kv::Format::Bf16,
            },
            machine: Machine::new(isa, options.threads),
            weights: Weights::default(),
            buffers: Buffers::default(),
            kv: None,
            kv_file: None,
            rotations: Rotations::default(),
            prepared: PreparedRows::default(),
            tasks: attention::Tasks::default(),
        }
    }
}

impl Device for CpuDevice {
    fn info(&self) -> DeviceInfo {
        let threads = self.machine.threads();
        DeviceInfo {
            kind: "cpu",
            name: format!(
                "{} ({}, {threads} threads)",
                memory::cpu_name(),
                self.machine.isa().name()
            ),
            precision: self.precision,
            kv: self.kv_precision,
            activations: Float::F32,
            attention: AttentionLimits {
                block_size_step: 1,
                head_dim_step: 1,
                head_dim_max: attention::MAX_HEAD_DIM,
                windows: true,
            },
            free_bytes: memory::free_bytes(),
        }
    }

    fn host_threads(&self) -> usize {
        self.machine.threads()
    }

    fn run_on_host(&mut self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.machine.run(tasks, task);
    }

    fn load_linear(
        &mut self,
        parts: &[TensorView<'_>],
        bias: &[TensorView<'_>],
    ) -> Result<Weight, DeviceError> {
        self.weights
            .load_linear(&mut self.machine, self.precision, parts, bias)
    }

    fn load_embedding(
        &mut self,
        table: &TensorView<'_>,
        head: bool,
    ) -> Result<Weight, DeviceError> {
        self.weights
            .load_embedding(&mut self.machine, self.precision, table, head)
    }

    fn load_vector(&mut self, vector: &TensorView<'_>) -> Result<Weight, DeviceError> {
        self.weights.load_vector(vector)
    }

    fn alloc(&mut self, rows: usize, cols: usize) -> Result<Act, DeviceError> {
        self.buffers.alloc(rows, cols)
    }

    fn kv_block_bytes(&self, shape: &KvShape) -> u64 {
        kv_shape(shape).block_bytes(self.kv_format)
    }

    fn keep_kv_in(&mut self, file: File) -> bool {
        self.kv_file = Some(file);
        true
    }

    fn alloc_kv(&mut self, shape: KvShape) -> Result<(), DeviceError> {
        self.replace_cache(shape)
    }

    fn embed(&mut self, table: Weight, ids: &[u32], out: Act) -> Result<(), DeviceError> {
        let table = self.weights.table("embed", table)?;
        let out = self
            .buffers
            .rows_mut("embed", out, ids.len(), table.inputs())?;
        let vocab = table.outputs();
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocab) {
            return Err(shape_error(
                "embed",
                format!("id {id} in a table of {vocab} rows"),
            ));
        }
        kernels::embed(&mut self.machine, table, ids, out);
        Ok(())
    }

    fn rms_norm(
        &mut self,
        x: Act,
        weight: Weight,
        eps: f32,
        rows: usize,
        out: Act,
    ) -> Result<(), DeviceError> {
        let weight = self.weights.vector("rms_norm", weight)?;
        let [x, out] = self
            .buffers
            .pair("rms_norm", [x, out], rows, [weight.len(); 2])?;
        kernels::rms_norm(&mut self.machine, x, weight, eps, out);
        Ok(())
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
        let weight = self.weights.vector(op, weight)?;
        if x != out {
            let [x, out] = self.buffers.pair(op, [x, out], rows, [weight.len(); 2])?;
            out.copy_from_slice(x);
        }
        let [out, residual] = self
            .buffers
            .pair(op, [out, residual], rows, [weight.len(); 2])?;
        kernels::add_rms_norm(&mut self.machine, out, residual, weight, eps);
        Ok(())
    }

    fn linear(&mut self, x: Act, weight: Weight, rows: usize, out: Act) -> Result<(), DeviceError> {
        let weight = self.weights.linear("linear", weight)?;
        let cols = [weight.inputs(), weight.outputs()];
        let [x, out] = self.buffers.pair("linear", [x, out], rows, cols)?;
        kernels::linear(&mut self.machine, &mut self.prepared, x, weight, out);
        Ok(())
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
        let weight = self.weights.vector("head_norm", weight)?;
        let cols = self.buffers.cols("head_norm", x)?;
        let end = heads
            .checked_mul(weight.len())
            .and_then(|width| width.checked_add(first_col));
        ensure(end.is_some_and(|end| end <= cols), "head_norm", || {
            format!(
                "{heads} heads of {} from column {first_col} in rows of {cols}",
                weight.len()
            )
        })?;
        let x = self.buffers.rows_mut("head_norm", x, rows, cols)?;
        let at = kernels::Heads {
            cols,
            first_col,
            heads,
        };
        kernels::head_norm(&mut self.machine, x, at, weight, eps);
        Ok(())
    }

    fn rope_and_cache(
        &mut self,
        qkv: Act,
        layer: usize,
        shape: &AttentionShape,
        rope: &Rope,
        rows: &Rows,
    ) -> Result<(), DeviceError> {
        self.rotate_and_store(qkv, layer, shape, rope, rows)
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
        let cols = self.buffers.cols("silu_mul", out)?;
        let [x, out] = self
            .buffers
            .pair("silu_mul", [x, out], rows, [2 * cols, cols])?;
        kernels::silu_mul(&mut self.machine, x, cols, out);
        Ok(())
    }

    fn gated_linear(
        &mut self,
        x: Act,
        weight: Weight,
        rows: usize,
        out: Act,
    ) -> Result<(), DeviceError> {
        let op = "gated_linear";
        let weight = self.weights.linear(op, weight)?;
        let inputs = weight.inputs();
        let cols = [2 * inputs, weight.outputs()];
        let [x, out] = self.buffers.pair(op, [x, out], rows, cols)?;
        let (machine, prepared) = (&mut self.machine, &mut self.prepared);
        kernels::prepare_silu_mul(machine, x, inputs, weight.row_form(), prepared);
        kernels::linear_prepared(machine, prepared, weight, out);
        Ok(())
    }

    fn joined_linear(
        &mut self,
        join: Join,
        weight: Weight,
        rows: usize,
        out: Act,
    ) -> Result<(), DeviceError> {
        let op = "joined_linear";
        let norm = self.weights.vector(op, join.norm)?;
        let weight = self.weights.linear(op, weight)?;
        ensure(norm.len() == weight.inputs(), op, || {
            format!("a norm of {} for {} inputs", norm.len(), weight.inputs())
        })?;
        let form = weight.row_form();
        let acts = [join.result, join.residual];
        let [x, residual] = self.buffers.pair(op, acts, rows, [norm.len(); 2])?;
        let before = kernels::NormBefore {
            weight: norm,
            eps: join.eps,
            form,
        };
        let (machine, prepared) = (&mut self.machine, &mut self.prepared);
        kernels::prepare_add_norm(machine, x, residual, before, prepared);
        let out = self.buffers.rows_mut(op, out, rows, weight.outputs())?;
        kernels::linear_prepared(machine, prepared, weight, out);
        Ok(())
    }

    fn add(&mut self, x: Act, y: Act, rows: usize) -> Result<(), DeviceError> {
        let cols = self.buffers.cols("add", x)?;
        let [x, y] = self.buffers.pair("add", [x, y], rows, [cols; 2])?;
        kernels::add(&mut self.machine, x, y);
        Ok(())
    }

    fn take_rows(&mut self, x: Act, rows: &[u32], out: Act) -> Result<(), DeviceError> {
        self.buffers.take_rows(x, rows, out)
    }

    fn read_rows(
        &mut self,
        x: Act,
        first: usize,
        rows: usize,
        out: &mut Vec<f32>,
    ) -> Result<(), DeviceError> {
        out.extend_from_slice(self.buffers.range("read_rows", x, first, rows)?);
        Ok(())
    }

    fn read_argmax(
        &mut self,
        x: Act,
        first: usize,
        rows: usize,
        allowed: &ColumnMask,
        out: &mut Vec<Option<u32>>,
    ) -> Result<(), DeviceError> {
        let op = "read_argmax";
        let cols = self.buffers.cols(op, x)?;
        ensure(allowed.limit <= cols, op, || {
            format!("limit {} in rows of {cols}", allowed.limit)
        })?;
        let candidates = kernels::Candidates {
            x: self.buffers.range(op, x, first, rows)?,
            cols,
            limit: allowed.limit,
            holes: &allowed.holes,
        };
        let start = out.len();
        out.resize(start + rows, None);
        kernels::argmax(&mut self.machine, candidates, &mut out[start..]);
        Ok(())
    }
}
