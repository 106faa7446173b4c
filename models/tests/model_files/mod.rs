//! Reads and writes model files for tests: safetensors of f32 tensors here, GGUF in `gguf`.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod conversion;
pub mod gguf;

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// A tensor in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

/// All tensors of a model by name.
pub type Tensors = BTreeMap<String, Tensor>;

/// Reads all safetensors files of a folder, whose tensors are f32.
pub fn read_safetensors(folder: &Path) -> Tensors {
    let mut tensors = Tensors::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_none_or(|extension| extension != "safetensors")
        {
            continue;
        }
        let bytes = std::fs::read(path).unwrap();
        for (name, view) in safetensors::SafeTensors::deserialize(&bytes)
            .unwrap()
            .iter()
        {
            let (words, _) = view.data().as_chunks::<4>();
            let values = words.iter().map(|&word| f32::from_le_bytes(word)).collect();
            tensors.insert(
                name.to_owned(),
                Tensor {
                    shape: view.shape().to_vec(),
                    values,
                },
            );
        }
    }
    tensors
}

/// Header (without padding) and data of a safetensors file.
pub fn safetensors_parts(tensors: &Tensors) -> (Map<String, Value>, Vec<u8>) {
    let mut header = Map::new();
    let mut data = Vec::new();
    for (name, tensor) in tensors {
        let start = data.len();
        data.extend(tensor.values.iter().flat_map(|value| value.to_le_bytes()));
        let entry =
            json!({"dtype": "F32", "shape": tensor.shape, "data_offsets": [start, data.len()]});
        header.insert(name.clone(), entry);
    }
    (header, data)
}

/// A safetensors file of a header and data.
pub fn pack_safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    let mut header = header.as_bytes().to_vec();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend(data);
    bytes
}

/// Writes f32 tensors.
pub fn write_safetensors(path: &Path, tensors: &Tensors) {
    let (header, data) = safetensors_parts(tensors);
    std::fs::write(
        path,
        pack_safetensors(&Value::Object(header).to_string(), &data),
    )
    .unwrap();
}
