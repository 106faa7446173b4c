//! The element formats of GGUF files, written down once more and plainly: encoders for small files, and decoders that follow
//! the format's definition element by element.
#![allow(dead_code, reason = "each test file uses its own part")]

use half::{bf16, f16};

/// A format: its number in GGUF files, its encoder, its decoder.
#[derive(Clone, Copy)]
pub struct Format {
    pub name: &'static str,
    pub kind: u32,
    pub block: usize,
    pub encode: fn(&[f32]) -> Vec<u8>,
    pub decode: fn(&[u8]) -> Vec<f32>,
}

pub const F32: Format = Format {
    name: "F32",
    kind: 0,
    block: 1,
    encode: |values| {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    },
    decode: |bytes| {
        bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&word| f32::from_le_bytes(word))
            .collect()
    },
};
pub const F16: Format = Format {
    name: "F16",
    kind: 1,
    block: 1,
    encode: |values| {
        values
            .iter()
            .flat_map(|&value| f16::from_f32(value).to_le_bytes())
            .collect()
    },
    decode: |bytes| {
        bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|&word| f16::from_le_bytes(word).to_f32())
            .collect()
    },
};
pub const BF16: Format = Format {
    name: "BF16",
    kind: 30,
    block: 1,
    encode: |values| {
        values
            .iter()
            .flat_map(|&value| bf16::from_f32(value).to_le_bytes())
            .collect()
    },
    decode: |bytes| {
        bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|&word| bf16::from_le_bytes(word).to_f32())
            .collect()
    },
};
pub const Q4_0: Format = Format {
    name: "Q4_0",
    kind: 2,
    block: 32,
    encode: encode_q4_0,
    decode: decode_q4_0,
};
pub const Q4_1: Format = Format {
    name: "Q4_1",
    kind: 3,
    block: 32,
    encode: encode_q4_1,
    decode: decode_q4_1,
};
pub const Q8_0: Format = Format {
    name: "Q8_0",
    kind: 8,
    block: 32,
    encode: encode_q8_0,
    decode: decode_q8_0,
};

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Sixteen bytes of nibbles: element i low in byte i, element i + 16 high in byte i.
fn nibbles(quants: &[u8]) -> Vec<u8> {
    (0..16).map(|i| quants[i] | (quants[i + 16] << 4)).collect()
}

fn nibble(bytes: &[u8], i: usize) -> f32 {
    f32::from(if i < 16 {
        bytes[i] & 15
    } else {
        bytes[i - 16] >> 4
    })
}

fn encode_q4_0(values: &[f32]) -> Vec<u8> {
    let encode = |block: &[f32]| {
        let largest = block.iter().fold(0.0f32, |max, value| max.max(value.abs()));
        let scale = f16::from_f32(largest / 7.0);
        let quant = |value: &f32| ((value / scale.to_f32()).round().clamp(-8.0, 7.0) + 8.0) as u8;
        let quants: Vec<u8> = block.iter().map(quant).collect();
        [scale.to_le_bytes().to_vec(), nibbles(&quants)].concat()
    };
    values.chunks(32).flat_map(encode).collect()
}

fn decode_q4_0(bytes: &[u8]) -> Vec<f32> {
    let decode = |block: &[u8]| -> Vec<f32> {
        (0..32)
            .map(|i| (nibble(&block[2..], i) - 8.0) * half_at(block, 0))
            .collect()
    };
    bytes.chunks(18).flat_map(decode).collect()
}

fn encode_q4_1(values: &[f32]) -> Vec<u8> {
    let encode = |block: &[f32]| {
        let min = block.iter().copied().fold(f32::INFINITY, f32::min);
        let max = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let (scale, min) = (f16::from_f32((max - min) / 15.0), f16::from_f32(min));
        let quant = |value: &f32| {
            ((value - min.to_f32()) / scale.to_f32())
                .round()
                .clamp(0.0, 15.0) as u8
        };
        let quants: Vec<u8> = block.iter().map(quant).collect();
        [
            scale.to_le_bytes().to_vec(),
            min.to_le_bytes().to_vec(),
            nibbles(&quants),
        ]
        .concat()
    };
    values.chunks(32).flat_map(encode).collect()
}

