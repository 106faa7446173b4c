//! GGUF files against the same models as Hugging Face folders: names, row order, metadata and every element format.

mod block_formats;
mod model_files;
mod tiny_models;

use block_formats::{BF16, F16, F32, Format, Q4_0, Q4_1, Q8_0};
use model_files::conversion::{Source, gguf_name, metadata, permuted};
use model_files::gguf::{GgufTensor, gguf_bytes};
use model_files::{Tensor, Tensors, read_safetensors, write_safetensors};
use ropeteam_device::Precision;
use ropeteam_models::{Checkpoint, ModelInfo, families};
use serde_json::{Value, json};
use std::path::Path;
use tiny_models::{Goldens, Setup, folder, load};

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

/// Matrices whose rows are whole blocks take `format`; all else stays F32, as in real files.
fn format_for(tensor: &Tensor, format: Format) -> Format {
    let fits = tensor.shape.len() == 2 && tensor.shape[1].is_multiple_of(format.block);
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

/// The tiny tied Llama with biases on these modules of all layers and this flag in its configuration.
fn biased(flag: &str, modules: &[(&str, usize)]) -> (Value, Tensors) {
    let mut config = config_of(&SOURCES[0]);
    config[flag] = json!(true);
    let mut tensors = read_safetensors(&folder(SOURCES[0].name));
    for (module, rows) in modules {
        for layer in 0..3 {
            let values = (0..*rows)
                .map(|row| (row * 37 % 100) as f32 / 50.0 - 1.0)
                .collect();
            let shape = vec![*rows];
            let name = format!("model.layers.{layer}.{module}.bias");
            tensors.insert(name, Tensor { shape, values });
        }
    }
    (config, tensors)
}

fn write_biased_gguf(path: &Path, (config, tensors): &(Value, Tensors)) {
    let stored = gguf_tensors(&SOURCES[0], config, tensors, F32);
    let bytes = gguf_bytes(3, &metadata(&SOURCES[0], config), &stored);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn biases_of_a_gguf_file_count_as_those_of_a_folder() {
    let attention = [
        ("self_attn.q_proj", 64),
        ("self_attn.k_proj", 32),
        ("self_attn.v_proj", 32),
        ("self_attn.o_proj", 64),
    ];
    let mlp = [
        ("mlp.gate_proj", 112),
        ("mlp.up_proj", 112),
        ("mlp.down_proj", 64),
    ];
    let without = logits(&folder(SOURCES[0].name));
    for (flag, modules) in [("attention_bias", &attention[..]), ("mlp_bias", &mlp[..])] {
        let model = biased(flag, modules);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        write_biased_gguf(&path, &model);
        std::fs::write(dir.path().join("config.json"), model.0.to_string()).unwrap();
        write_safetensors(&dir.path().join("model.safetensors"), &model.1);
        let expected = logits(dir.path());
        assert_near(&logits(&path), &expected, 0.0, flag);
        let mut pairs = expected.iter().zip(&without);
        assert!(pairs.any(|(a, b)| (a - b).abs() > 0.1), "{flag} counts");
    }
}

#[test]
fn some_of_the_biases_alone_are_refused_by_name() {
    for (module, says) in [
        (("self_attn.o_proj", 64), "self_attn.q_proj.bias"),
        (("mlp.down_proj", 64), "mlp.gate_proj.bias"),
        (("self_attn.q_norm", 16), "self_attn.q_norm.bias"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        write_biased_gguf(&path, &biased("attention_bias", &[module]));
        let refused = load(&path, Setup::new(Precision::F32)).err();
        let message = refused.expect("it is refused").to_string();
        assert!(message.contains(says), "{message}");
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
