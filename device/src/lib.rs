//! The narrow waist between models and hardware: memory, and the operators of a decoder.
//! A model's forward pass is written once over `dyn Device`; a device is one implementation of this trait and must pass
//! the conformance suite.

mod ahead;
pub mod checks;
pub mod conformance;
pub mod cpu;
mod error;
mod highest;
mod tensor;

pub use ahead::{Answer, Counters, Ids};
pub use cpu::{CpuDevice, CpuOptions};
pub use error::{Damage, DeviceError};
pub use highest::{highest_columns, lowest_tied};
pub use tensor::{Dtype, TensorView, dequant_row};

use serde::{Deserialize, Serialize};

/// A packed weight held by the device: a matrix, an embedding table or a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight(pub u32);

/// A buffer of activations held by the device, `[rows, cols]`, row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act(pub u32);

/// What a device holds weights in. Activations between operators are `DeviceInfo::activations`, sums of products f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Precision {
    /// f32, whatever the file holds: the reference.
    F32,
    /// bf16 (f16 where activations are), whatever the file holds; products of such.
    Bf16,
    /// As the file holds them: floats in bf16, quantised weights packed in their own format, multiplied by int8 activations.
    Stored,
    /// int8 with a factor per output; activations in int8.
    Int8,
    /// int4 in groups of 32 inputs with a scale and a minimum; activations in int8.
    Int4,
}

/// What a device holds keys and values in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum KvPrecision {
    /// f32 beside weights in f32; beside all others bf16, or f16 where activations are.
    #[default]
    ByWeights,
    /// int8: a scale for every 32 elements of a key, and one for a value.
    Int8,
}

/// Numbers between operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Float {
    /// 32 bits.
    F32,
    /// The upper half of 32 bits.
    Bf16,
    /// IEEE half precision.
    F16,
}

/// Which caches and attentions a device computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionLimits {
    /// Tokens per block are a multiple of this.
    pub block_size_step: usize,
    /// Elements per head are a multiple of this.
    pub head_dim_step: usize,
    /// Elements per head are at most so many.
    pub head_dim_max: usize,
    /// Whether rows may see less than all positions before them.
    pub windows: bool,
}

/// What a device is.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// "cpu", "ascend", ...
    pub kind: &'static str,
    /// Model of the hardware, and what the kernels use of it ("AVX-512 BF16").
    pub name: String,
    /// What it holds weights in.
    pub precision: Precision,
    /// What it holds keys and values in.
    pub kv: KvPrecision,
    /// What it holds activations in.
    pub activations: Float,
    /// Which attentions it computes.
    pub attention: AttentionLimits,
    /// Memory that a KV cache could still take, in bytes.
    pub free_bytes: u64,
}

/// Shape of the paged KV cache, the same for all layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Decoder layers.
    pub layers: usize,
    /// Blocks in the pool.
    pub blocks: usize,
    /// Tokens per block.
    pub block_size: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
}

/// How positions turn into rotations. `inv_freq[i]` turns the i-th pair; `rotary_dim = 2 * inv_freq.len()` leading
/// elements of a head are rotated, the others are passed through.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Radians per position, one per pair.
    pub inv_freq: Vec<f32>,
    /// Factor on cos and sin (yarn's attention factor); 1 otherwise.
    pub scale: f32,
    /// Pairs are (2i, 2i + 1) instead of (i, i + rotary_dim / 2).
    pub interleaved: bool,
}

/// Which rows of a step belong to which sequence. Rows of one sequence are consecutive positions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// Position of each row in its sequence; `positions.len()` rows in all.
    pub positions: Vec<u32>,
    /// Per row: the slot `block * block_size + offset` that its K and V go to.
    pub slots: Vec<u32>,
    /// One per sequence.
    pub segments: Vec<Segment>,
}

/// The rows of one sequence in a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// Its first row.
    pub first_row: usize,
    /// How many rows.
    pub rows: usize,
    /// Its block table, covering positions up to that of its last row.
    pub blocks: Vec<u32>,
}

/// Shape of one attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Query heads; a multiple of `kv_heads`.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Factor on the scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// A row at position p sees positions `p - window + 1 ..= p`; `None`: all up to p.
    pub window: Option<usize>,
}

/// Norms of single heads before they are rotated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadNorms {
    /// Of query heads.
    pub query: Weight,
    /// Of key heads.
    pub key: Weight,
    /// Added to the mean square.
    pub eps: f32,
}

/// How a result joins the residual stream, and how the sum is normed for what comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Join {
    /// Added to the stream.
    pub result: Act,
    /// The stream; different from `result`.
    pub residual: Act,
    /// The norm's weight.
    pub norm: Weight,
    /// Added to the mean square.
    pub eps: f32,
}