fn decode_q4_1(bytes: &[u8]) -> Vec<f32> {
    let decode = |block: &[u8]| -> Vec<f32> {
        (0..32)
            .map(|i| nibble(&block[4..], i) * half_at(block, 0) + half_at(block, 2))
            .collect()
    };
    bytes.chunks(20).flat_map(decode).collect()
}

fn encode_q8_0(values: &[f32]) -> Vec<u8> {
    let encode = |block: &[f32]| {
        let largest = block.iter().fold(0.0f32, |max, value| max.max(value.abs()));
        let scale = f16::from_f32(largest / 127.0);
        let quant = |value: &f32| (value / scale.to_f32()).round().clamp(-127.0, 127.0) as i8 as u8;
        [
            scale.to_le_bytes().to_vec(),
            block.iter().map(quant).collect(),
        ]
        .concat()
    };
    values.chunks(32).flat_map(encode).collect()
}

fn decode_q8_0(bytes: &[u8]) -> Vec<f32> {
    let decode = |block: &[u8]| -> Vec<f32> {
        block[2..]
            .iter()
            .map(|&quant| f32::from(quant as i8) * half_at(block, 0))
            .collect()
    };
    bytes.chunks(34).flat_map(decode).collect()
}

/// Q4_K: blocks of 256, `d`, `dmin`, 8 six-bit scales and minima in 12 bytes, 128 bytes of nibbles.
/// Element i of sub-block i / 32: `d * scale * q - dmin * min`.
pub fn decode_q4_k(bytes: &[u8]) -> Vec<f32> {
    let decode = |block: &[u8]| -> Vec<f32> {
        let (d, dmin, packed, quants) = (
            half_at(block, 0),
            half_at(block, 2),
            &block[4..16],
            &block[16..],
        );
        let element = |i: usize| {
            let sub = i / 32;
            // Bytes 0..4 hold scales 0..4 and the high bits of scales 4..8, bytes 4..8 the same of the minima,
            // bytes 8..12 the low bits of scales 4..8 (low nibble) and of minima 4..8 (high nibble).
            let (scale, min) = match sub {
                0..4 => (packed[sub] % 64, packed[sub + 4] % 64),
                _ => (
                    packed[sub + 4] % 16 + packed[sub - 4] / 64 * 16,
                    packed[sub + 4] / 16 + packed[sub] / 64 * 16,
                ),
            };
            let byte = quants[sub / 2 * 32 + i % 32];
            let quant = if sub.is_multiple_of(2) {
                byte % 16
            } else {
                byte / 16
            };
            d * f32::from(scale) * f32::from(quant) - dmin * f32::from(min)
        };
        (0..256).map(element).collect()
    };
    bytes.chunks(144).flat_map(decode).collect()
}

/// Q6_K: blocks of 256, 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales, `d`.
/// Element i: `d * scale[i / 16] * (q - 32)`.
pub fn decode_q6_k(bytes: &[u8]) -> Vec<f32> {
    let decode = |block: &[u8]| -> Vec<f32> {
        let element = |i: usize| {
            let (half, within) = (i / 128, i % 128);
            let low = block[half * 64 + within % 64];
            let low = if within < 64 { low % 16 } else { low / 16 };
            let high = block[128 + half * 32 + within % 32] >> (within / 32 * 2) & 3;
            let scale = block[192 + i / 16] as i8;
            half_at(block, 208) * f32::from(scale) * (f32::from(low + high * 16) - 32.0)
        };
        (0..256).map(element).collect()
    };
    bytes.chunks(210).flat_map(decode).collect()
}
