//! XᵀX over the inputs of a projection, computed by a device: its product of matrices is the fastest at hand.

use crate::rounding::f32_view;
use ropeteam_device::{Device, DeviceError};

/// `XᵀX`, `[cols, cols]`, of x, `[rows, cols]`. `device` must hold weights in f32 and is good for nothing else afterwards, as
/// devices do not give memory back.
pub(super) fn gram(
    device: &mut dyn Device,
    x: &[f32],
    cols: usize,
) -> Result<Vec<f32>, DeviceError> {
    let rows = x.len() / cols;
    let mut transposed = vec![0u8; size_of_val(x)];
    for (index, value) in x.iter().enumerate() {
        let at = index % cols * rows + index / cols;
        transposed[at * size_of::<f32>()..][..size_of::<f32>()]
            .copy_from_slice(&value.to_le_bytes());
    }
    // The transposed inputs are a table whose rows are looked up as activations, and a head that multiplies them.
    let weight = device.load_embedding(&f32_view(&transposed, [cols, rows]), true)?;
    drop(transposed);
    let (columns, products) = (device.alloc(cols, rows)?, device.alloc(cols, cols)?);
    let ids: Vec<u32> = (0..cols as u32).collect();
    device.embed(weight, &ids, columns)?;
    device.linear(columns, weight, cols, products)?;
    let mut gram = Vec::with_capacity(cols * cols);
    device.read_rows(products, 0, cols, &mut gram)?;
    Ok(gram)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeteam_device::{CpuDevice, CpuOptions, KvPrecision, Precision};

    #[test]
    fn it_is_the_sum_of_products_of_inputs() {
        let x: Vec<f32> = (0..5 * 3).map(|i| (i * i % 7) as f32 - 3.0).collect();
        let mut device = CpuDevice::new(CpuOptions {
            precision: Precision::F32,
            kv: KvPrecision::ByWeights,
            threads: 1,
        });
        let found = gram(&mut device, &x, 3).unwrap();
        for (index, value) in found.iter().enumerate() {
            let expected: f32 = x.chunks(3).map(|row| row[index / 3] * row[index % 3]).sum();
            assert_eq!(*value, expected);
        }
    }
}
