//! Checks of the operators that look at one row at a time.

use super::Make;
use super::numbers::{assert_close, assert_same_bits};
use super::session::Session;
use crate::{ColumnMask, Float, Precision, highest_columns};
use ropeteam_kernels::reference;

const COLS: [usize; 5] = [1, 7, 64, 129, 576];
const ROWS: [usize; 3] = [1, 3, 70];
const EPS: f32 = 1e-5;

pub(super) fn check(precision: Precision, makes: &[Make<'_>]) {
    for make in makes {
        for cols in COLS {
            for rows in ROWS {
                let mut session = Session::new(make(), precision, (cols * 100 + rows) as u64);
                norms(&mut session, rows, cols);
                head_norm(&mut session, rows, cols);
                silu_mul(&mut session, rows, cols);
            }
        }
        // Infinities and NaN come in by embedding, and integers do not hold those.
        if !matches!(precision, Precision::Int8 | Precision::Int4) {
            let mut session = Session::new(make(), precision, 5);
            extremes(&mut session);
            argmax(&mut session);
            highest(&mut session);
        }
    }
}

fn norms(session: &mut Session, rows: usize, cols: usize) {
    let what = format!("{rows} rows of {cols}");
    let arithmetic = session.arithmetic;
    let values = session.random.numbers(rows * cols);
    let (x, x_held) = session.filled(&values, cols);
    let values = session.random.numbers(rows * cols);
    let (residual, residual_held) = session.filled(&values, cols);
    let as_before = session.alloc(rows, cols);
    let all: Vec<u32> = (0..rows as u32).collect();
    session
        .device
        .take_rows(residual, &all, as_before)
        .expect("take_rows");
    let weight_values = session.random.numbers(cols);
    let weight = session.vector(&weight_values);
    let out = session.alloc(rows, cols);

    session
        .device
        .rms_norm(x, weight, EPS, rows, out)
        .expect("rms_norm");
    let found = session.read(out, rows);
    let expected = reference::rms_norm(&x_held, &weight_values, EPS);
    assert_close(
        &format!("rms_norm, {what}"),
        &found,
        &expected,
        session.arithmetic.tolerance(1e-5),
    );

    session
        .device
        .add_rms_norm(x, residual, weight, EPS, rows, out)
        .expect("add_rms_norm");
    let apart = session.read(out, rows);
    let sums: Vec<f32> = x_held
        .iter()
        .zip(&residual_held)
        .map(|(x, residual)| x + residual)
        .collect();
    assert_same_bits(
        &format!("sums of add_rms_norm, {what}"),
        &session.read(residual, rows),
        &arithmetic.as_activations(&sums),
    );
    let expected = reference::rms_norm(&sums, &weight_values, EPS);
    assert_close(
        &format!("add_rms_norm, {what}"),
        &apart,
        &expected,
        session.arithmetic.tolerance(1e-5),
    );
    assert_same_bits(
        "add_rms_norm leaves its input",
        &session.read(x, rows),
        &x_held,
    );

    let residual = as_before;
    session
        .device
        .add_rms_norm(x, residual, weight, EPS, rows, x)
        .expect("add_rms_norm");
    assert_same_bits(
        &format!("add_rms_norm in place, {what}"),
        &session.read(x, rows),
        &apart,
    );

    let last = session.alloc(1, cols);
    session
        .device
        .take_rows(residual, &[rows as u32 - 1], last)
        .expect("take_rows");
    session
        .device
        .rms_norm(last, weight, EPS, 1, out)
        .expect("rms_norm");
    let alone = session.read(out, 1);
    let (what, row) = (
        format!("norm of a row alone, {what}"),
        &apart[(rows - 1) * cols..],
    );
    match arithmetic.activations {
        Float::F32 => assert_same_bits(&what, &alone, row),
        // The sum is rounded on its way into the stream; what is normed at once may be the sum before.
        _ => assert_close(&what, &alone, row, arithmetic.tolerance(1e-5)),
    }
}

fn head_norm(session: &mut Session, rows: usize, head_dim: usize) {
    let (heads, first_col) = (3, 5);
    let cols = first_col + heads * head_dim + 2;
    let values = session.random.numbers(rows * cols);
    let (x, mut expected) = session.filled(&values, cols);
    let weight_values = session.random.numbers(head_dim);
    let weight = session.vector(&weight_values);
    session
        .device
        .head_norm(x, first_col, heads, weight, EPS, rows)
        .expect("head_norm");
    for row in expected.chunks_exact_mut(cols) {
        for head in row[first_col..][..heads * head_dim].chunks_exact_mut(head_dim) {
            head.copy_from_slice(&reference::rms_norm(head, &weight_values, EPS));
        }
    }
    let what = format!("head_norm, {rows} rows, heads of {head_dim}");
    assert_close(
        &what,
        &session.read(x, rows),
        &expected,
        session.arithmetic.tolerance(1e-5),
    );
}

fn silu_mul(session: &mut Session, rows: usize, cols: usize) {
    let values: Vec<f32> = session
        .random
        .numbers(rows * 2 * cols)
        .iter()
        .map(|x| 12.0 * x)
        .collect();
    let (x, held) = session.filled(&values, 2 * cols);
    let out = session.alloc(rows, cols);
    session.device.silu_mul(x, rows, out).expect("silu_mul");
    let found = session.read(out, rows);
    assert_close(
        &format!("silu_mul, {rows} rows of {cols}"),
        &found,
        &reference::silu_mul(&held, cols),
        session.arithmetic.tolerance(1e-5),
    );
}

/// Gates far out, where the exponential under- or overflows.
fn extremes(session: &mut Session) {
    let (x, held) = session.filled(
        &[
            -1e4, -100.0, -88.0, 0.0, 88.0, 1e4, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0,
        ],
        12,
    );
    let out = session.alloc(1, 6);
    session.device.silu_mul(x, 1, out).expect("silu_mul");
    assert_close(
        "silu_mul far out",
        &session.read(out, 1),
        &reference::silu_mul(&held, 6),
        session.arithmetic.tolerance(1e-5),
    );
}

fn argmax(session: &mut Session) {
    let infinity = f32::INFINITY;
    // Rows: ties; the best in a hole; NaN beside numbers; nothing but minus infinity.
    let rows = [
        [1.0, 5.0, 5.0, 2.0, 9.0],
        [7.0, 8.0, 3.0, 6.0, 9.0],
        [f32::NAN, 2.0, f32::NAN, 4.0, 9.0],
        [-infinity, -infinity, -infinity, -infinity, 9.0],
    ];
    let x = session.alloc(4, 5);
    session.embed_all(&rows.concat(), 5, x);
    let mut best = |holes: &[u32]| {
        let mask = ColumnMask {
            limit: 4,
            holes: holes.to_vec(),
        };
        let mut found = Vec::new();
        session
            .device
            .read_argmax(x, 0, 4, &mask, &mut found)
            .expect("read_argmax");
        found
    };
    assert_eq!(best(&[]), [Some(1), Some(1), Some(3), None], "argmax");
    assert_eq!(
        best(&[1]),
        [Some(2), Some(0), Some(3), None],
        "argmax beside a hole"
    );
    assert_eq!(
        best(&[0, 1, 3]),
        [Some(2), Some(2), None, None],
        "argmax with one column left"
    );
}

/// Where a device finds the highest columns itself, it finds those that a search of the rows would.
fn highest(session: &mut Session) {
    let most = session.device.highest_max();
    if most == 0 {
        return;
    }
    let (rows, cols) = (5, 8 * most + 40);
    let mut values = session.random.numbers(rows * cols);
    // More ties than anybody would look for; NaN; infinity; nothing but minus infinity.
    values[cols..2 * cols].fill(1.5);
    values[2 * cols + 7] = f32::NAN;
    values[3 * cols + 7] = f32::INFINITY;
    values[4 * cols..].fill(f32::NEG_INFINITY);
    let x = session.alloc(rows, cols);
    session.embed_all(&values, cols, x);
    let held = session.read(x, rows);
    let holes: Vec<u32> = (0..40).collect();
    for (limit, holes) in [(cols, &holes[..0]), (cols - 9, &holes[..])] {
        let holes = holes.to_vec();
        let mask = ColumnMask { limit, holes };
        let counts = [1, most / 2, most, 3, 2];
        for first in [0, 2] {
            let mut found = Vec::new();
            session
                .device
                .read_highest(x, first, &counts[first..], &mask, &mut found)
                .expect("read_highest");
            let rows = held[first * cols..].chunks_exact(cols);
            for ((row, count), found) in rows.zip(&counts[first..]).zip(&found) {
                // NaN is not equal to itself.
                let bits = |list: &[(u32, f32)]| -> Vec<(u32, u32)> {
                    list.iter().map(|(at, x)| (*at, x.to_bits())).collect()
                };
                let expected = highest_columns(row, *count, &mask);
                assert_eq!(bits(found), bits(&expected), "{count} of {limit}");
            }
        }
    }
}
