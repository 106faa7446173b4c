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
    let dir = tempfile::tempdir().unwrap();
    fs::copy(
        folder("llama").join("model.safetensors"),
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

fn refused_config(changes: Value, says: &[&str]) {
    let mut config: Map<String, Value> = serde_json::from_slice(&good()).unwrap();
    config.extend(changes.as_object().unwrap().clone());
    let dir = with_config(Value::Object(config).to_string().as_bytes());
    refused(&changes.to_string(), dir.path(), says);
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
        &["quantization_config", "gptq"],
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
