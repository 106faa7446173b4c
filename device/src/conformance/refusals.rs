//! Calls that do not fit: each is a `Shape` error, and the device works on.

use super::numbers::bytes;
use super::session::view;
use crate::{
    Act, AttentionShape, ColumnMask, Device, DeviceError, Dtype, Join, KvShape, Rope, Rows,
    Segment, Weight,
};

#[track_caller]
fn refused<T>(what: &str, outcome: Result<T, DeviceError>) {
    match outcome {
        Err(DeviceError::Shape { .. }) => {}
        Err(other) => panic!("{what}: {other} instead of a shape error"),
        Ok(_) => panic!("{what} was accepted"),
    }
}

pub(super) fn check(device: &mut dyn Device) {
    loads(device);
    factors(device);
    let numbers = bytes(&[0.5; 12]);
    let table = device
        .load_embedding(&view(&numbers, 4, 3), false)
        .expect("load_embedding");
    let weight = device
        .load_linear(&[view(&numbers, 4, 3)], &[])
        .expect("load_linear");
    let vector = device
        .load_vector(&view(&numbers[..12], 3, 1))
        .expect("load_vector");
    let (x, y) = (
        device.alloc(2, 3).expect("alloc"),
        device.alloc(2, 4).expect("alloc"),
    );
    operators(device, [table, weight, vector], [x, y]);
    reads(device, x);
    attentions(device);
    device
        .embed(table, &[3, 0], x)
        .expect("the device works on");
}

fn loads(device: &mut dyn Device) {
    let numbers = bytes(&[0.5; 12]);
    refused(
        "bytes beyond the shape",
        device.load_linear(&[view(&numbers, 3, 3)], &[]),
    );
    refused(
        "bytes short of the shape",
        device.load_embedding(&view(&numbers, 5, 3), true),
    );
    refused("a short vector", device.load_vector(&view(&numbers, 13, 1)));
    refused("no parts", device.load_linear(&[], &[]));
    refused(
        "parts of two widths",
        device.load_linear(&[view(&numbers, 4, 3), view(&numbers, 3, 4)], &[]),
    );
    refused(
        "a short bias",
        device.load_linear(&[view(&numbers, 4, 3)], &[view(&numbers[..12], 3, 1)]),
    );
    let mut blocks = view(&numbers, 2, 33);
    blocks.dtype = Dtype::Q8_0;
    refused("rows of broken blocks", device.load_linear(&[blocks], &[]));
    let mut ordered = view(&numbers, 4, 3);
    ordered.row_order = Some(&[0, 1, 2, 4]);
    refused(
        "an order out of the matrix",
        device.load_linear(&[ordered], &[]),
    );
    ordered.row_order = Some(&[0, 1, 2]);
    refused("a short order", device.load_linear(&[ordered], &[]));
}

/// Factors belong to rows of int8, one to each.
fn factors(device: &mut dyn Device) {
    let numbers = [7u8; 12];
    let mut part = view(&numbers, 4, 3);
    part.dtype = Dtype::I8;
    refused("int8 without factors", device.load_linear(&[part], &[]));
    part.scales = Some(&[0.5; 3]);
    refused("too few factors", device.load_embedding(&part, false));
    part.scales = Some(&[0.5; 4]);
    device.load_linear(&[part], &[]).expect("rows of int8");
    part.bytes = &numbers[..11];
    refused("int8 short of the shape", device.load_linear(&[part], &[]));
    let numbers = bytes(&[0.5; 12]);
    let mut part = view(&numbers, 4, 3);
    part.scales = Some(&[0.5; 4]);
    refused("factors of floats", device.load_linear(&[part], &[]));
}

fn operators(device: &mut dyn Device, [table, weight, vector]: [Weight; 3], [x, y]: [Act; 2]) {
    refused("an id out of the table", device.embed(table, &[0, 4], x));
    refused("embedding by a matrix", device.embed(weight, &[0], x));
    refused("too many rows", device.embed(table, &[0, 1, 2], x));
    refused("another width", device.embed(table, &[0], y));
    refused("rows beyond the buffer", device.linear(x, weight, 3, y));
    refused("an untied head", device.linear(x, table, 1, y));
    refused("a vector as matrix", device.linear(x, vector, 1, y));
    refused("swapped buffers", device.linear(y, weight, 1, x));
    refused(
        "one buffer for both",
        device.rms_norm(x, vector, 1e-5, 1, x),
    );
    refused(
        "a norm of another width",
        device.rms_norm(y, vector, 1e-5, 1, y),
    );
    refused(
        "a head beyond the row",
        device.head_norm(x, 1, 1, vector, 1e-5, 1),
    );
    refused("no such weight", device.linear(x, Weight(1000), 1, y));
    refused("no such buffer", device.add(x, Act(1000), 1));
    refused("other widths", device.add(x, y, 1));
    refused("silu of another width", device.silu_mul(x, 1, y));
    refused(
        "gates of another width",
        device.gated_linear(x, weight, 1, y),
    );
    let join = Join {
        result: x,
        residual: x,
        norm: vector,
        eps: 1e-5,
    };
    refused(
        "a result that is its own stream",
        device.joined_linear(join, weight, 1, y),
    );
}

