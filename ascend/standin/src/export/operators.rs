//! Operators: the first phase takes its arguments apart and prepares an executor, the second launches it.

use super::{answer, export};
use crate::caller::Caller;
use crate::entry::enter;
use crate::fail::Fail;
use crate::operators::{
    self, Arguments, Attention, Executor, Quantised, Rotation, Scatter, Wanted, WeightQuantised,
};
use crate::task::Id;
use crate::world::{Launch, World};
use ropeteam_acl_sys::types::*;
use std::ffi::{CStr, c_char, c_int, c_void};

/// Where a first phase puts its answers.
#[derive(Clone, Copy)]
struct Answers {
    workspace_size: *mut u64,
    executor: *mut *mut aclOpExecutor,
}

impl Answers {
    /// Prepares an operator and answers.
    fn prepare(
        self,
        world: &mut World,
        caller: &mut Caller,
        prepared: Result<Executor, Fail>,
    ) -> Result<(), Fail> {
        caller.prepared = None;
        let (id, workspace) = world.prepare(caller, prepared?)?;
        // SAFETY: the caller's places for a number and a handle.
        unsafe {
            answer(self.workspace_size, workspace)?;
            answer(self.executor, id as *mut aclOpExecutor)
        }
    }
}

/// Handles of tensors.
fn ids<const N: usize>(tensors: [*const aclTensor; N]) -> [Id; N] {
    tensors.map(|tensor| tensor as Id)
}

