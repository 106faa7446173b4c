//! Operators that pass over rows once: norm, activation, argmax. On rows that no cache holds, memory bounds them all.

use super::Show;
use super::clock::median;
use super::roofline::{Reading, Work};
use super::table::Case;
use ropeteam_kernels::limits::Arithmetic;
use ropeteam_kernels::{Candidates, Machine, argmax, rms_norm, silu_mul};

const COLS: usize = 1024;
const ROWS: usize = 16 * 1024;
/// Rows that the same numbers make as logits.
const LOGITS: usize = 128;
const BYTES: f64 = (ROWS * COLS * size_of::<f32>()) as f64;

/// Measures all of them.
pub fn measure(machine: &mut Machine, reading: &Reading, show: &mut Show<'_>) {
    let bytes_per_s = reading.rate(machine);
    let x = vec![0.5f32; ROWS * COLS];
    let weight = vec![1.0f32; COLS];
    let mut out = vec![0.0f32; ROWS * COLS];
    // What is written is read first, and counts twice.
    let seconds = median(|| rms_norm(machine, &x, &weight, 1e-5, &mut out));
    show(case(
        "rms norm",
        ROWS,
        bytes_per_s,
        (seconds, BYTES + 2.0 * BYTES),
    ));
    let half = &mut out[..ROWS * COLS / 2];
    let seconds = median(|| silu_mul(machine, &x, COLS / 2, half));
    show(case(
        "silu, gated",
        ROWS,
        bytes_per_s,
        (seconds, BYTES + BYTES),
    ));
    let mut best = [None; LOGITS];
    let logits = Candidates {
        x: &x,
        cols: ROWS * COLS / LOGITS,
        limit: ROWS * COLS / LOGITS,
        holes: &[],
    };
    let seconds = median(|| argmax(machine, logits, &mut best));
    show(case("argmax", LOGITS, bytes_per_s, (seconds, BYTES)));
}

fn case(kernel: &str, rows: usize, bytes_per_s: f64, (seconds, bytes): (f64, f64)) -> Case {
    Case {
        kernel: kernel.to_owned(),
        shape: format!("from rows of {}", ROWS * COLS / rows),
        rows,
        seconds,
        bytes_per_s,
        work: Work {
            bytes,
            operations: 0.0,
            arithmetic: Arithmetic::F32,
        },
    }
}