/// A device: memory and operators.
///
/// Operators work on the leading `rows` rows of their buffers, run in call order and are done, as far as the caller can
/// tell, when a `read_*` returns. `out` never is one of the inputs unless the method says so. Every operator is
/// row-invariant: a row's result depends on that row (and its own sequence's KV) alone.
///
/// # Errors
/// Every method fails with a `DeviceError` when the device does; `Shape` errors are the caller's mistake.
pub trait Device {
    /// What it is.
    fn info(&self) -> DeviceInfo;

    /// Uploads a matrix for `linear`. `parts` are `[out_i, in]` and are stacked along out; `bias` is stacked alike.
    fn load_linear(
        &mut self,
        parts: &[TensorView<'_>],
        bias: &[TensorView<'_>],
    ) -> Result<Weight, DeviceError>;

    /// Uploads an embedding table `[vocab, dim]`. With `head`, the same weight also serves `linear` (the head, tied or not); it is
    /// then held in int8 where other weights are rounded to int4.
    fn load_embedding(&mut self, table: &TensorView<'_>, head: bool)
    -> Result<Weight, DeviceError>;

    /// Uploads a vector (a norm's weight) in f32.
    fn load_vector(&mut self, vector: &TensorView<'_>) -> Result<Weight, DeviceError>;

    /// Allocates activations for at most `rows` rows of `cols` columns.
    fn alloc(&mut self, rows: usize, cols: usize) -> Result<Act, DeviceError>;

    /// Bytes that one block of such a cache takes (all layers, K and V).
    fn kv_block_bytes(&self, shape: &KvShape) -> u64;

    /// Has later KV caches be in `file`, memory that outlives this process, with what is there already. False where the device's memory
    /// is elsewhere.
    fn keep_kv_in(&mut self, file: std::fs::File) -> bool {
        drop(file);
        false
    }

    /// Allocates the KV cache; replaces an earlier one.
    fn alloc_kv(&mut self, shape: KvShape) -> Result<(), DeviceError>;

    /// Rows of the table: `out[r] = table[ids[r]]`. Fails with `Shape` on an id outside the table.
    fn embed(&mut self, table: Weight, ids: &[u32], out: Act) -> Result<(), DeviceError>;

    /// `out[r] = x[r] / rms(x[r]) * weight`, `rms(v) = sqrt(mean(v^2) + eps)`.
    fn rms_norm(
        &mut self,
        x: Act,
        weight: Weight,
        eps: f32,
        rows: usize,
        out: Act,
    ) -> Result<(), DeviceError>;

    /// `residual += x`, then `out = rms_norm(residual)`. `x` may be `out`.
    fn add_rms_norm(
        &mut self,
        x: Act,
        residual: Act,
        weight: Weight,
        eps: f32,
        rows: usize,
        out: Act,
    ) -> Result<(), DeviceError>;

    /// `out = x · weightᵀ + bias`: x `[rows, in]`, out `[rows, out]`.
    fn linear(&mut self, x: Act, weight: Weight, rows: usize, out: Act) -> Result<(), DeviceError>;

    /// Norms single heads in place: the `heads` heads that start at column `first_col` of `x`, each
    /// `weight.len()` wide.
    fn head_norm(
        &mut self,
        x: Act,
        first_col: usize,
        heads: usize,
        weight: Weight,
        eps: f32,
        rows: usize,
    ) -> Result<(), DeviceError>;

    /// Rotates q and k and writes k and v to the cache of `layer`.
    /// `qkv` rows are `[heads * head_dim | kv_heads * head_dim | kv_heads * head_dim]`; afterwards they are good for `attention` over
    /// the same rows and layer only.
    fn rope_and_cache(
        &mut self,
        qkv: Act,
        layer: usize,
        shape: &AttentionShape,
        rope: &Rope,
        rows: &Rows,
    ) -> Result<(), DeviceError>;

    /// `head_norm` of query and key heads, then `rope_and_cache`.
    fn norm_rope_and_cache(
        &mut self,
        qkv: Act,
        norms: HeadNorms,
        layer: usize,
        shape: &AttentionShape,
        rope: &Rope,
        rows: &Rows,
    ) -> Result<(), DeviceError> {
        let HeadNorms { query, key, eps } = norms;
        let (count, keys) = (rows.positions.len(), shape.heads * shape.head_dim);
        self.head_norm(qkv, 0, shape.heads, query, eps, count)?;
        self.head_norm(qkv, keys, shape.kv_heads, key, eps, count)?;
        self.rope_and_cache(qkv, layer, shape, rope, rows)
    }

    /// Causal attention of the q part of `qkv` over the cache of `layer`; out is `[rows, heads * head_dim]`.
    fn attention(
        &mut self,
        qkv: Act,
        layer: usize,
        shape: &AttentionShape,
        rows: &Rows,
        out: Act,
    ) -> Result<(), DeviceError>;

    /// `out = silu(gate) * up`: x rows are `[gate | up]`, out has half its columns.
    fn silu_mul(&mut self, x: Act, rows: usize, out: Act) -> Result<(), DeviceError>;

    /// `silu_mul`, then `linear`, with the same bits: x `[rows, 2 * in]`, rows `[gate | up]`, out `[rows, out]`.
    fn gated_linear(
        &mut self,
        x: Act,
        weight: Weight,
        rows: usize,
        out: Act,
    ) -> Result<(), DeviceError>;

    /// `residual += result`, then `out = rms_norm(residual) · weightᵀ + bias`: `add_rms_norm` and `linear`, with the same bits. What
    /// `result` holds afterwards is not said.
    fn joined_linear(
        &mut self,
        join: Join,
        weight: Weight,
        rows: usize,
        out: Act,
    ) -> Result<(), DeviceError> {
        let Join {
            result,
            residual,
            norm,
            eps,
        } = join;
        self.add_rms_norm(result, residual, norm, eps, rows, result)?;
        self.linear(result, weight, rows, out)
    }

    /// `x += y` on the leading `rows` rows.
    fn add(&mut self, x: Act, y: Act, rows: usize) -> Result<(), DeviceError>;

    /// `out[i] = x[rows[i]]`.
    fn take_rows(&mut self, x: Act, rows: &[u32], out: Act) -> Result<(), DeviceError>;

    /// Appends `rows` rows of `x` from `first` on to `out`, f32, row-major.
    fn read_rows(
        &mut self,
        x: Act,
        first: usize,
        rows: usize,
        out: &mut Vec<f32>,
    ) -> Result<(), DeviceError>;

    /// Per row the column with the highest value that `allowed` permits (lowest among equals), `None` where all are NaN or
    /// minus infinity; appends to `out`.
    fn read_argmax(
        &mut self,
        x: Act,
        first: usize,
        rows: usize,
        allowed: &ColumnMask,
        out: &mut Vec<Option<u32>>,
    ) -> Result<(), DeviceError>;

    /// Most columns of a row that `read_highest` looks for; 0: it is not offered.
    fn highest_max(&self) -> usize {
        0
    }

    /// `highest_columns` of each row of `x` from `first` on, `counts[i]` of the i-th; appends a list for each row to `out`.
    fn read_highest(
        &mut self,
        x: Act,
        first: usize,
        counts: &[usize],
        allowed: &ColumnMask,
        out: &mut Vec<Vec<(u32, f32)>>,
    ) -> Result<(), DeviceError> {
        let _ = (x, first, counts, allowed, out);
        Err(DeviceError::Unavailable("read_highest".to_owned()))
    }

    /// So many steps can be enqueued behind one whose best columns were not collected yet; 0: `find_best`, `collect_best` and
    /// `embed_found` are not offered.
    fn steps_ahead(&self) -> usize {
        0
    }

    /// A step of these rows begins. `alike`: its operators are the same, with the same buffers, as in every other step of as many
    /// rows that was announced so. Whether the device knows them by heart: none of them up to `end_step` is called then.
    fn begin_step(&mut self, ids: &Ids<'_>, rows: &Rows, alike: bool) -> Result<bool, DeviceError> {
        let _ = (ids, rows, alike);
        Ok(false)
    }

    /// All operators of the step were called. Whether they are enqueued; if not, the step begins anew.
    fn end_step(&mut self) -> Result<bool, DeviceError> {
        Ok(true)
    }

    /// `embed` of the columns that the last `find_best` finds, one for each of its rows. All of them are in the table.
    fn embed_found(&mut self, table: Weight, rows: usize, out: Act) -> Result<(), DeviceError> {
        let _ = (table, rows, out);
        Err(DeviceError::Unavailable("embed_found".to_owned()))
    }

    /// Begins to look for the best columns of the leading rows.
    fn find_best(&mut self, x: Act, rows: usize) -> Result<Answer, DeviceError> {
        let _ = (x, rows);
        Err(DeviceError::Unavailable("find_best".to_owned()))
    }

    /// Waits for what `find_best` found, and appends it as `read_argmax` does. False where only the rows themselves can tell: then
    /// their step is to be computed again, for `read_argmax`.
    fn collect_best(
        &mut self,
        answer: Answer,
        allowed: &ColumnMask,
        out: &mut Vec<Option<u32>>,
    ) -> Result<bool, DeviceError> {
        let _ = (answer, allowed, out);
        Err(DeviceError::Unavailable("collect_best".to_owned()))
    }

    /// What the device cost the host so far.
    fn counters(&self) -> Counters {
        Counters::default()
    }

    /// Host threads that work for the device, the caller's included; they are idle between two operators.
    fn host_threads(&self) -> usize {
        1
    }

    /// Does tasks `0 .. tasks` of the caller on those threads, each once, in any order; returns when all are done.
    ///
    /// # Panics
    /// When a task did.
    fn run_on_host(&mut self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(task);
    }
}

/// Which columns of a logits row have a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnMask {
    /// Columns from here on have none.
    pub limit: usize,
    /// Columns below `limit` without a token, ascending.
    pub holes: Vec<u32>,
}

impl ColumnMask {
    /// Whether a column has a token.
    pub fn allows(&self, column: u32) -> bool {
        (column as usize) < self.limit && self.holes.binary_search(&column).is_err()
    }
}
