//! GGUF tensor names to Hugging Face names, and the row order that llama.cpp's converter changed.

use super::TensorEntry;
use super::metadata::Metadata;

/// Divisors of the rotary frequencies; part of the configuration, not of the weights.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// How one file's tensor names and rows translate.
pub(super) struct NameMap {
    /// `ffn_up` holds gate and up of architectures that fuse them.
    fused_gate_up: bool,
    /// Query and key heads, where the converter permuted their rows.
    permuted_heads: Option<(usize, usize)>,
}

impl NameMap {
    /// The map of an architecture.
    pub fn new(architecture: &str, metadata: &Metadata) -> Self {
        let count = |key: &str| {
            let number = metadata.int(&format!("{architecture}.{key}"))?;
            usize::try_from(number).ok().filter(|&count| count > 0)
        };
        // The converter permutes q and k of the llama architecture only (which Mistral files use too).
        let heads = (architecture == "llama")
            .then(|| count("attention.head_count"))
            .flatten();
        let permuted_heads =
            heads.map(|heads| (heads, count("attention.head_count_kv").unwrap_or(heads)));
        Self {
            fused_gate_up: architecture == "glm4",
            permuted_heads,
        }
    }

    /// The Hugging Face name of a tensor (its own name where there is none), and its row order.
    pub fn resolve(&self, entry: &TensorEntry) -> (String, Option<Vec<u32>>) {
        let Some((layer, rest)) = layer_and_rest(&entry.name) else {
            return (outer_name(&entry.name).to_owned(), None);
        };
        let Some((stem, suffix)) = rest.rsplit_once('.') else {
            return (entry.name.clone(), None);
        };
        let Some(name) = self.layer_name(stem) else {
            return (entry.name.clone(), None);
        };
        let row_order = match (stem, self.permuted_heads) {
            ("attn_q", Some((heads, _))) => unpermute(entry.shape[0], heads),
            ("attn_k", Some((_, kv_heads))) => unpermute(entry.shape[0], kv_heads),
            _ => None,
        };
        (format!("model.layers.{layer}.{name}.{suffix}"), row_order)
    }

    fn layer_name(&self, stem: &str) -> Option<&'static str> {
        Some(match stem {
            "attn_norm" => "input_layernorm",
            "attn_q" => "self_attn.q_proj",
            "attn_k" => "self_attn.k_proj",
            "attn_v" => "self_attn.v_proj",
            "attn_q_norm" => "self_attn.q_norm",
            "attn_k_norm" => "self_attn.k_norm",
            "attn_output" => "self_attn.o_proj",
            "post_attention_norm" => "post_self_attn_layernorm",
            "ffn_norm" => "post_attention_layernorm",
            "ffn_gate" => "mlp.gate_proj",
            "ffn_up" if self.fused_gate_up => "mlp.gate_up_proj",
            "ffn_up" => "mlp.up_proj",
            "ffn_down" => "mlp.down_proj",
            "post_ffw_norm" => "post_mlp_layernorm",
            _ => return None,
        })
    }
}

fn outer_name(name: &str) -> &str {
    match name {
        "token_embd.weight" => "model.embed_tokens.weight",
        "output_norm.weight" => "model.norm.weight",
        "output_norm.bias" => "model.norm.bias",
        "output.weight" => "lm_head.weight",
        "output.bias" => "lm_head.bias",
        other => other,
    }
}

fn layer_and_rest(name: &str) -> Option<(usize, &str)> {
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, rest))
}

/// Where the rows of the original lie: the converter turned the halves `(i, i + d/2)` of a head of `d` rows into the
/// pairs `(2i, 2i + 1)`. `None` when the rows are no whole number of such heads (its shape is refused later).
fn unpermute(rows: usize, heads: usize) -> Option<Vec<u32>> {
    let head_rows = rows / heads;
    if !rows.is_multiple_of(heads) || !head_rows.is_multiple_of(2) || u32::try_from(rows).is_err() {
        return None;
    }
    let order = (0..rows).map(|row| {
        let (head, within) = (row / head_rows, row % head_rows);
        let (half, pair) = (within / (head_rows / 2), within % (head_rows / 2));
        (head * head_rows + 2 * pair + half) as u32
    });
    Some(order.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpermuting_undoes_the_converters_permutation() {
        // Two heads of four rows. Converter: reshape(heads, 2, d / 2), swap the last two.
        let original: Vec<u32> = (0..8).collect();
        let stored: Vec<u32> = vec![0, 2, 1, 3, 4, 6, 5, 7];
        let order = unpermute(8, 2).unwrap();
        let restored: Vec<u32> = order.iter().map(|&row| stored[row as usize]).collect();
        assert_eq!(restored, original);
    }

    #[test]
    fn a_row_count_that_is_no_whole_number_of_heads_has_no_order() {
        assert_eq!(unpermute(7, 2), None);
        assert_eq!(unpermute(6, 2), None);
    }
}
