//! Smoothing for int8: activations behind a norm differ by orders of magnitude from channel to channel, because the norm's
//! weight does, so that one factor for a group of them loses the small ones. Moving the norm's weight into the columns of the matrices
//! that read it leaves the product as it is and evens the activations out; the square root of the columns' own sizes shares
//! what is left between both sides, as in SmoothQuant (Xiao et al. 2022), but without calibration.

use crate::checkpoint::{read_row, rounded};
use ropeteam_device::{Dtype, TensorView};

/// A norm's new weight and the factors that its readers' columns need for the same product.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Smoothing {
    pub norm: Vec<f32>,
    pub columns: Vec<f32>,
}

/// Smaller weights of a norm count as this one.
const SMALLEST_NORM: f32 = 1e-4;
/// Smaller columns count as this one.
const SMALLEST_COLUMN: f32 = 1e-5;

impl Smoothing {
    /// Evens out what `parts`, matrices of floats, read behind the norm `norm`. The new weight consists of numbers of `norm_dtype`.
    pub fn new(norm: &[f32], parts: &[TensorView<'_>], norm_dtype: Dtype) -> Self {
        let sizes = column_sizes(parts, norm.len());
        let wanted = |(norm, size): (&f32, &f32)| {
            norm.abs().max(SMALLEST_NORM) / size.max(SMALLEST_COLUMN).sqrt()
        };
        let mut factors: Vec<f32> = norm.iter().zip(&sizes).map(wanted).collect();
        let mean = factors.iter().sum::<f32>() / factors.len().max(1) as f32;
        factors.iter_mut().for_each(|factor| *factor /= mean);
        let smooth: Vec<f32> = norm
            .iter()
            .zip(&factors)
            .map(|(norm, factor)| rounded(norm_dtype, norm / factor))
            .collect();
        // What rounding took from the norm's weight goes into the column.
        let exact = |((old, new), factor): ((&f32, &f32), &f32)| match old / new {
            ratio if ratio.is_finite() && ratio > 0.0 => ratio,
            _ => *factor,
        };
        let columns = norm.iter().zip(&smooth).zip(&factors).map(exact).collect();
        Self {
            norm: smooth,
            columns,
        }
    }
}

/// The largest magnitude in each column, over all parts.
fn column_sizes(parts: &[TensorView<'_>], inputs: usize) -> Vec<f32> {
    let mut sizes = vec![0.0f32; inputs];
    let mut row = vec![0.0; inputs];
    for part in parts {
        for index in 0..part.shape[0] {
            read_row(part, index, &mut row);
            for (size, x) in sizes.iter_mut().zip(&row) {
                *size = size.max(x.abs());
            }
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::super::f32_view;
    use super::*;

    #[test]
    fn norm_and_columns_together_stay_what_they_were() {
        let norm = [0.5, -2.0, 0.0, 1e-3];
        let matrix: Vec<u8> = [1.0f32, 0.01, 3.0, 100.0, -2.0, 0.0, 1.0, 5.0]
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect();
        for dtype in [Dtype::F32, Dtype::BF16] {
            let smoothing = Smoothing::new(&norm, &[f32_view(&matrix, [2, 4])], dtype);
            for (channel, old) in norm.iter().enumerate() {
                let product = smoothing.norm[channel] * smoothing.columns[channel];
                assert!(
                    (product - old).abs() <= 1e-6 * old.abs(),
                    "channel {channel}"
                );
                assert!(smoothing.columns[channel] > 0.0);
            }
        }
    }
}
