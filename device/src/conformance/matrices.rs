//! Checks of `linear`, `gated_linear`, `joined_linear` and `embed`: against the reference, and row by row against the whole batch.

use super::Make;
use super::numbers::{assert_close, assert_same_bits, bytes};
use super::session::{Session, view};
use crate::{Join, Precision, TensorView};
use ropeteam_kernels::reference;

/// Outputs of each part, inputs, and whether there is a bias.
const SHAPES: [(&[usize], usize, bool); 8] = [
    (&[1], 1, false),
    (&[5], 3, true),
    (&[16], 32, false),
    (&[17, 4, 4], 31, true),
    (&[63], 130, false),
    (&[64, 32, 32], 96, true),
    (&[200], 257, false),
    // Long enough that sums are interrupted between blocks of inputs.
    (&[40], 4100, true),
];
const ROWS: [usize; 5] = [1, 2, 7, 33, 110];

pub(super) fn check(precision: Precision, makes: &[Make<'_>]) {
    for (parts, inputs, bias) in SHAPES {
        for rows in ROWS {
            let mut first: Option<Vec<f32>> = None;
            for make in makes {
                let found = linear(
                    Session::new(make(), precision, inputs as u64),
                    parts,
                    inputs,
                    bias,
                    rows,
                );
                let what = format!("linear {parts:?}x{inputs}, {rows} rows, other devices");
                assert_same_bits(&what, first.get_or_insert_with(|| found.clone()), &found);
            }
        }
    }
    for make in makes {
        for inputs in [3, 128, 300] {
            gated(Session::new(make(), precision, 8), inputs);
            joined(Session::new(make(), precision, 9), inputs);
        }
        tied(Session::new(make(), precision, 7));
    }
}

/// Checks one shape and returns the output.
fn linear(
    mut session: Session,
    parts: &[usize],
    inputs: usize,
    with_bias: bool,
    rows: usize,
) -> Vec<f32> {
    let arithmetic = session.arithmetic;
    let outputs: usize = parts.iter().sum();
    let weights: Vec<Vec<f32>> = parts
        .iter()
        .map(|part| session.random.numbers(part * inputs))
        .collect();
    let bias = session.random.numbers(if with_bias { outputs } else { 0 });
    let part_bytes: Vec<Vec<u8>> = weights.iter().map(|part| bytes(part)).collect();
    // The last part is stored upside down and put right by its order.
    let last = parts.len() - 1;
    let upside_down: Vec<u8> = part_bytes[last]
        .chunks_exact(4 * inputs)
        .rev()
        .flatten()
        .copied()
        .collect();
    let order: Vec<u32> = (0..parts[last] as u32).rev().collect();
    let mut views: Vec<TensorView<'_>> = part_bytes
        .iter()
        .zip(parts)
        .map(|(bytes, part)| view(bytes, *part, inputs))
        .collect();
    views[last].bytes = &upside_down;
    views[last].row_order = Some(&order);
    let bias_bytes = bytes(&bias);
    let bias_view = view(&bias_bytes, outputs, 1);
    let bias_views = if with_bias {
        std::slice::from_ref(&bias_view)
    } else {
        &[]
    };
    let weight = session
        .device
        .load_linear(&views, bias_views)
        .expect("load_linear");

    let values = session.random.numbers(rows * inputs);
    let (x, held) = session.filled(&values, inputs);
    let out = session.alloc(rows, outputs);
    session.device.linear(x, weight, rows, out).expect("linear");
    let found = session.read(out, rows);

    let what = format!("linear {parts:?}x{inputs}, {rows} rows");
    let held_weights = session.embedded(&weights.concat(), inputs);
    let x_rounded = arithmetic.rounded_rows(&held, inputs);
    let expected = reference::linear(&x_rounded, &held_weights, inputs, &bias);
    assert_close(&what, &found, &expected, arithmetic.tolerance(2e-5));

    let (one, alone) = (session.alloc(1, inputs), session.alloc(1, outputs));
    for row in [0, rows / 2, rows - 1] {
        session
            .device
            .take_rows(x, &[row as u32], one)
            .expect("take_rows");
        session
            .device
            .linear(one, weight, 1, alone)
            .expect("linear");
        let alone = session.read(alone, 1);
        assert_same_bits(
            &format!("{what}, row {row} alone"),
            &alone,
            &found[row * outputs..][..outputs],
        );
    }
    found
}

/// The gate and the product behind it at once and one after the other.
fn gated(mut session: Session, inputs: usize) {
    let (rows, outputs) = (19, 37);
    let weights = bytes(&session.random.numbers(outputs * inputs));
    let views = [view(&weights, outputs, inputs)];
    let weight = session
        .device
        .load_linear(&views, &[])
        .expect("load_linear");
    let values = session.random.numbers(rows * 2 * inputs);
    let (x, _) = session.filled(&values, 2 * inputs);
    let (gated, out) = (session.alloc(rows, inputs), session.alloc(rows, outputs));
    let device = &mut session.device;
    device.silu_mul(x, rows, gated).expect("silu_mul");
    device.linear(gated, weight, rows, out).expect("linear");
    let apart = session.read(out, rows);
    session
        .device
        .gated_linear(x, weight, rows, out)
        .expect("gated_linear");
    let what = format!("gated_linear {outputs}x{inputs}");
    assert_same_bits(&what, &session.read(out, rows), &apart);
}

/// A sum, its norm and the product behind it at once and one after the other.
fn joined(mut session: Session, inputs: usize) {
    let (rows, outputs) = (19, 37);
    let weights = bytes(&session.random.numbers(outputs * inputs));
    let views = [view(&weights, outputs, inputs)];
    let weight = session
        .device
        .load_linear(&views, &[])
        .expect("load_linear");
    let factors = session.random.numbers(inputs);
    let norm = session.vector(&factors);
    let results = session.random.numbers(rows * inputs);
    let stream = session.random.numbers(rows * inputs);
    let [mut sums, mut products] = [Vec::new(), Vec::new()];
    for at_once in [false, true] {
        let (result, _) = session.filled(&results, inputs);
        let (residual, _) = session.filled(&stream, inputs);
        let out = session.alloc(rows, outputs);
        let device = &mut session.device;
        if at_once {
            let eps = 1e-5;
            let join = Join {
                result,
                residual,
                norm,
                eps,
            };
            device
                .joined_linear(join, weight, rows, out)
                .expect("joined_linear");
        } else {
            let normed = device.add_rms_norm(result, residual, norm, 1e-5, rows, result);
            normed.expect("add_rms_norm");
            device.linear(result, weight, rows, out).expect("linear");
        }
        sums.push(session.read(residual, rows));
        products.push(session.read(out, rows));
    }
    let what = format!("joined_linear {outputs}x{inputs}");
    assert_same_bits(&what, &products[1], &products[0]);
    assert_same_bits(&what, &sums[1], &sums[0]);
}

/// A table that is embedding and head at once.
fn tied(mut session: Session) {
    let (vocab, dim) = (101, 37);
    let table = session.random.numbers(vocab * dim);
    let bytes = bytes(&table);
    let weight = session
        .device
        .load_embedding(&view(&bytes, vocab, dim), true)
        .expect("load_embedding");
    let ids = [100, 0, 17, 17, 64];
    let (x, logits) = (
        session.alloc(ids.len(), dim),
        session.alloc(ids.len(), vocab),
    );
    session.device.embed(weight, &ids, x).expect("embed");
    let held = session.read(x, ids.len());
    let expected: Vec<f32> = ids
        .iter()
        .flat_map(|id| &table[*id as usize * dim..][..dim])
        .copied()
        .collect();
    let arithmetic = session.arithmetic;
    match arithmetic.precision {
        Precision::Int8 => assert_close("embed", &held, &expected, 0.5 / 127.0),
        // Half a step of a range of two, and as much again where the squares of all are smallest.
        Precision::Int4 => assert_close("embed", &held, &expected, 2.0 / 15.0),
        _ => assert_same_bits("embed", &held, &arithmetic.rounded(&expected)),
    }
    let table = session.rows_of(weight, vocab, dim);
    session
        .device
        .linear(x, weight, ids.len(), logits)
        .expect("linear");
    let found = session.read(logits, ids.len());
    assert_close(
        "tied head",
        &found,
        &reference::linear(&arithmetic.rounded_rows(&held, dim), &table, dim, &[]),
        arithmetic.tolerance(2e-5),
    );
}
