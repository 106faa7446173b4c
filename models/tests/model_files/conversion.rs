//! How llama.cpp's converter renames and rearranges a Hugging Face model: metadata keys, tensor names, rows of q and k.

use super::Tensor;
use super::gguf::Meta;
use serde_json::Value;

/// A tiny model and what its GGUF file calls it.
pub struct Source {
    pub name: &'static str,
    pub architecture: &'static str,
    /// The converter permutes the rows of q and k.
    pub permuted: bool,
}

/// Metadata as llama.cpp's converter writes it.
pub fn metadata(source: &Source, config: &Value) -> Vec<(String, Meta)> {
    let number = |field: &str| config[field].as_u64().unwrap() as u32;
    let head_dim = config["head_dim"].as_u64().map_or_else(
        || number("hidden_size") / number("num_attention_heads"),
        |dim| dim as u32,
    );
    let partial = config["partial_rotary_factor"].as_f64().unwrap_or(1.0);
    let keys = [
        ("embedding_length", Meta::U32(number("hidden_size"))),
        (
            "feed_forward_length",
            Meta::U32(number("intermediate_size")),
        ),
        ("block_count", Meta::U32(number("num_hidden_layers"))),
        (
            "context_length",
            Meta::U32(number("max_position_embeddings")),
        ),
        (
            "attention.head_count",
            Meta::U32(number("num_attention_heads")),
        ),
        (
            "attention.head_count_kv",
            Meta::U32(number("num_key_value_heads")),
        ),
        ("attention.key_length", Meta::U32(head_dim)),
        ("attention.value_length", Meta::U32(head_dim)),
        (
            "attention.layer_norm_rms_epsilon",
            Meta::F32(config["rms_norm_eps"].as_f64().unwrap() as f32),
        ),
        (
            "rope.freq_base",
            Meta::F32(config["rope_theta"].as_f64().unwrap() as f32),
        ),
        (
            "rope.dimension_count",
            Meta::U32((f64::from(head_dim) * partial) as u32),
        ),
    ];
    let mut metadata: Vec<(String, Meta)> = keys
        .into_iter()
        .map(|(key, value)| (format!("{}.{key}", source.architecture), value))
        .collect();
    metadata.insert(
        0,
        (
            "general.architecture".to_owned(),
            Meta::Text(source.architecture),
        ),
    );
    metadata.push((
        "tokenizer.ggml.tokens".to_owned(),
        Meta::Texts(vec!["a".to_owned(), "é".to_owned()]),
    ));
    metadata.push((
        "tokenizer.ggml.token_type".to_owned(),
        Meta::I32s(vec![1, -1]),
    ));
    metadata.push(("tokenizer.ggml.eos_token_id".to_owned(), Meta::U32(7)));
    metadata.push(("tokenizer.ggml.eot_token_id".to_owned(), Meta::U32(9)));
    metadata.push(("tokenizer.ggml.bos_token_id".to_owned(), Meta::U32(3)));
    metadata
}

pub fn gguf_name(name: &str) -> String {
    let outer = [
        ("model.embed_tokens.", "token_embd."),
        ("model.norm.", "output_norm."),
        ("lm_head.", "output."),
        ("model.layers.", "blk."),
        ("input_layernorm", "attn_norm"),
        ("post_self_attn_layernorm", "post_attention_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("post_mlp_layernorm", "post_ffw_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("mlp.gate_up_proj", "ffn_up"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    outer
        .iter()
        .fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

/// The converter's permutation: `reshape(heads, 2, d / 2, cols).swapaxes(1, 2)`.
pub fn permuted(tensor: &Tensor, heads: usize) -> Tensor {
    let rows = tensor.shape[0];
    let cols = tensor.values.len() / rows;
    let half = rows / heads / 2;
    let mut values = Vec::new();
    for head in 0..heads {
        for pair in 0..half {
            for part in 0..2 {
                let row = head * 2 * half + part * half + pair;
                values.extend(&tensor.values[row * cols..(row + 1) * cols]);
            }
        }
    }
    Tensor {
        shape: tensor.shape.clone(),
        values,
    }
}

/// The inverse of `permuted`: `reshape(heads, d / 2, 2, cols).swapaxes(1, 2)`.
pub fn unpermuted(tensor: &Tensor, heads: usize) -> Tensor {
    let rows = tensor.shape[0];
    let cols = tensor.values.len() / rows;
    let half = rows / heads / 2;
    let row = |index: usize| &tensor.values[index * cols..(index + 1) * cols];
    let mut values = Vec::new();
    for head in 0..heads {
        for part in 0..2 {
            for pair in 0..half {
                values.extend(row(head * 2 * half + 2 * pair + part));
            }
        }
    }
    Tensor {
        shape: tensor.shape.clone(),
        values,
    }
}
