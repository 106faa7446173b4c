//! What a decoder layer costs the host: launches, and first phases of operators once all shapes are known.

mod rig;

use rig::stand_in;
use ropeteam_device::{
    AttentionShape, Device, Dtype, Float, Join, KvShape, Precision, Rope, Rows, Segment,
    TensorView, Weight,
};

const HIDDEN: usize = 64;
const HEADS: usize = 4;
const HEAD_DIM: usize = 16;
const INTERMEDIATE: usize = 48;

fn weight(device: &mut dyn Device, outputs: usize, inputs: usize) -> Weight {
    let numbers = (0..outputs * inputs).map(|i| (i % 7) as f32 / 70.0);
    let bytes: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
    let view = TensorView {
        dtype: Dtype::F32,
        shape: [outputs, inputs],
        bytes: &bytes,
        row_order: None,
        scales: None,
    };
    match inputs {
        1 => device.load_vector(&view).expect("load_vector"),
        _ => device.load_linear(&[view], &[]).expect("load_linear"),
    }
}

#[test]
fn a_layer_takes_eleven_launches_and_prepares_only_its_attention_again() {
    let stand_in = stand_in();
    let mut device = stand_in.open(3, Precision::Bf16, Float::Bf16);
    let shape = AttentionShape {
        heads: HEADS,
        kv_heads: HEADS,
        head_dim: HEAD_DIM,
        scale: 0.25,
        window: None,
    };
    let cache = KvShape {
        layers: 1,
        blocks: 2,
        block_size: 128,
        kv_heads: HEADS,
        head_dim: HEAD_DIM,
    };
    let rope = Rope {
        inv_freq: vec![0.5; HEAD_DIM / 2],
        scale: 1.0,
        interleaved: false,
    };
    device.alloc_kv(cache).expect("alloc_kv");
    let norm = weight(&mut device, HIDDEN, 1);
    let qkv_weight = weight(&mut device, 3 * HIDDEN, HIDDEN);
    let output = weight(&mut device, HIDDEN, HIDDEN);
    let gate_up_weight = weight(&mut device, 2 * INTERMEDIATE, HIDDEN);
    let down = weight(&mut device, HIDDEN, INTERMEDIATE);
    let mut alloc = |cols| device.alloc(2, cols).expect("alloc");
    let (residual, hidden, context) = (alloc(HIDDEN), alloc(HIDDEN), alloc(HIDDEN));
    let (qkv, gate_up) = (alloc(3 * HIDDEN), alloc(2 * INTERMEDIATE));
    let join = Join {
        result: hidden,
        residual,
        norm,
        eps: 1e-5,
    };
    let before = device.launches();
    for position in 0..3u32 {
        let rows = Rows {
            positions: vec![position, position],
            slots: vec![position, 128 + position],
            segments: (0..2)
                .map(|i| Segment {
                    first_row: i,
                    rows: 1,
                    blocks: vec![i as u32],
                })
                .collect(),
        };
        let device: &mut dyn Device = &mut device;
        let mut layer = || {
            device.joined_linear(join, qkv_weight, 2, qkv)?;
            device.rope_and_cache(qkv, 0, &shape, &rope, &rows)?;
            device.attention(qkv, 0, &shape, &rows, context)?;
            device.linear(context, output, 2, hidden)?;
            device.joined_linear(join, gate_up_weight, 2, gate_up)?;
            device.gated_linear(gate_up, down, 2, hidden)
        };
        layer().expect("a layer");
        let mut read = Vec::new();
        device
            .read_rows(hidden, 0, 2, &mut read)
            .expect("read_rows");
        assert!(read.iter().all(|x| x.is_finite()), "{read:?}");
    }
    let after = device.launches();
    assert_eq!(after.0 - before.0, 3 * 11);
    // One norm, four products, rotation, copy, store, gate, attention; then attention alone.
    assert_eq!(after.1 - before.1, 10 + 2);
    drop(device);
    stand_in.clean();
}
