//! Writes GGUF files.

/// A value of GGUF metadata.
pub enum Meta {
    U32(u32),
    F32(f32),
    Bool(bool),
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
        Meta::Bool(flag) => {
            out.extend(7u32.to_le_bytes());
            out.push(u8::from(*flag));
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
