//! Finds infinities and NaN in stored weights: one of them would turn every logit of the model into NaN, which no
//! sampling rule can handle, so such a file is refused before it serves.

use ropeteam_device::{Dtype, TensorView};

/// The first row, as stored, that holds an infinity or NaN.
pub(super) fn first_bad_row(view: &TensorView<'_>) -> Option<usize> {
    let row_bytes = view.dtype.row_bytes(view.shape[1])?.max(1);
    let bad = |bytes: &[u8]| match view.dtype {
        Dtype::F32 => any_f32(bytes),
        Dtype::F16 => any_u16(bytes, F16_EXPONENT),
        Dtype::BF16 => any_u16(bytes, BF16_EXPONENT),
        blocks => any_scale(bytes, blocks),
    };
    // One pass over everything first: it runs at memory speed, and rows matter only for the message.
    if !bad(view.bytes) {
        return None;
    }
    view.bytes.chunks(row_bytes).position(bad)
}

/// Exponent bits; all of them set means infinity or NaN.
const F32_EXPONENT: u32 = 0x7f80_0000;
const BF16_EXPONENT: u16 = 0x7f80;
const F16_EXPONENT: u16 = 0x7c00;

/// Elements looked at between two early exits, so that the inner loop vectorises.
const STRIDE: usize = 4096;

fn any_f32(bytes: &[u8]) -> bool {
    let (words, _) = bytes.as_chunks::<4>();
    words.chunks(STRIDE).any(|words| {
        words.iter().fold(false, |bad, &word| {
            bad | (u32::from_le_bytes(word) & F32_EXPONENT == F32_EXPONENT)
        })
    })
}

fn any_u16(bytes: &[u8], exponent: u16) -> bool {
    let (words, _) = bytes.as_chunks::<2>();
    words.chunks(STRIDE).any(|words| {
        words.iter().fold(false, |bad, &word| {
            bad | (u16::from_le_bytes(word) & exponent == exponent)
        })
    })
}

/// Block formats can only be bad in their f16 scales.
fn any_scale(bytes: &[u8], dtype: Dtype) -> bool {
    let scales = match dtype {
        Dtype::Q4_0 | Dtype::Q8_0 => 0..2,
        Dtype::Q4_1 | Dtype::Q4_K => 0..4,
        Dtype::Q6_K => 208..210,
        Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::I8 => return false,
    };
    bytes.chunks(dtype.block_bytes()).any(|block| {
        block
            .get(scales.clone())
            .is_some_and(|scales| any_u16(scales, F16_EXPONENT))
    })
}
