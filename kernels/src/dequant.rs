//! Rows of stored weights to f32, for every `Dtype`. Layouts of the block formats: the GGUF specification.

use crate::Dtype;
use half::{bf16, f16};

/// Decodes one row: `bytes` holds exactly `dtype.row_bytes(out.len())` bytes. Of `Dtype::I8` the factor is the caller's to apply.
///
/// # Panics
/// When the lengths do not fit together.
pub fn dequant_row(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    let expected = dtype.row_bytes(out.len());
    assert_eq!(
        expected,
        Some(bytes.len()),
        "bytes of a {dtype:?} row of {}",
        out.len()
    );
    match dtype {
        Dtype::F32 => {
            for (o, b) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *o = f32::from_le_bytes(*b);
            }
        }
        Dtype::F16 => {
            for (o, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *o = f16::from_le_bytes(*b).to_f32();
            }
        }
        Dtype::BF16 => {
            for (o, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *o = bf16::from_le_bytes(*b).to_f32();
            }
        }
        Dtype::I8 => {
            for (o, b) in out.iter_mut().zip(bytes) {
                *o = f32::from(*b as i8);
            }
        }
        Dtype::Q4_0 => blocks(bytes, out, q4_0),
        Dtype::Q4_1 => blocks(bytes, out, q4_1),
        Dtype::Q8_0 => blocks(bytes, out, q8_0),
        Dtype::Q4_K => blocks(bytes, out, q4_k),
        Dtype::Q6_K => blocks(bytes, out, q6_k),
    }
}

fn blocks<const BYTES: usize, const ELEMENTS: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; ELEMENTS]),
) {
    let (bytes, _) = bytes.as_chunks::<BYTES>();
    let (out, _) = out.as_chunks_mut::<ELEMENTS>();
    for (b, o) in bytes.iter().zip(out) {
        decode(b, o);
    }
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = half_at(block, 0);
    let (low, high) = out.split_at_mut(16);
    for ((q, l), h) in block[2..].iter().zip(low).zip(high) {
        *l = (f32::from(q & 15) - 8.0) * d;
        *h = (f32::from(q >> 4) - 8.0) * d;
    }
}

fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (d, min) = (half_at(block, 0), half_at(block, 2));
    let (low, high) = out.split_at_mut(16);
    for ((q, l), h) in block[4..].iter().zip(low).zip(high) {
        *l = f32::from(q & 15) * d + min;
        *h = f32::from(q >> 4) * d + min;
    }
}

fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let d = half_at(block, 0);
    for (q, o) in block[2..].iter().zip(out) {
        *o = f32::from(*q as i8) * d;
    }
}

/// The 6-bit scale and minimum of sub-block `j` of 8, out of the 12 bytes that hold them all.
pub(crate) fn q4_k_scale_min(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        (
            (packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4),
            (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4),
        )
    };
    (f32::from(scale), f32::from(min))
}

fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let packed = &block[4..16];
    // Each 32 bytes hold two sub-blocks of 32: the low nibbles, then the high ones.
    for (pair, (q, out)) in block[16..]
        .chunks_exact(32)
        .zip(out.chunks_exact_mut(64))
        .enumerate()
    {
        let (low, high) = out.split_at_mut(32);
        let (scale, min) = q4_k_scale_min(packed, 2 * pair);
        for (q, o) in q.iter().zip(low) {
            *o = d * scale * f32::from(q & 15) - dmin * min;
        }
        let (scale, min) = q4_k_scale_min(packed, 2 * pair + 1);
        for (q, o) in q.iter().zip(high) {
            *o = d * scale * f32::from(q >> 4) - dmin * min;
        }
    }
}

fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let (low, rest) = block.split_at(128);
    let (high, rest) = rest.split_at(64);
    let (scales, _) = rest.split_at(16);
    let d = half_at(block, 208);
    // Each half of the block: 64 bytes of low nibbles and 32 bytes of high bit pairs make four runs of 32.
    for half in 0..2 {
        let low = &low[64 * half..64 * half + 64];
        let high = &high[32 * half..32 * half + 32];
        for run in 0..4 {
            for l in 0..32 {
                let byte = low[l + 32 * (run % 2)];
                let nibble = if run < 2 { byte & 15 } else { byte >> 4 };
                let q = nibble | (((high[l] >> (2 * run)) & 3) << 4);
                let scale = scales[8 * half + 2 * run + l / 16] as i8;
                out[128 * half + 32 * run + l] = d * f32::from(scale) * (f32::from(q) - 32.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q4_blocks_follow_their_formulas() {
        let mut block = vec![0u8; 20];
        block[..2].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        block[2..4].copy_from_slice(&f16::from_f32(-2.0).to_le_bytes());
        block[4] = 0x3f;
        let mut out = [0.0; 32];
        dequant_row(Dtype::Q4_1, &block, &mut out);
        assert_eq!(
            (out[0], out[16], out[1]),
            (15.0 * 0.5 - 2.0, 3.0 * 0.5 - 2.0, -2.0)
        );
        block.truncate(18);
        block[2..].fill(0x9a);
        dequant_row(Dtype::Q4_0, &block, &mut out);
        assert_eq!((out[0], out[16]), (1.0, 0.5));
    }

    #[test]
    fn q8_blocks_are_signed() {
        let mut block = vec![0u8; 34];
        block[..2].copy_from_slice(&f16::from_f32(0.25).to_le_bytes());
        block[2] = 0x80;
        block[33] = 127;
        let mut out = [0.0; 32];
        dequant_row(Dtype::Q8_0, &block, &mut out);
        assert_eq!((out[0], out[31]), (-32.0, 31.75));
    }

    #[test]
    fn q4_k_reads_its_six_bit_scales() {
        let mut block = vec![0u8; 144];
        block[..2].copy_from_slice(&f16::from_f32(1.0).to_le_bytes());
        block[2..4].copy_from_slice(&f16::from_f32(1.0).to_le_bytes());
        // Sub-block 0: scale 2, minimum 3. Sub-block 4: scale 0b110101, minimum 0b100110.
        block[4] = 2 | (0b11 << 6);
        block[8] = 3 | (0b10 << 6);
        block[12] = 0b0101 | (0b0110 << 4);
        block[16] = 5;
        block[16 + 64] = 1;
        let mut out = [0.0; 256];
        dequant_row(Dtype::Q4_K, &block, &mut out);
        assert_eq!(out[0], 2.0 * 5.0 - 3.0);
        assert_eq!(out[128], 53.0 - 38.0);
    }

    #[test]
    fn q6_k_joins_low_and_high_bits() {
        let mut block = vec![0u8; 210];
        block[208..].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        block[192..208].fill(2);
        block[0] = 0xA5;
        block[128] = 0b11_01_10_01;
        let mut out = [0.0; 256];
        dequant_row(Dtype::Q6_K, &block, &mut out);
        assert_eq!(out[0], (5.0 + 16.0) - 32.0);
        assert_eq!(out[64], (10.0 + 16.0) - 32.0);
        assert_eq!(out[32], 32.0 - 32.0);
        assert_eq!(out[96], 48.0 - 32.0);
    }
}