fn reads(device: &mut dyn Device, x: Act) {
    let y = device.alloc(1, 3).expect("alloc");
    refused("a row that is not there", device.take_rows(x, &[2], y));
    refused("more rows than out has", device.take_rows(x, &[0, 1], y));
    refused(
        "rows past the end",
        device.read_rows(x, 1, 2, &mut Vec::new()),
    );
    refused(
        "rows past all numbers",
        device.read_rows(x, usize::MAX, 2, &mut Vec::new()),
    );
    let wide = ColumnMask {
        limit: 4,
        holes: vec![],
    };
    refused(
        "a limit beyond the row",
        device.read_argmax(x, 0, 1, &wide, &mut Vec::new()),
    );
}

fn attentions(device: &mut dyn Device) {
    let limits = device.info().attention;
    let head_dim = 4usize.next_multiple_of(limits.head_dim_step);
    let block_size = 2usize.next_multiple_of(limits.block_size_step);
    let last = block_size as u32;
    let shape = AttentionShape {
        heads: 2,
        kv_heads: 1,
        head_dim,
        scale: 0.5,
        window: None,
    };
    let kv = KvShape {
        layers: 1,
        blocks: 3,
        block_size,
        kv_heads: 1,
        head_dim,
    };
    let rope = Rope {
        inv_freq: vec![1.0, 0.1],
        scale: 1.0,
        interleaved: false,
    };
    let rows = Rows {
        positions: (0..=last).collect(),
        slots: (2 * last..3 * last).chain([0]).collect(),
        segments: vec![Segment {
            first_row: 0,
            rows: block_size + 1,
            blocks: vec![2, 0],
        }],
    };
    let (qkv, out) = (
        device.alloc(block_size + 1, 4 * head_dim).expect("alloc"),
        device.alloc(block_size + 1, 2 * head_dim).expect("alloc"),
    );
    refused(
        "an empty cache",
        device.alloc_kv(KvShape { blocks: 0, ..kv }),
    );
    refused(
        "slots beyond 32 bits",
        device.alloc_kv(KvShape {
            blocks: usize::MAX,
            ..kv
        }),
    );
    device.alloc_kv(kv).expect("alloc_kv");
    device
        .rope_and_cache(qkv, 0, &shape, &rope, &rows)
        .expect("rope_and_cache");
    device
        .attention(qkv, 0, &shape, &rows, out)
        .expect("attention");

    let mut both = |what: &str, layer: usize, shape: &AttentionShape, rope: &Rope, rows: &Rows| {
        refused(what, device.rope_and_cache(qkv, layer, shape, rope, rows));
        refused(what, device.attention(qkv, layer, shape, rows, out));
    };
    both("a layer too many", 1, &shape, &rope, &rows);
    both(
        "another head width",
        0,
        &AttentionShape {
            head_dim: 2 * head_dim,
            ..shape
        },
        &rope,
        &rows,
    );
    both(
        "uneven groups",
        0,
        &AttentionShape { heads: 0, ..shape },
        &rope,
        &rows,
    );
    let with = |change: &dyn Fn(&mut Rows)| {
        let mut rows = rows.clone();
        change(&mut rows);
        rows
    };
    both(
        "a slot elsewhere",
        0,
        &shape,
        &rope,
        &with(&|rows| rows.slots[1] = 1),
    );
    both(
        "a missing slot",
        0,
        &shape,
        &rope,
        &with(&|rows| rows.slots.truncate(1)),
    );
    both(
        "a short block table",
        0,
        &shape,
        &rope,
        &with(&|rows| rows.segments[0].blocks.truncate(1)),
    );
    both(
        "a block out of the pool",
        0,
        &shape,
        &rope,
        &with(&|rows| rows.segments[0].blocks[0] = 3),
    );
    both(
        "a gap in the positions",
        0,
        &shape,
        &rope,
        &with(&|rows| rows.positions[1] += 1),
    );
    both(
        "a row of no segment",
        0,
        &shape,
        &rope,
        &with(&|rows| rows.segments[0].rows = 1),
    );
    let turned = Rope {
        inv_freq: vec![1.0; head_dim / 2 + 1],
        ..rope
    };
    refused(
        "a rotation beyond the head",
        device.rope_and_cache(qkv, 0, &shape, &turned, &rows),
    );
}
