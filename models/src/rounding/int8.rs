//! int8 weights with a factor per output: `w ≈ scale * q`, q from -127 to 127.

use super::share_rows;
use crate::checkpoint::{read_row, rounded};
use ropeteam_device::{Dtype, TensorView};

/// A matrix of signed bytes, row by row, and its factors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Int8Rows {
    pub shape: [usize; 2],
    pub bytes: Vec<u8>,
    pub scales: Vec<f32>,
}

impl Int8Rows {
    /// Rounds a matrix of floats whose columns are multiplied by `columns` first. Factors are numbers of `scale_dtype`.
    pub fn round(view: &TensorView<'_>, columns: Option<&[f32]>, scale_dtype: Dtype) -> Self {
        let [rows, inputs] = view.shape;
        let mut bytes = vec![0; rows * inputs];
        let mut scales = vec![0.0; rows];
        share_rows(rows, &mut bytes, &mut scales, |first, bytes, scales| {
            let mut row = vec![0.0; inputs];
            let outputs = bytes.chunks_exact_mut(inputs).zip(scales);
            for (index, (bytes, scale)) in outputs.enumerate() {
                read_row(view, first + index, &mut row);
                if let Some(columns) = columns {
                    row.iter_mut().zip(columns).for_each(|(x, c)| *x *= c);
                }
                *scale = round_row(&row, scale_dtype, bytes);
            }
        });
        Self {
            shape: view.shape,
            bytes,
            scales,
        }
    }

    /// It, as devices take it.
    pub fn view(&self) -> TensorView<'_> {
        TensorView {
            dtype: Dtype::I8,
            shape: self.shape,
            bytes: &self.bytes,
            row_order: None,
            scales: Some(&self.scales),
        }
    }
}

/// Rounds one row and returns its factor.
fn round_row(row: &[f32], scale_dtype: Dtype, out: &mut [u8]) -> f32 {
    let largest = row.iter().fold(0.0f32, |max, x| max.max(x.abs()));
    let scale = rounded(scale_dtype, largest / 127.0);
    if scale == 0.0 {
        out.fill(0);
        return 0.0;
    }
    let inverse = 1.0 / scale;
    for (x, out) in row.iter().zip(out) {
        *out = (x * inverse).round().clamp(-127.0, 127.0) as i8 as u8;
    }
    scale
}

#[cfg(test)]
mod tests {
    use super::super::f32_view;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_weight_moves_by_more_than_half_a_step(
            values in proptest::collection::vec(-10.0f32..10.0, 3 * 7),
            columns in proptest::collection::vec(0.1f32..3.0, 7),
        ) {
            let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            let view = f32_view(&bytes, [3, 7]);
            let found = Int8Rows::round(&view, Some(&columns), Dtype::F32);
            for (index, value) in values.iter().enumerate() {
                let expected = value * columns[index % 7];
                let scale = found.scales[index / 7];
                let held = f32::from(found.bytes[index] as i8) * scale;
                prop_assert!((held - expected).abs() <= 0.501 * scale, "{held} for {expected}");
            }
        }
    }

    #[test]
    fn a_row_of_zeros_stays_one_and_factors_have_the_format_asked_for() {
        let bytes: Vec<u8> = [0.0f32, 0.0, 1.0, -0.3]
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect();
        let found = Int8Rows::round(&f32_view(&bytes, [2, 2]), None, Dtype::BF16);
        assert_eq!(found.bytes[..2], [0, 0]);
        assert_eq!(found.scales[1], rounded(Dtype::BF16, 1.0 / 127.0));
        assert_eq!(found.bytes[2] as i8, 127);
    }
}
