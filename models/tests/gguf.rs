//! GGUF files against the same models as Hugging Face folders: names, row order, metadata and every element format.

mod block_formats;
mod model_files;
mod tiny_models;

use block_formats::{BF16, F16, F32, Format, Q4_0, Q4_1, Q8_0, decode_q4_k, decode_q6_k};
use half::f16;
use model_files::{
    GgufTensor, Meta, Tensor, Tensors, gguf_bytes, read_safetensors, write_safetensors,
};
use ropeteam_device::Precision;
use ropeteam_models::{Checkpoint, ModelInfo, families};
use serde_json::{Value, json};
use std::path::Path;
use tiny_models::{Goldens, Setup, folder, load};

/// A tiny model and what its GGUF file calls it.
struct Source {
    name: &'static str,
    architecture: &'static str,
    /// The converter permutes the rows of q and k.
    permuted: bool,
}

const SOURCES: [Source; 5] = [
    Source {
        name: "llama-tied",
        architecture: "llama",
        permuted: true,
    },
    Source {
        name: "llama",
        architecture: "llama",
        permuted: true,
    },
    Source {
        name: "qwen2",
        architecture: "qwen2",
        permuted: false,
    },
    Source {
        name: "qwen3",
        architecture: "qwen3",
        permuted: false,
    },
    Source {
        name: "glm4",
        architecture: "glm4",
        permuted: false,
    },
];

fn config_of(source: &Source) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder(source.name).join("config.json")).unwrap())
        .unwrap()
}

/// Metadata as llama.cpp's converter writes it.
fn metadata(source: &Source, config: &Value) -> Vec<(String, Meta)> {
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

fn gguf_name(name: &str) -> String {
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
fn permuted(tensor: &Tensor, heads: usize) -> Tensor {
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

/// Matrices whose rows are whole blocks take `format`; all else stays F32, as in real files.
fn format_for(tensor: &Tensor, format: Format) -> Format {
    let fits = tensor.shape.len() == 2 && tensor.shape[1] % format.block == 0;
    if fits { format } else { F32 }
}

fn gguf_tensors(
    source: &Source,
    config: &Value,
    tensors: &Tensors,
    format: Format,
) -> Vec<GgufTensor> {
    let heads = |name: &str| match name {
        _ if !source.permuted => None,
        name if name.contains("q_proj") => config["num_attention_heads"].as_u64(),
        name if name.contains("k_proj") => config["num_key_value_heads"].as_u64(),
        _ => None,
    };
    let convert = |(name, tensor): (&String, &Tensor)| {
        let format = format_for(tensor, format);
        let stored =
            heads(name).map_or_else(|| tensor.clone(), |heads| permuted(tensor, heads as usize));
        GgufTensor {
            name: gguf_name(name),
            shape: tensor.shape.clone(),
            kind: format.kind,
            bytes: (format.encode)(&stored.values),
        }
    };
    tensors.iter().map(convert).collect()
}

/// The divisors that the converter makes of the llama3 rule.
fn rope_factors(config: &Value) -> Option<GgufTensor> {
    let scaling = config["rope_scaling"].as_object()?;
    let number = |field: &str| scaling[field].as_f64().unwrap();
    let (dim, theta) = (
        config["head_dim"].as_f64().unwrap(),
        config["rope_theta"].as_f64().unwrap(),
    );
    let factor = |pair: usize| {
        let wavelength = std::f64::consts::TAU * theta.powf(2.0 * pair as f64 / dim);
        let original = number("original_max_position_embeddings");
        let (low, high) = (number("low_freq_factor"), number("high_freq_factor"));
        if wavelength < original / high {
            1.0
        } else if wavelength > original / low {
            number("factor")
        } else {
            let smooth = (original / wavelength - low) / (high - low);
            1.0 / ((1.0 - smooth) / number("factor") + smooth)
        }
    };
    let factors: Vec<f32> = (0..dim as usize / 2)
        .map(|pair| factor(pair) as f32)
        .collect();
    let (name, shape) = ("rope_freqs.weight".to_owned(), vec![factors.len()]);
    Some(GgufTensor {
        name,
        shape,
        kind: 0,
        bytes: (F32.encode)(&factors),
    })
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

fn write_gguf(path: &Path, source: &Source, format: Format, version: u32) {
    let config = config_of(source);
    let tensors = read_safetensors(&folder(source.name));
    let mut stored = gguf_tensors(source, &config, &tensors, format);
    stored.extend(rope_factors(&config));
    std::fs::write(
        path,
        gguf_bytes(version, &metadata(source, &config), &stored),
    )
    .unwrap();
}

#[test]
fn a_gguf_file_computes_what_its_folder_does() {
    for source in &SOURCES {
        for version in [2, 3] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("model.gguf");
            write_gguf(&path, source, F32, version);
            // The llama3 rule went through divisors in f32.
            let tolerance = if source.name == "llama" { 1e-4 } else { 0.0 };
            assert_near(
                &logits(&path),
                &logits(&folder(source.name)),
                tolerance,
                source.name,
            );
        }
    }
}

#[test]
fn every_element_format_decodes_to_its_definition() {
    let source = &SOURCES[0];
    for format in [F16, BF16, Q8_0, Q4_0, Q4_1] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        write_gguf(&path, source, format, 3);
        let mut decoded = read_safetensors(&folder(source.name));
        for tensor in decoded.values_mut() {
            let format = format_for(tensor, format);
            tensor.values = (format.decode)(&(format.encode)(&tensor.values));
        }
        std::fs::copy(
            folder(source.name).join("config.json"),
            dir.path().join("config.json"),
        )
        .unwrap();
        write_safetensors(&dir.path().join("model.safetensors"), &decoded);
        assert_near(&logits(&path), &logits(dir.path()), 1e-4, format.name);
    }
}

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

/// The inverse of `permuted`: `reshape(heads, d / 2, 2, cols).swapaxes(1, 2)`.
fn unpermuted(tensor: &Tensor, heads: usize) -> Tensor {
    let rows = tensor.shape[0];
    let half = rows / heads / 2;
    let row = |index: usize| &tensor.values[index * 256..(index + 1) * 256];
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

#[test]
fn metadata_becomes_configuration_and_stays_readable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    write_gguf(&path, &SOURCES[4], F32, 3);
    let checkpoint = Checkpoint::open(&path).unwrap();
    let metadata = checkpoint.gguf().unwrap();
    assert_eq!(metadata.texts("tokenizer.ggml.tokens").unwrap(), ["a", "é"]);
    assert_eq!(metadata.ints("tokenizer.ggml.token_type").unwrap(), [1, -1]);
    assert_eq!(metadata.text("general.architecture"), Some("glm4"));
    assert_eq!(metadata.text("tokenizer.ggml.eos_token_id"), None);
    let spec = families::spec(checkpoint.config()).unwrap();
    assert_eq!(spec.rope.inv_freq.len() * 2, spec.head_dim / 2);
    assert!(spec.rope.interleaved && spec.has_post_norms());
    let info = ModelInfo::gather(&checkpoint, &spec).unwrap();
    assert_eq!(
        info.eos_ids.iter().map(|id| id.0).collect::<Vec<_>>(),
        [7, 9]
    );
    assert_eq!(info.bos_id.unwrap().0, 3);
    assert_eq!(info.architecture, "Glm4ForCausalLM");
}
