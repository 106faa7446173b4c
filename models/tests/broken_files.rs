//! Damaged and hostile model files: each is refused with a message that names the culprit, and none panics.

mod model_files;
mod tiny_models;

use model_files::{
    Tensor, Tensors, pack_safetensors, read_safetensors, safetensors_parts, write_safetensors,
};
use proptest::prelude::*;
use ropeteam_device::Precision;
use serde_json::{Map, Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;
use tiny_models::{Setup, folder, load};

const WEIGHTS: &str = "model.safetensors";
const NORM: &str = "model.layers.0.input_layernorm.weight";

/// A copy of the tiny Llama to damage.
fn copy() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["config.json", WEIGHTS] {
        fs::copy(folder("llama").join(name), dir.path().join(name)).unwrap();
    }
    dir
}

fn tensors() -> Tensors {
    read_safetensors(&folder("llama"))
}

/// The message with which a model is refused.
fn refusal(path: &Path) -> String {
    match load(path, Setup::new(Precision::F32)) {
        Ok(_) => panic!("{} loads", path.display()),
        Err(error) => error.to_string(),
    }
}

fn refused(label: &str, path: &Path, says: &[&str]) {
    let message = refusal(path);
    for words in says {
        assert!(
            message.contains(words),
            "{label}: {message:?} does not say {words:?}"
        );
    }
}

fn refused_weights(label: &str, weights: &[u8], says: &[&str]) {
    let dir = copy();
    fs::write(dir.path().join(WEIGHTS), weights).unwrap();
    refused(label, dir.path(), &[&[WEIGHTS], says].concat());
}

/// The header with one entry changed.
fn with_entry(header: &Map<String, Value>, name: &str, field: &str, value: Value) -> String {
    let mut header = header.clone();
    header[name][field] = value;
    Value::Object(header).to_string()
}

#[test]
fn a_cut_or_lengthened_file_is_refused() {
    let good = fs::read(folder("llama").join(WEIGHTS)).unwrap();
    let header_len = u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
    refused_weights("empty", b"", &[]);
    refused_weights("first bytes", &good[..5], &[]);
    refused_weights("cut in the header", &good[..8 + header_len / 2], &[]);
    let data = good.len() - 8 - header_len;
    let numbers = [
        format!("take {data} bytes"),
        format!("has {} for", data - 1),
    ];
    let numbers = numbers.each_ref().map(String::as_str);
    refused_weights("last byte missing", &good[..good.len() - 1], &numbers);
    refused_weights("trailing bytes", &[&good[..], &[0; 4]].concat(), &[]);
    refused_weights(
        "a web page",
        b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
        &[],
    );
    for len in [100_000_001, u64::MAX >> 1, u64::MAX] {
        refused_weights(
            "header length",
            &[&len.to_le_bytes(), &good[8..]].concat(),
            &[],
        );
    }
}

#[test]
fn a_header_that_lies_is_refused() {
    let (header, data) = safetensors_parts(&tensors());
    let text = Value::Object(header.clone()).to_string();
    let twice = format!("{},{:?}:{}}}", &text[..text.len() - 1], NORM, header[NORM]);
    let other = header.keys().next().unwrap().clone();
    let last = header
        .iter()
        .max_by_key(|(_, entry)| entry["data_offsets"][1].as_u64())
        .unwrap()
        .0;
    let end = data.len();
    let mut hole = header.clone();
    hole[last]["data_offsets"] = json!([
        header[last]["data_offsets"][0].as_u64().unwrap() + 4,
        end + 4
    ]);
    let mut huge = header.clone();
    huge.insert(
        "x".to_owned(),
        json!({"dtype": "F32", "shape": [1u64 << 32, 1u64 << 32], "data_offsets": [0, 0]}),
    );
    let mut noted = header.clone();
    noted.insert("__metadata__".to_owned(), json!({"format": 7}));
    let overlap = header[&other]["data_offsets"].clone();
    let entry = |field, value| with_entry(&header, NORM, field, value);
    let cases: [(&str, String, &[&str]); 9] = [
        ("no JSON", "{not json".to_owned(), &[]),
        ("an array", format!("[{text}]"), &[]),
        ("overlap", entry("data_offsets", overlap), &[NORM]),
        ("hole", Value::Object(hole).to_string(), &["take"]),
        (
            "begin after end",
            entry("data_offsets", json!([512, 256])),
            &[NORM, "512..256"],
        ),
        (
            "overflowing shape",
            Value::Object(huge).to_string(),
            &["tensor x"],
        ),
        (
            "shape against bytes",
            entry("shape", json!([3, 5])),
            &[NORM, "[3, 5]"],
        ),
        (
            "unknown dtype",
            entry("dtype", json!("Q4_K")),
            &[NORM, "Q4_K"],
        ),
        ("number in the notes", Value::Object(noted).to_string(), &[]),
    ];
    for (label, header, says) in cases {
        refused_weights(label, &pack_safetensors(&header, &data), says);
    }
    refused_weights(
        "same name twice",
        &pack_safetensors(&twice, &data),
        &[NORM, "twice"],
    );
}

