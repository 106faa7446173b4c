//! Folders whose tensors differ in format: norms in f32 beside bf16 matrices, a stack of parts in three formats.

mod block_formats;
mod model_files;
mod tiny_models;

use block_formats::{BF16, F16, F32, Format};
use model_files::{pack_safetensors, read_safetensors, write_safetensors};
use ropeteam_device::Precision;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;
use tiny_models::{Goldens, Setup, folder, load};

fn logits(path: &Path) -> Vec<f32> {
    let ids = Goldens::read(&folder("llama")).prompts[2].ids.clone();
    load(path, Setup::new(Precision::F32))
        .unwrap()
        .all_logits(&ids, ids.len())
        .concat()
}

/// The tiny Llama with each tensor in the format that `choose` names computes what its widened twin does.
fn check(choose: impl Fn(&str) -> Format) {
    let (mixed, widened) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut tensors = read_safetensors(&folder("llama"));
    let mut header = Map::new();
    let mut data = Vec::new();
    for (name, tensor) in &mut tensors {
        let format = choose(name);
        let bytes = (format.encode)(&tensor.values);
        tensor.values = (format.decode)(&bytes);
        let offsets = [data.len(), data.len() + bytes.len()];
        let entry = json!({"dtype": format.name, "shape": tensor.shape, "data_offsets": offsets});
        header.insert(name.clone(), entry);
        data.extend(bytes);
    }
    let bytes = pack_safetensors(&Value::Object(header).to_string(), &data);
    fs::write(mixed.path().join("model.safetensors"), bytes).unwrap();
    write_safetensors(&widened.path().join("model.safetensors"), &tensors);
    for dir in [&mixed, &widened] {
        fs::copy(
            folder("llama").join("config.json"),
            dir.path().join("config.json"),
        )
        .unwrap();
    }
    assert_eq!(logits(mixed.path()), logits(widened.path()));
}

#[test]
fn mixed_formats_compute_what_their_widened_twin_does() {
    check(|_| BF16);
    check(|_| F16);
    check(|name| {
        if name.ends_with("norm.weight") {
            F32
        } else {
            BF16
        }
    });
    check(|name| if name == "lm_head.weight" { F32 } else { F16 });
    check(|name| match name {
        _ if name.contains("q_proj") || name.contains("up_proj") => F16,
        _ if name.contains("k_proj") => BF16,
        _ => F32,
    });
}