/// A string of the caller; null is none.
///
/// # Safety
/// `text` is null or a string.
unsafe fn string(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// Exports second phases, which are all alike.
macro_rules! launches {
    ($($name:ident)*) => { export! { aclnn: $(
        fn $name(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> i32 {
            let launch = Launch {
                operator: stringify!($name),
                workspace: workspace as u64,
                workspace_size,
                executor: executor as u64,
                stream: stream.0 as u64,
            };
            enter(stringify!($name), |world, caller| world.launch(caller, &launch))
        }
    )* } };
}

launches! {
    aclnnEmbedding aclnnRmsNorm aclnnAddRmsNorm aclnnInplaceAddRmsNorm aclnnMatmul aclnnInplaceAdd aclnnInplaceCopy aclnnCast
    aclnnArgMax aclnnMaxDim aclnnTopk aclnnSwiGlu aclnnIndexSelect aclnnRopeWithSinCosCache aclnnScatterPaKvCache aclnnFusedInferAttentionScoreV4
    aclnnDynamicQuant aclnnQuantMatmulV4 aclnnWeightQuantBatchMatmulV2
}

/// Exports first phases: the C parameters, and the call that prepares the operator.
macro_rules! preparations {
    ($( $operator:ident: fn $name:ident($($parameter:ident: $type:ty),* $(,)?) |$arguments:ident| $prepared:expr; )*) => {
        export! { aclnn: $(
            fn $name(
                $($parameter: $type,)*
                workspace_size: *mut u64,
                executor: *mut *mut aclOpExecutor,
            ) -> i32 {
                let answers = Answers { workspace_size, executor };
                enter(stringify!($name), |world, caller| {
                    let $arguments = Arguments::new(&world.objects, &world.settings, stringify!($operator));
                    let prepared = $prepared;
                    answers.prepare(world, caller, prepared)
                })
            }
        )* }
    };
}

type T = *const aclTensor;
type L = *const aclTensorList;
type I = *const aclIntArray;

preparations! {
    aclnnEmbedding: fn aclnnEmbeddingGetWorkspaceSize(weight: T, indices: T, out: T)
        |arguments| operators::embedding(arguments, ids([weight, indices, out]));
    aclnnRmsNorm: fn aclnnRmsNormGetWorkspaceSize(x: T, gamma: T, epsilon: f64, y: T, rstd: T)
        |arguments| operators::rms_norm(arguments, ids([x, gamma, y, rstd]), epsilon);
    aclnnAddRmsNorm: fn aclnnAddRmsNormGetWorkspaceSize(x1: T, x2: T, gamma: T, epsilon: f64, y: T, rstd: T, sum: T)
        |arguments| operators::add_rms_norm(arguments, ids([x1, x2, gamma, y, rstd, sum]), epsilon);
    aclnnInplaceAddRmsNorm: fn aclnnInplaceAddRmsNormGetWorkspaceSize(x1: T, x2: T, gamma: T, epsilon: f64, rstd: T)
        |arguments| operators::inplace_add_rms_norm(arguments, ids([x1, x2, gamma, rstd]), epsilon);
    aclnnMatmul: fn aclnnMatmulGetWorkspaceSize(x: T, mat2: T, out: T, cube_math_type: i8)
        |arguments| operators::matmul(arguments, ids([x, mat2, out]), cube_math_type);
    aclnnInplaceAdd: fn aclnnInplaceAddGetWorkspaceSize(x: T, other: T, alpha: *const aclScalar)
        |arguments| operators::inplace_add(arguments, ids([x, other]), alpha as Id);
    aclnnInplaceCopy: fn aclnnInplaceCopyGetWorkspaceSize(x: T, source: T)
        |arguments| operators::inplace_copy(arguments, ids([x, source]));
    aclnnCast: fn aclnnCastGetWorkspaceSize(x: T, data_type: aclDataType, out: T)
        |arguments| operators::cast(arguments, ids([x, out]), data_type);
    aclnnArgMax: fn aclnnArgMaxGetWorkspaceSize(x: T, dim: i64, keep_dim: bool, out: T)
        |arguments| operators::argmax(arguments, ids([x, out]), dim, keep_dim);
    aclnnMaxDim: fn aclnnMaxDimGetWorkspaceSize(x: T, dim: i64, keep_dim: bool, values: T, indices: T)
        |arguments| operators::max_dim(arguments, ids([x, values, indices]), dim, keep_dim);
    aclnnTopk: fn aclnnTopkGetWorkspaceSize(x: T, k: i64, dim: i64, largest: bool, sorted: bool, values: T, indices: T)
        |arguments| operators::topk(arguments, ids([x, values, indices]), Wanted { k, dim, largest, sorted });
    aclnnSwiGlu: fn aclnnSwiGluGetWorkspaceSize(x: T, dim: i64, out: T)
        |arguments| operators::swiglu(arguments, ids([x, out]), dim);
    aclnnIndexSelect: fn aclnnIndexSelectGetWorkspaceSize(x: T, dim: i64, index: T, out: T)
        |arguments| operators::index_select(arguments, ids([x, index, out]), dim);
    aclnnDynamicQuant: fn aclnnDynamicQuantGetWorkspaceSize(x: T, smooth_scales: T, y: T, scale: T)
        |arguments| operators::dynamic_quant(arguments, ids([x, y, scale]), smooth_scales as Id);
    aclnnQuantMatmulV4: fn aclnnQuantMatmulV4GetWorkspaceSize(
        x1: T, x2: T, scale: T, offset: T, pertoken_scale: T, bias: T, transpose_x1: bool, transpose_x2: bool, out: T,
    ) |arguments| operators::quant_matmul(arguments, Quantised {
        tensors: ids([x1, x2, scale, out]),
        offset: offset as Id,
        pertoken_scale: pertoken_scale as Id,
        bias: bias as Id,
        transpose_x1,
        transpose_x2,
    });
    aclnnWeightQuantBatchMatmulV2: fn aclnnWeightQuantBatchMatmulV2GetWorkspaceSize(
        x: T, weight: T, scale: T, offset: T, quant_scale: T, quant_offset: T, bias: T, group: c_int, y: T,
    ) |arguments| operators::weight_quant_matmul(arguments, WeightQuantised {
        tensors: ids([x, weight, scale, y]),
        offset: offset as Id,
        result: ids([quant_scale, quant_offset]),
        bias: bias as Id,
        group,
    });
    aclnnRopeWithSinCosCache: fn aclnnRopeWithSinCosCacheGetWorkspaceSize(
        positions: T, query: T, key: T, cache: T, mrope_section: I, head_size: i64, neox: bool, query_out: T, key_out: T,
    ) |arguments| operators::rotate(arguments, Rotation {
        tensors: ids([positions, query, key, cache, query_out, key_out]),
        sections: mrope_section as Id,
        head_size,
        neox,
    });
    aclnnScatterPaKvCache: fn aclnnScatterPaKvCacheGetWorkspaceSize(
        key: T, key_cache: T, slots: T, value: T, value_cache: T, compress_lens: T, compress_seq_offset: T, seq_lens: T,
        cache_mode: *mut c_char, scatter_mode: *mut c_char, strides: I, offsets: I,
    ) |arguments| operators::scatter(arguments, Scatter {
        tensors: ids([key, key_cache, slots, value, value_cache]),
        compressed: [compress_lens as Id, compress_seq_offset as Id, seq_lens as Id, strides as Id, offsets as Id],
        // SAFETY: null or strings, as documented.
        cache_mode: unsafe { string(cache_mode) },
        // SAFETY: as above.
        scatter_mode: unsafe { string(scatter_mode) },
    });
    aclnnFusedInferAttentionScoreV4: fn aclnnFusedInferAttentionScoreV4GetWorkspaceSize(
        query: T, key: L, value: L, pse_shift: T, mask: T, query_ends: I, kv_lens: I, deq_scale1: T, quant_scale1: T,
        deq_scale2: T, quant_scale2: T, quant_offset2: T, antiquant_scale: T, antiquant_offset: T, block_table: T,
        query_padding: T, kv_padding: T, key_antiquant_scale: T, key_antiquant_offset: T, value_antiquant_scale: T,
        value_antiquant_offset: T, key_shared_prefix: T, value_shared_prefix: T, shared_prefix_len: I, query_rope: T,
        key_rope: T, key_rope_antiquant_scale: T, dequant_scale_query: T, learnable_sink: T, heads: i64, scale: f64,
        _pre_tokens: i64, _next_tokens: i64, layout: *mut c_char, kv_heads: i64, sparse_mode: i64, _inner_precise: i64,
        block_size: i64, antiquant_mode: i64, softmax_lse_flag: bool, key_antiquant_mode: i64, value_antiquant_mode: i64,
        query_quant_mode: i64, out: T, _softmax_lse: T,
    ) |arguments| operators::attention(arguments, Attention {
        query: query as Id,
        key: key as Id,
        value: value as Id,
        mask: mask as Id,
        query_ends: query_ends as Id,
        kv_lens: kv_lens as Id,
        block_table: block_table as Id,
        others: ids([
            pse_shift, deq_scale1, quant_scale1, deq_scale2, quant_scale2, quant_offset2, antiquant_scale, antiquant_offset,
            query_padding, kv_padding, key_antiquant_scale, key_antiquant_offset, value_antiquant_scale,
            value_antiquant_offset, key_shared_prefix, value_shared_prefix, shared_prefix_len.cast(), query_rope, key_rope,
            key_rope_antiquant_scale, dequant_scale_query, learnable_sink,
        ]).to_vec(),
        modes: vec![
            antiquant_mode, i64::from(softmax_lse_flag), key_antiquant_mode, value_antiquant_mode, query_quant_mode,
        ],
        heads,
        kv_heads,
        scale,
        // SAFETY: null or a string, as documented.
        layout: unsafe { string(layout) }.unwrap_or_default(),
        sparse_mode,
        block_size,
        out: out as Id,
    });
}
