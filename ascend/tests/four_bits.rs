//! Weights of four bits stay so: one launch per product, the bias in it.

mod rig;

use rig::stand_in;
use ropeteam_device::{Device, Dtype, Float, Precision, TensorView, dequant_row};

const INPUTS: usize = 128;
const OUTPUTS: usize = 6;
const BLOCK: usize = 20;

#[test]
fn a_product_of_int4_is_one_launch() {
    let stand_in = stand_in();
    let mut bytes: Vec<u8> = (0..OUTPUTS * INPUTS / 32 * BLOCK)
        .map(|i| (i * 37 % 251) as u8)
        .collect();
    for (i, block) in bytes.chunks_exact_mut(BLOCK).enumerate() {
        // 2^-5 and -0.25; every row has one block of nothing but its minimum.
        let head = if i % 4 == 1 {
            [0, 0, 0, 0xb4]
        } else {
            [0, 0x28, 0, 0xb4]
        };
        block[..4].copy_from_slice(&head);
    }
    let weight = TensorView {
        dtype: Dtype::Q4_1,
        shape: [OUTPUTS, INPUTS],
        bytes: &bytes,
        row_order: None,
        scales: None,
    };
    let biases: Vec<f32> = (0..OUTPUTS).map(|i| i as f32).collect();
    let bias_bytes: Vec<u8> = biases.iter().flat_map(|x| x.to_le_bytes()).collect();
    let bias = TensorView {
        dtype: Dtype::F32,
        shape: [OUTPUTS, 1],
        bytes: &bias_bytes,
        row_order: None,
        scales: None,
    };
    let ones: Vec<u8> = (0..INPUTS)
        .flat_map(|i| ((i % 3) as f32).to_le_bytes())
        .collect();
    let row = TensorView {
        dtype: Dtype::F32,
        shape: [1, INPUTS],
        bytes: &ones,
        row_order: None,
        scales: None,
    };
    let mut numbers = vec![0f32; OUTPUTS * INPUTS];
    dequant_row(Dtype::Q4_1, &bytes, &mut numbers);
    for (number, float) in [(4, Float::Bf16), (5, Float::F16)] {
        let mut device = stand_in.open(number, Precision::Stored, float);
        let weight = device.load_linear(&[weight], &[bias]).expect("load_linear");
        let table = device.load_embedding(&row, false).expect("load_embedding");
        let x = device.alloc(1, INPUTS).expect("alloc");
        let out = device.alloc(1, OUTPUTS).expect("alloc");
        device.embed(table, &[0], x).expect("embed");
        let before = device.launches().0;
        device.linear(x, weight, 1, out).expect("linear");
        assert_eq!(device.launches().0 - before, 1);
        let mut found = Vec::new();
        device.read_rows(out, 0, 1, &mut found).expect("read_rows");
        for (output, found) in found.iter().enumerate() {
            let row = &numbers[output * INPUTS..][..INPUTS];
            let inputs = (0..INPUTS).map(|i| (i % 3) as f32);
            let sum: f32 = row.iter().zip(inputs).map(|(a, b)| a * b).sum();
            let expected = sum + biases[output];
            assert!(
                (found - expected).abs() <= 0.01 * expected.abs().max(1.0),
                "{float:?}, output {output}: {found}, not {expected}"
            );
        }
    }
    stand_in.clean();
}
