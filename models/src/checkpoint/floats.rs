//! Stored numbers as f32, and f32 as stored floats.

use half::{bf16, f16};
use ropeteam_device::{Dtype, TensorView, dequant_row};

/// Whether such elements are floats.
pub(crate) fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16)
}

/// Writes row `row` of a checked tensor, `row_order` and factors applied, to `out`.
///
/// # Panics
/// When there is no such row or `out` has another width.
pub(crate) fn read_row(view: &TensorView<'_>, row: usize, out: &mut [f32]) {
    assert_eq!(out.len(), view.shape[1], "width of a row");
    let stored = view.row_order.map_or(row, |order| order[row] as usize);
    let width = out.len() / view.dtype.block_elements() * view.dtype.block_bytes();
    dequant_row(view.dtype, &view.bytes[stored * width..][..width], out);
    if let Some(scales) = view.scales {
        out.iter_mut().for_each(|x| *x *= scales[stored]);
    }
}

/// All elements of a checked tensor, row by row.
pub(crate) fn read_all(view: &TensorView<'_>) -> Vec<f32> {
    let mut values = vec![0.0; view.shape[0] * view.shape[1]];
    for (row, out) in values.chunks_exact_mut(view.shape[1].max(1)).enumerate() {
        read_row(view, row, out);
    }
    values
}

/// The number of `dtype` next to `x`.
///
/// # Panics
/// When `dtype` is no format of floats.
pub(crate) fn rounded(dtype: Dtype, x: f32) -> f32 {
    match dtype {
        Dtype::F32 => x,
        Dtype::F16 => f16::from_f32(x).to_f32(),
        Dtype::BF16 => bf16::from_f32(x).to_f32(),
        other => unreachable!("invariant: callers ask is_float first, found {other:?}"),
    }
}

/// `values` as they are stored in `dtype`.
///
/// # Panics
/// When `dtype` is no format of floats.
pub(crate) fn stored(dtype: Dtype, values: &[f32]) -> Vec<u8> {
    let numbers = values.iter();
    match dtype {
        Dtype::F32 => numbers.flat_map(|x| x.to_le_bytes()).collect(),
        Dtype::F16 => numbers
            .flat_map(|x| f16::from_f32(*x).to_le_bytes())
            .collect(),
        Dtype::BF16 => numbers
            .flat_map(|x| bf16::from_f32(*x).to_le_bytes())
            .collect(),
        other => unreachable!("invariant: callers ask is_float first, found {other:?}"),
    }
}
