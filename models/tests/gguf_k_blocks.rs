//! Q4_K and Q6_K: a model of random blocks computes what the definition of the format says they hold.

mod block_formats;
mod model_files;
mod tiny_models;

use block_formats::{F32, decode_q4_k, decode_q6_k};
use half::f16;
use model_files::conversion::{Source, gguf_name, metadata, unpermuted};
use model_files::gguf::{GgufTensor, gguf_bytes};
use model_files::{Tensor, Tensors, write_safetensors};
use ropeteam_device::Precision;
use serde_json::json;
use std::path::Path;
use tiny_models::{Goldens, Setup, folder, load};

/// A one-layer Llama whose matrices are all 256 wide, filled with random blocks of a format.
fn write_random_blocks(dir: &Path, kind: u32, block_bytes: usize, decode: fn(&[u8]) -> Vec<f32>) {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 256, "vocab_size": 512,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true,
    });
    let layer = |module: &str| format!("model.layers.0.{module}.weight");
    let matrices = [
        ("model.embed_tokens.weight".to_owned(), 512),
        (layer("self_attn.q_proj"), 256),
        (layer("self_attn.k_proj"), 128),
        (layer("self_attn.v_proj"), 128),
        (layer("self_attn.o_proj"), 256),
        (layer("mlp.gate_proj"), 256),
        (layer("mlp.up_proj"), 256),
        (layer("mlp.down_proj"), 256),
    ];
    let mut random = Random(u64::from(kind));
    let mut stored = Vec::new();
    let mut tensors = Tensors::new();
    for (name, rows) in matrices {
        let bytes: Vec<u8> = (0..rows).flat_map(|_| random.block(block_bytes)).collect();
        let values = decode(&bytes);
        let shape = vec![rows, 256];
        let source_rows = Tensor {
            shape: shape.clone(),
            values,
        };
        // The file's rows of q and k are in the converter's order, the twin's in the original one.
        let twin = match name.as_str() {
            name if name.contains("q_proj") => unpermuted(&source_rows, 4),
            name if name.contains("k_proj") => unpermuted(&source_rows, 2),
            _ => source_rows,
        };
        tensors.insert(name.clone(), twin);
        stored.push(GgufTensor {
            name: gguf_name(&name),
            shape,
            kind,
            bytes,
        });
    }
    for name in [
        "model.norm.weight".to_owned(),
        layer("input_layernorm"),
        layer("post_attention_layernorm"),
    ] {
        let tensor = Tensor {
            shape: vec![256],
            values: vec![1.0; 256],
        };
        let bytes = (F32.encode)(&tensor.values);
        stored.push(GgufTensor {
            name: gguf_name(&name),
            shape: vec![256],
            kind: 0,
            bytes,
        });
        tensors.insert(name, tensor);
    }
    let source = Source {
        name: "",
        architecture: "llama",
        permuted: true,
    };
    std::fs::write(
        dir.join("model.gguf"),
        gguf_bytes(3, &metadata(&source, &config), &stored),
    )
    .unwrap();
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    write_safetensors(&dir.join("model.safetensors"), &tensors);
}

/// A small seeded generator (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A block of random bits with small scales: Q4_K's stand in front, Q6_K's at the end.
    fn block(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len).map(|_| self.next() as u8).collect();
        let scale = f16::from_f32(1e-4 + (self.next() % 64) as f32 * 1e-5).to_le_bytes();
        if len == 144 {
            bytes[..2].copy_from_slice(&scale);
            bytes[2..4].copy_from_slice(&scale);
        } else {
            bytes[208..].copy_from_slice(&scale);
        }
        bytes
    }
}

/// Logits of a 40-token prompt.
fn logits(path: &Path) -> Vec<f32> {
    let ids: Vec<u32> = Goldens::read(&folder("llama")).prompts[3].ids[..40].to_vec();
    let mut model = load(path, Setup::new(Precision::F32)).unwrap();
    model.all_logits(&ids, ids.len()).concat()
}

fn assert_near(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len());
    let worst = found
        .iter()
        .zip(expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    assert!(worst <= tolerance, "{what}: logits differ by {worst}");
}

#[test]
fn random_k_blocks_decode_to_their_definition() {
    for (kind, bytes, decode) in [
        (12, 144, decode_q4_k as fn(&[u8]) -> Vec<f32>),
        (14, 210, decode_q6_k),
    ] {
        let dir = tempfile::tempdir().unwrap();
        write_random_blocks(dir.path(), kind, bytes, decode);
        let expected = logits(dir.path());
        let scale = expected
            .iter()
            .fold(0.0f32, |max, value| max.max(value.abs()));
        assert_near(
            &logits(&dir.path().join("model.gguf")),
            &expected,
            1e-4 * scale,
            "K blocks",
        );
    }
}
