//! How much memory a model takes on a device, worked out before anything is loaded.

use crate::spec::DecoderSpec;
use ropeteam_device::{Dtype, KvShape, Precision};

impl DecoderSpec {
    /// Bytes of all weights on a device that holds them in `precision`. `stored` says what the files hold
    /// (`Checkpoint::elements`). Norms and biases, which stay in f32, are a rounding error of it.
    pub fn weight_bytes(&self, precision: Precision, stored: &[(Dtype, u64)]) -> u64 {
        let tables = (self.vocab * self.hidden) as u64 * if self.tied_head { 1 } else { 2 };
        match precision {
            Precision::F32 => self.parameters() * 4,
            Precision::Bf16 => self.parameters() * 2,
            Precision::Int8 => self.parameters() * INT8 / 100,
            // Embedding and head lose too much in four bits.
            Precision::Int4 => ((self.parameters() - tables) * INT4 + tables * INT8) / 100,
            Precision::Stored => stored
                .iter()
                .map(|&(dtype, numbers)| numbers * packed_percent(dtype) / 100)
                .sum(),
        }
    }

    /// Bytes of the activation buffers (f32) for steps of at most `step_tokens` tokens and `logits_rows` logits rows.
    pub fn activation_bytes(&self, step_tokens: usize, logits_rows: usize) -> u64 {
        let stream = 2 * self.hidden
            + if self.has_post_norms() {
                self.hidden
            } else {
                0
            };
        let attention = 2 * self.query_dim() + 2 * self.kv_dim();
        let per_token = stream + attention + 3 * self.intermediate;
        let per_logits_row = self.hidden + self.query_dim() + self.vocab;
        (step_tokens * per_token + logits_rows * per_logits_row) as u64 * 4
    }

    /// Shape of a KV cache of so many blocks.
    pub fn kv_shape(&self, blocks: usize, block_size: usize) -> KvShape {
        KvShape {
            layers: self.layers(),
            blocks,
            block_size,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
        }
    }
}

/// Bytes of a hundred weights, factors included: int8 with one per output, with one per 32 inputs, six bits, four bits.
const INT8: u64 = 101;
const INT8_BLOCKS: u64 = 107;
const INT6: u64 = 88;
const INT4: u64 = 63;

/// Bytes that a hundred numbers take on a device that keeps the file's format.
fn packed_percent(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::F32 | Dtype::F16 | Dtype::BF16 => 200,
        Dtype::I8 => INT8,
        Dtype::Q8_0 => INT8_BLOCKS,
        Dtype::Q6_K => INT6,
        Dtype::Q4_0 | Dtype::Q4_1 | Dtype::Q4_K => INT4,
    }
}
