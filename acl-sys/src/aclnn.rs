//! The operators in use (aclnnop/*.h): `GetWorkspaceSize` checks the arguments and says how much workspace a launch takes, the
//! second call launches. In `libopapi.so` of CANN 8.x, in `libopapi_*.so` of 9.x, or in `libcust_opapi.so` of installed operator
//! packages.

use crate::types::*;
use std::ffi::{c_char, c_int, c_void};

declare_functions! {
    /// The operators. Tensors are on the device; where null is allowed is each operator's own rule.
    Operators {
        /// Rows of a table by index.
        fn aclnnEmbeddingGetWorkspaceSize(
            weight: *const aclTensor,
            indices: *const aclTensor,
            out: *const aclTensor,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnEmbedding(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// `y = x / rms(x) * gamma`; `rstd` is `1 / rms(x)` in f32.
        fn aclnnRmsNormGetWorkspaceSize(
            x: *const aclTensor,
            gamma: *const aclTensor,
            epsilon: f64,
            y: *const aclTensor,
            rstd: *const aclTensor,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnRmsNorm(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// `sum = x1 + x2`, `y = rms_norm(sum)`.
        fn aclnnAddRmsNormGetWorkspaceSize(
            x1: *const aclTensor,
            x2: *const aclTensor,
            gamma: *const aclTensor,
            epsilon: f64,
            y: *const aclTensor,
            rstd: *const aclTensor,
            sum: *const aclTensor,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnAddRmsNorm(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// `x2 = x1 + x2`, then `x1 = rms_norm(x2)`, both in place.
        fn aclnnInplaceAddRmsNormGetWorkspaceSize(
            x1: *const aclTensor,
            x2: *const aclTensor,
            gamma: *const aclTensor,
            epsilon: f64,
            rstd: *const aclTensor,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnInplaceAddRmsNorm(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// `out = x · mat2`; `cube_math_type` 0 keeps the precision.
        fn aclnnMatmulGetWorkspaceSize(
            x: *const aclTensor,
            mat2: *const aclTensor,
            out: *const aclTensor,
            cube_math_type: i8,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnMatmul(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// `x += alpha * other`, broadcasting `other`.
        fn aclnnInplaceAddGetWorkspaceSize(
            x: *const aclTensor,
            other: *const aclTensor,
            alpha: *const aclScalar,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnInplaceAdd(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// Converts elements to `data_type`, which is also `out`'s.
        fn aclnnCastGetWorkspaceSize(
            x: *const aclTensor,
            data_type: aclDataType,
            out: *const aclTensor,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnCast(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// `x = source`, element by element; either may be a view with gaps.
        fn aclnnInplaceCopyGetWorkspaceSize(
            x: *const aclTensor,
            source: *const aclTensor,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnInplaceCopy(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// Index of the highest element along `dim`.
        fn aclnnArgMaxGetWorkspaceSize(
            x: *const aclTensor,
            dim: i64,
            keep_dim: bool,
            out: *const aclTensor,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnArgMax(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// Highest element along `dim` and its index.
        fn aclnnMaxDimGetWorkspaceSize(
            x: *const aclTensor,
            dim: i64,
            keep_dim: bool,
            values: *const aclTensor,
            indices: *const aclTensor,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnMaxDim(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// The `k` highest elements along `dim`; `sorted` must be true.
        fn aclnnTopkGetWorkspaceSize(
            x: *const aclTensor,
            k: i64,
            dim: i64,
            largest: bool,
            sorted: bool,
            values: *const aclTensor,
            indices: *const aclTensor,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnTopk(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// `out = silu(first half) * second half` along `dim`.
        fn aclnnSwiGluGetWorkspaceSize(
            x: *const aclTensor,
            dim: i64,
            out: *const aclTensor,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnSwiGlu(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// Slices of `x` along `dim` by index.
        fn aclnnIndexSelectGetWorkspaceSize(
            x: *const aclTensor,
            dim: i64,
            index: *const aclTensor,
            out: *const aclTensor,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnIndexSelect(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// Rotates queries and keys by position; `cache` rows are `[cos | sin]`.
        fn aclnnRopeWithSinCosCacheGetWorkspaceSize(
            positions: *const aclTensor,
            query: *const aclTensor,
            key: *const aclTensor,
            cache: *const aclTensor,
            mrope_section: *const aclIntArray,
            head_size: i64,
            neox: bool,
            query_out: *const aclTensor,
            key_out: *const aclTensor,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnRopeWithSinCosCache(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// `scale = max |x| / 127` per row, `y = round(x / scale)` in int8.
        fn aclnnDynamicQuantGetWorkspaceSize(
            x: *const aclTensor,
            smooth_scales: *const aclTensor,
            y: *const aclTensor,
            scale: *const aclTensor,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnDynamicQuant(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// `out = (x1 · x2 + bias) * scale * pertoken_scale` of int8 products.
        fn aclnnQuantMatmulV4GetWorkspaceSize(
            x1: *const aclTensor,
            x2: *const aclTensor,
            scale: *const aclTensor,
            offset: *const aclTensor,
            pertoken_scale: *const aclTensor,
            bias: *const aclTensor,
            transpose_x1: bool,
            transpose_x2: bool,
            out: *const aclTensor,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnQuantMatmulV4(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// `y = x · ((weight + antiquant_offset) * antiquant_scale) + bias`: integer weights `[k, n]`, factors per column or per group of rows.
        fn aclnnWeightQuantBatchMatmulV2GetWorkspaceSize(
            x: *const aclTensor,
            weight: *const aclTensor,
            antiquant_scale: *const aclTensor,
            antiquant_offset: *const aclTensor,
            quant_scale: *const aclTensor,
            quant_offset: *const aclTensor,
            bias: *const aclTensor,
            antiquant_group_size: c_int,
            y: *const aclTensor,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnWeightQuantBatchMatmulV2(
            workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream,
        ) -> aclnnStatus;
        /// Writes keys and values to the slots of a paged cache.
        fn aclnnScatterPaKvCacheGetWorkspaceSize(
            key: *const aclTensor,
            key_cache: *const aclTensor,
            slots: *const aclTensor,
            value: *const aclTensor,
            value_cache: *const aclTensor,
            compress_lens: *const aclTensor,
            compress_seq_offset: *const aclTensor,
            seq_lens: *const aclTensor,
            cache_mode: *mut c_char,
            scatter_mode: *mut c_char,
            strides: *const aclIntArray,
            offsets: *const aclIntArray,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnScatterPaKvCache(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
        /// Attention over a paged cache.
        fn aclnnFusedInferAttentionScoreV4GetWorkspaceSize(
            query: *const aclTensor,
            key: *const aclTensorList,
            value: *const aclTensorList,
            pse_shift: *const aclTensor,
            mask: *const aclTensor,
            query_ends: *const aclIntArray,
            kv_lens: *const aclIntArray,
            deq_scale1: *const aclTensor,
            quant_scale1: *const aclTensor,
            deq_scale2: *const aclTensor,
            quant_scale2: *const aclTensor,
            quant_offset2: *const aclTensor,
            antiquant_scale: *const aclTensor,
            antiquant_offset: *const aclTensor,
            block_table: *const aclTensor,
            query_padding: *const aclTensor,
            kv_padding: *const aclTensor,
            key_antiquant_scale: *const aclTensor,
            key_antiquant_offset: *const aclTensor,
            value_antiquant_scale: *const aclTensor,
            value_antiquant_offset: *const aclTensor,
            key_shared_prefix: *const aclTensor,
            value_shared_prefix: *const aclTensor,
            shared_prefix_len: *const aclIntArray,
            query_rope: *const aclTensor,
            key_rope: *const aclTensor,
            key_rope_antiquant_scale: *const aclTensor,
            dequant_scale_query: *const aclTensor,
            learnable_sink: *const aclTensor,
            heads: i64,
            scale: f64,
            pre_tokens: i64,
            next_tokens: i64,
            layout: *mut c_char,
            kv_heads: i64,
            sparse_mode: i64,
            inner_precise: i64,
            block_size: i64,
            antiquant_mode: i64,
            softmax_lse_flag: bool,
            key_antiquant_mode: i64,
            value_antiquant_mode: i64,
            query_quant_mode: i64,
            out: *const aclTensor,
            softmax_lse: *const aclTensor,
            workspace_size: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus;
        /// Launches it.
        fn aclnnFusedInferAttentionScoreV4(workspace: *mut c_void, workspace_size: u64, executor: *mut aclOpExecutor, stream: aclrtStream) -> aclnnStatus;
    }
}