#[test]
fn a_padded_header_and_an_empty_tensor_are_legal() {
    let dir = copy();
    let mut tensors = tensors();
    tensors.insert(
        "model.unused".to_owned(),
        Tensor {
            shape: vec![0],
            values: vec![],
        },
    );
    let (header, data) = safetensors_parts(&tensors);
    let padded = Value::Object(header).to_string() + &" ".repeat(1 << 20);
    fs::write(dir.path().join(WEIGHTS), pack_safetensors(&padded, &data)).unwrap();
    assert!(load(dir.path(), Setup::new(Precision::F32)).is_ok());
}

/// A copy whose tensors were changed.
fn changed(change: impl FnOnce(&mut Tensors)) -> TempDir {
    let dir = copy();
    let mut tensors = tensors();
    change(&mut tensors);
    write_safetensors(&dir.path().join(WEIGHTS), &tensors);
    dir
}

#[test]
fn a_tensor_that_does_not_fit_the_configuration_is_named() {
    let dir = changed(|t| {
        t.get_mut(NORM).unwrap().clone_from(&Tensor {
            shape: vec![65],
            values: vec![1.0; 65],
        })
    });
    refused("wide norm", dir.path(), &[WEIGHTS, NORM, "[65]", "[64]"]);
    let dir = changed(|t| _ = t.remove("model.norm.weight"));
    refused(
        "missing norm",
        dir.path(),
        &[WEIGHTS, "model.norm.weight", "[64]"],
    );
    let dir = changed(|t| _ = t.remove("lm_head.weight"));
    refused("missing head", dir.path(), &["lm_head.weight", "[512, 64]"]);
    let dir = changed(|t| t.get_mut("lm_head.weight").unwrap().values[64 * 3 + 1] = f32::NAN);
    refused("NaN", dir.path(), &["lm_head.weight", "row 3"]);
    let dir = changed(|t| t.get_mut(NORM).unwrap().values[63] = f32::INFINITY);
    refused("infinity", dir.path(), &[NORM]);
}

#[test]
fn a_tensor_that_the_model_leaves_out_is_refused_where_it_would_change_results() {
    let with = |name: &str| {
        changed(|t| {
            let (shape, values) = (vec![64], vec![1.0; 64]);
            t.insert(name.to_owned(), Tensor { shape, values });
        })
    };
    for name in [
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.2.self_attn.sinks",
        "model.layers.3.mlp.up_proj.weight",
        "lm_head.bias",
    ] {
        refused(name, with(name).path(), &[WEIGHTS, name]);
    }
    for name in [
        // A layer that predicts further tokens.
        "model.layers.3.eh_proj.weight",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "extra",
    ] {
        assert!(
            load(with(name).path(), Setup::new(Precision::F32)).is_ok(),
            "{name}"
        );
    }
}

#[test]
fn a_tensor_of_integers_is_named() {
    let (mut header, mut data) = safetensors_parts(&tensors());
    let start = data.len();
    data.extend([0; 8 * 64]);
    header.insert(
        "zz".to_owned(),
        json!({"dtype": "I64", "shape": [64], "data_offsets": [start, data.len()]}),
    );
    let dir = copy();
    fs::write(
        dir.path().join(WEIGHTS),
        pack_safetensors(&Value::Object(header.clone()).to_string(), &data),
    )
    .unwrap();
    assert!(
        load(dir.path(), Setup::new(Precision::F32)).is_ok(),
        "nobody reads it"
    );
    let entry = header.remove("zz").unwrap();
    let unread = header
        .insert("model.norm.weight".to_owned(), entry)
        .unwrap();
    header.insert("zz".to_owned(), unread);
    fs::write(
        dir.path().join(WEIGHTS),
        pack_safetensors(&Value::Object(header).to_string(), &data),
    )
    .unwrap();
    refused(
        "integers",
        dir.path(),
        &[WEIGHTS, "model.norm.weight", "I64"],
    );
}

