//! Configurations that are damaged or ask for what is not built: each is refused with the file's and the field's name.

mod tiny_models;

use proptest::prelude::*;
use ropeteam_device::Precision;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use tiny_models::{Setup, folder, load};

/// A copy of the tiny Llama with this config.json.
fn with_config(text: &[u8]) -> TempDir {
    with_config_of("llama", text)
}

/// A copy of that tiny model with this config.json.
fn with_config_of(name: &str, text: &[u8]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(
        folder(name).join("model.safetensors"),
        dir.path().join("model.safetensors"),
    )
    .unwrap();
    fs::write(dir.path().join("config.json"), text).unwrap();
    dir
}

fn good() -> Vec<u8> {
    fs::read(folder("llama").join("config.json")).unwrap()
}

fn refused(label: &str, path: &Path, says: &[&str]) {
    let message = load(path, Setup::new(Precision::F32))
        .err()
        .unwrap_or_else(|| panic!("{label} loads"))
        .to_string();
    for words in [&["config.json"], says].concat() {
        assert!(
            message.contains(words),
            "{label}: {message:?} does not say {words:?}"
        );
    }
}

/// A copy of that tiny model with these fields changed.
fn with_changes(name: &str, changes: &Value) -> TempDir {
    let text = fs::read(folder(name).join("config.json")).unwrap();
    let mut config: Map<String, Value> = serde_json::from_slice(&text).unwrap();
    config.extend(changes.as_object().unwrap().clone());
    with_config_of(name, Value::Object(config).to_string().as_bytes())
}

fn refused_config(changes: Value, says: &[&str]) {
    let dir = with_changes("llama", &changes);
    refused(&changes.to_string(), dir.path(), says);
}

fn taken(name: &str, changes: Value) {
    let dir = with_changes(name, &changes);
    if let Err(error) = load(dir.path(), Setup::new(Precision::F32)) {
        panic!("{name} with {changes}: {error}");
    }
}

#[test]
fn a_configuration_that_asks_for_what_is_not_built_is_refused_by_name() {
    refused_config(
        json!({"architectures": ["NoSuchForCausalLM"]}),
        &["NoSuchForCausalLM", "Glm4ForCausalLM"],
    );
    refused_config(
        json!({"hidden_act": "gelu"}),
        &["hidden_act", "gelu", "silu"],
    );
    refused_config(
        json!({"quantization_config": {"quant_method": "gptq"}}),
        &[
            "quantization_config.quant_method",
            "gptq",
            "compressed-tensors",
        ],
    );
    refused_config(
        json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
        &["rope_scaling.rope_type", "dynamic"],
    );
    refused_config(
        json!({"rope_scaling": {"type": "longrope", "factor": 2.0}}),
        &["rope_scaling.type", "longrope"],
    );
    refused_config(
        json!({"rope_parameters": {"full_attention": {}}}),
        &["rope_parameters.full_attention"],
    );
    refused_config(
        json!({"final_logit_softcapping": 30.0}),
        &["final_logit_softcapping"],
    );
    refused_config(json!({"num_local_experts": 8}), &["num_local_experts"]);
    refused_config(
        json!({"partial_rotary_factor": 0.5}),
        &["partial_rotary_factor"],
    );
    refused_config(json!({"torch_dtype": "float8_nosuch"}), &["float8_nosuch"]);
}

#[test]
fn a_configuration_with_damaged_numbers_is_refused_by_name() {
    refused_config(json!({"hidden_size": "64"}), &["hidden_size", "\"64\""]);
    refused_config(json!({"hidden_size": null}), &["hidden_size", "nothing"]);
    refused_config(json!({"num_hidden_layers": 0}), &["num_hidden_layers"]);
    refused_config(
        json!({"num_hidden_layers": u64::MAX}),
        &["num_hidden_layers"],
    );
    refused_config(
        json!({"num_hidden_layers": 100_000_000}),
        &["num_hidden_layers"],
    );
    refused_config(json!({"num_attention_heads": 3}), &["num_key_value_heads"]);
    refused_config(json!({"head_dim": 15}), &["head_dim"]);
    refused_config(json!({"rms_norm_eps": -1.0}), &["rms_norm_eps"]);
    refused_config(json!({"rope_theta": 0}), &["rope_theta"]);
    refused_config(
        json!({"architectures": "LlamaForCausalLM"}),
        &["architectures"],
    );
    refused("NaN", with_config(br#"{"rms_norm_eps": NaN}"#).path(), &[]);
    refused(
        "deep",
        with_config("[".repeat(100_000).as_bytes()).path(),
        &[],
    );
}

#[test]
fn fields_of_other_families_are_refused_by_name_unless_they_change_nothing() {
    for (field, value) in [
        ("no_rope_layers", json!([1, 1, 0])),
        ("no_rope_layer_interval", json!(4)),
        ("qk_layernorm", json!(true)),
        ("use_bidirectional_attention", json!(true)),
        ("is_causal", json!(false)),
        ("compression_config", json!({"format": "int-quantized"})),
    ] {
        refused_config(json!({ field: value }), &[field]);
    }
    let neutral = json!({"no_rope_layers": [1, 1, 1], "no_rope_layer_interval": 0, "qk_layernorm": false,
        "use_bidirectional_attention": false, "is_causal": true, "compression_config": null,
        "auto_map": {"AutoModel": "x.Y"}});
    taken("llama", neutral);
}

#[test]
fn layer_types_that_the_family_does_not_carry_out_are_refused_by_name() {
    let full = json!({"layer_types": vec!["full_attention"; 3]});
    let mixed =
        json!({"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]});
    for name in ["llama", "glm", "glm4", "mistral"] {
        let dir = with_changes(name, &mixed);
        refused(name, dir.path(), &["layer_types"]);
    }
    for name in ["llama", "glm", "glm4"] {
        taken(name, full.clone());
    }
    refused(
        "mistral",
        with_changes("mistral", &full).path(),
        &["layer_types"],
    );
    taken(
        "mistral",
        json!({"layer_types": vec!["sliding_attention"; 3]}),
    );
    let mut unused = mixed;
    unused["sliding_window"] = Value::Null;
    taken("mistral", unused);
    let rotary = with_changes("glm", &json!({"rotary_dim": 32}));
    refused("glm", rotary.path(), &["rotary_dim"]);
    taken("glm", json!({"rotary_dim": 16}));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_changed_config_never_panics(at in 0usize..770, to in "[0-9a-z{}\":,.-]") {
        let mut bytes = good();
        bytes[at] = to.as_bytes()[0];
        let dir = with_config(&bytes);
        let _ = load(dir.path(), Setup::new(Precision::F32)).map(|_| ());
    }
}
