//! Reads and writes model files for tests: safetensors of f32 tensors, and GGUF.
#![allow(dead_code, reason = "each test file uses its own part")]

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

/// A value of GGUF metadata.
pub enum Meta {
    U32(u32),
    F32(f32),
    Text(&'static str),
    Texts(Vec<String>),
    I32s(Vec<i32>),
}

/// A tensor as a GGUF file stores it.
pub struct GgufTensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub kind: u32,
    pub bytes: Vec<u8>,
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_meta(out: &mut Vec<u8>, value: &Meta) {
    match value {
        Meta::U32(number) => {
            out.extend(4u32.to_le_bytes());
            out.extend(number.to_le_bytes());
        }
        Meta::F32(number) => {
            out.extend(6u32.to_le_bytes());
            out.extend(number.to_le_bytes());
        }
        Meta::Text(text) => {
            out.extend(8u32.to_le_bytes());
            put_text(out, text);
        }
        Meta::Texts(texts) => {
            out.extend(9u32.to_le_bytes());
            out.extend(8u32.to_le_bytes());
            out.extend((texts.len() as u64).to_le_bytes());
            texts.iter().for_each(|text| put_text(out, text));
        }
        Meta::I32s(numbers) => {
            out.extend(9u32.to_le_bytes());
            out.extend(5u32.to_le_bytes());
            out.extend((numbers.len() as u64).to_le_bytes());
            out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
    }
}

/// A GGUF file of that version.
pub fn gguf_bytes(version: u32, metadata: &[(String, Meta)], tensors: &[GgufTensor]) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(version.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        put_text(&mut out, key);
        put_meta(&mut out, value);
    }
    let mut offset = 0;
    for tensor in tensors {
        put_text(&mut out, &tensor.name);
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        for &size in tensor.shape.iter().rev() {
            out.extend((size as u64).to_le_bytes());
        }
        out.extend(tensor.kind.to_le_bytes());
        out.extend((offset as u64).to_le_bytes());
        offset += tensor.bytes.len().next_multiple_of(32);
    }
    for tensor in tensors {
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(&tensor.bytes);
    }
    out
}