#[test]
fn a_folder_without_a_model_says_what_was_looked_for() {
    let dir = copy();
    fs::remove_file(dir.path().join(WEIGHTS)).unwrap();
    refused("no weights", dir.path(), &[WEIGHTS]);
    fs::write(dir.path().join("pytorch_model.bin"), b"x").unwrap();
    refused("pickled", dir.path(), &["pytorch_model.bin"]);
    symlink("../../blobs/0123abc", dir.path().join(WEIGHTS)).unwrap();
    refused("dangling link", dir.path(), &[WEIGHTS, "blobs/0123abc"]);
    fs::remove_file(dir.path().join("config.json")).unwrap();
    refused("no config", dir.path(), &["config.json"]);
    refused("nothing", &dir.path().join("nothing"), &["nothing"]);
}

/// The tiny Llama in two shards; `map` may lie.
fn sharded(map: impl FnOnce(&mut Map<String, Value>)) -> TempDir {
    let dir = copy();
    fs::remove_file(dir.path().join(WEIGHTS)).unwrap();
    let (mut first, mut second) = (Tensors::new(), Tensors::new());
    let mut weight_map = Map::new();
    for (name, tensor) in tensors() {
        let (shard, file) = if name.contains("layers.1") {
            (&mut first, "a.safetensors")
        } else {
            (&mut second, "b.safetensors")
        };
        weight_map.insert(name.clone(), json!(file));
        shard.insert(name, tensor);
    }
    map(&mut weight_map);
    write_safetensors(&dir.path().join("a.safetensors"), &first);
    write_safetensors(&dir.path().join("b.safetensors"), &second);
    let index = json!({"metadata": {"total_size": 1}, "weight_map": weight_map}).to_string();
    fs::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
    dir
}

#[test]
fn shards_load_and_a_lying_index_is_refused() {
    assert!(load(sharded(|_| ()).path(), Setup::new(Precision::F32)).is_ok());
    let dir = sharded(|map| _ = map.insert(NORM.to_owned(), json!("a.safetensors")));
    refused(
        "wrong shard",
        dir.path(),
        &["index.json", NORM, "a.safetensors"],
    );
    let dir = sharded(|map| _ = map.insert(NORM.to_owned(), json!("c.safetensors")));
    refused("missing shard", dir.path(), &["c.safetensors"]);
    let dir = sharded(|map| _ = map.insert(NORM.to_owned(), json!("../b.safetensors")));
    refused(
        "path out of the folder",
        dir.path(),
        &["index.json", "../b.safetensors"],
    );
    let dir = sharded(|map| map.clear());
    refused("empty index", dir.path(), &["index.json"]);
    let dir = sharded(|map| _ = map.remove(NORM));
    refused("tensor not listed", dir.path(), &[NORM]);
}

#[test]
fn the_hubs_cache_is_opened_by_its_root() {
    let root = tempfile::tempdir().unwrap();
    let snapshot = root.path().join("snapshots/1111");
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(root.path().join("blobs")).unwrap();
    fs::create_dir_all(root.path().join("refs")).unwrap();
    fs::write(root.path().join("refs/main"), "1111").unwrap();
    for (blob, name) in [("aa", "config.json"), ("bb", WEIGHTS)] {
        fs::copy(
            folder("llama").join(name),
            root.path().join("blobs").join(blob),
        )
        .unwrap();
        symlink(Path::new("../../blobs").join(blob), snapshot.join(name)).unwrap();
    }
    assert!(load(&snapshot, Setup::new(Precision::F32)).is_ok());
    assert!(load(root.path(), Setup::new(Precision::F32)).is_ok());
    fs::write(root.path().join("refs/main"), "../../etc").unwrap();
    refused("revision with a path", root.path(), &["refs/main"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever happens to a file, loading ends with a model or a message.
    #[test]
    fn a_changed_safetensors_file_never_panics(at in 0usize..3000, to: u8, cut in prop::option::of(0usize..800_000)) {
        let dir = copy();
        let path = dir.path().join(WEIGHTS);
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] = to;
        bytes.truncate(cut.unwrap_or(usize::MAX));
        fs::write(&path, bytes).unwrap();
        let _ = load(dir.path(), Setup::new(Precision::F32)).map(|_| ());
    }
}
