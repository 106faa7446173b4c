//! How much memory a model takes on a device, worked out before anything is loaded.

use crate::spec::DecoderSpec;
use ropeteam_device::{KvShape, Precision};

impl DecoderSpec {
    /// Bytes of all weights, stored in `precision`. Norms and biases, which stay in f32, are a rounding error of it.
    pub fn weight_bytes(&self, precision: Precision) -> u64 {
        self.parameters() * element_bytes(precision)
    }

    /// Bytes that one KV block of `block_size` tokens takes: K and V of all layers.
    pub fn kv_block_bytes(&self, precision: Precision, block_size: usize) -> u64 {
        let elements = 2 * self.layers() * self.kv_dim() * block_size;
        elements as u64 * element_bytes(precision)
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
        let per_logits_row = self.hidden + self.vocab;
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

fn element_bytes(precision: Precision) -> u64 {
    match precision {
        Precision::F32 => 4,
        _ => 2,
    }
}
