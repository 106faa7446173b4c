//! Rounding with error feedback: each weight is rounded with what the errors made before it in its row ask for, given how the
//! inputs go together. With H = XᵀX over the inputs X of a calibration text, the error of a row's outputs is
//! `(w - q) H (w - q)ᵀ`; written as `H = (U + I) D (U + I)ᵀ` with U strictly upper triangular, rounding
//! `w_k + Σ_{j<k} (w_j - q_j) U_jk` minimises each term in turn. That is GPTQ (Frantar et al. 2022) in the form of LDLQ (Chee et al.
//! 2023), which gives the same numbers with one factorisation and no inverse.

use super::grid::{Group, Int4Format, Int4Rows};
use crate::checkpoint::read_row;
use crate::rounding::share_rows;
use ropeteam_device::{Dtype, TensorView};

/// Share of the mean diagonal that is added to the diagonal, so that inputs which the text never moved apart do not make
/// the feedback grow without bound.
const DAMPING: f32 = 0.01;
/// Columns that are factored together, so that their rows stay in the cache.
const PANEL: usize = 32;
/// Rows of a matrix that are rounded together, so that each row of U is read once for all.
const ROWS: usize = 4;

/// How the errors of earlier inputs bear on later ones.
pub(super) struct Feedback {
    inputs: usize,
    /// Row k holds `U_jk` for `j < k`; the rest of it is unused.
    rows: Vec<f32>,
    /// D: how much an error of each input weighs in the end.
    importance: Vec<f32>,
}

impl Feedback {
    /// None: every weight is rounded by itself.
    pub fn none(inputs: usize) -> Self {
        Self {
            inputs,
            rows: Vec::new(),
            importance: vec![1.0; inputs],
        }
    }

    /// From H, `[inputs, inputs]`, symmetric.
    pub fn new(mut hessian: Vec<f32>, inputs: usize) -> Self {
        let mean = (0..inputs).map(|i| hessian[i * inputs + i]).sum::<f32>() / inputs as f32;
        let damping = (DAMPING * mean).max(f32::MIN_POSITIVE);
        for i in 0..inputs {
            hessian[i * inputs + i] += damping;
        }
        factor(&mut hessian, inputs);
        let importance = (0..inputs)
            .map(|i| hessian[i * inputs + i].powi(2))
            .collect();
        for k in 0..inputs {
            let inverse = 1.0 / hessian[k * inputs + k];
            for j in 0..k {
                hessian[k * inputs + j] = hessian[j * inputs + k] * inverse;
            }
        }
        Self {
            inputs,
            rows: hessian,
            importance,
        }
    }

    /// Rounds a matrix of floats.
    pub fn round(&self, view: &TensorView<'_>, format: Int4Format, scale_dtype: Dtype) -> Int4Rows {
        let [outputs, inputs] = view.shape;
        assert_eq!(inputs, self.inputs, "inputs of the matrix and of the text");
        let mut found = Int4Rows {
            shape: view.shape,
            format,
            numbers: vec![0; outputs * inputs],
            groups: vec![
                Group {
                    scale: 0.0,
                    zero: 0
                };
                outputs * (inputs / format.group)
            ],
        };
        let (numbers, groups) = (&mut found.numbers, &mut found.groups);
        share_rows(outputs, numbers, groups, |first, numbers, groups| {
            let width = inputs / format.group;
            let blocks = numbers
                .chunks_mut(ROWS * inputs)
                .zip(groups.chunks_mut(ROWS * width));
            for (index, (numbers, groups)) in blocks.enumerate() {
                let mut rows = vec![0.0; numbers.len()];
                for (row, out) in rows.chunks_exact_mut(inputs).enumerate() {
                    read_row(view, first + index * ROWS + row, out);
                }
                self.round_rows(&mut rows, numbers, groups, (format, scale_dtype));
            }
        });
        found
    }

    /// Rounds some rows. `rows` holds the weights and is left with their errors.
    fn round_rows(
        &self,
        rows: &mut [f32],
        numbers: &mut [u8],
        groups: &mut [Group],
        (format, scale_dtype): (Int4Format, Dtype),
    ) {
        let width = self.inputs / format.group;
        let mut wanted = vec![0.0; format.group];
        for group in 0..width {
            let start = group * format.group;
            let importance = &self.importance[start..start + format.group];
            let each = rows.chunks_exact_mut(self.inputs);
            let each = each.zip(numbers.chunks_exact_mut(self.inputs));
            for (row, (values, numbers)) in each.enumerate() {
                // What the groups before ask for; then, weight by weight, what the group's own errors do.
                for (offset, wanted) in wanted.iter_mut().enumerate() {
                    *wanted = values[start + offset] + self.asked(values, start + offset, 0..start);
                }
                let grid = Group::fit(&wanted, importance, format, scale_dtype);
                groups[row * width + group] = grid;
                for (offset, wanted) in wanted.iter().enumerate() {
                    let k = start + offset;
                    let q = grid.nearest(wanted + self.asked(values, k, start..k));
                    numbers[k] = q;
                    values[k] -= grid.weight(q);
                }
            }
        }
    }

    /// `Σ errors_j U_jk` over `range`.
    fn asked(&self, errors: &[f32], k: usize, range: std::ops::Range<usize>) -> f32 {
        if self.rows.is_empty() || range.is_empty() {
            return 0.0;
        }
        let row = &self.rows[k * self.inputs..][range.clone()];
        dot(&errors[range], row)
    }
}

/// Factors a positive matrix as `R Rᵀ` with R upper triangular, in place; below the diagonal nothing is written.
fn factor(matrix: &mut [f32], n: usize) {
    let mut end = n;
    while end > 0 {
        let start = end.saturating_sub(PANEL);
        let (above, panel) = matrix.split_at_mut(start * n);
        for i in (start..end).rev() {
            for j in (i..end).rev() {
                let (upper, lower) = panel.split_at_mut((j - start) * n);
                let row_j = &mut lower[..n];
                if i == j {
                    let rest = row_j[j] - dot(&row_j[j + 1..], &row_j[j + 1..]);
                    row_j[j] = rest.max(f32::MIN_POSITIVE).sqrt();
                } else {
                    eliminate(&mut upper[(i - start) * n..][..n], row_j, j);
                }
            }
        }
        let panel = &*panel;
        share_rows(start, above, &mut vec![(); start], |_, rows, _| {
            for row in rows.chunks_exact_mut(n) {
                for j in (start..end).rev() {
                    eliminate(row, &panel[(j - start) * n..][..n], j);
                }
            }
        });
        end = start;
    }
}

/// `row[j] = (row[j] - Σ_{k>j} row[k] row_j[k]) / row_j[j]`.
fn eliminate(row: &mut [f32], row_j: &[f32], j: usize) {
    row[j] = (row[j] - dot(&row[j + 1..], &row_j[j + 1..])) / row_j[j];
}

/// Partial sums that run side by side.
const LANES: usize = 16;

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounding::f32_view;

    /// Numbers that look random, from -1 to 1.
    fn noise(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// XᵀX of inputs that go together: each is mostly its neighbour.
    fn hessian(inputs: usize) -> Vec<f32> {
        let rows = 4 * inputs;
        let mut x = noise(rows * inputs, 1);
        for row in x.chunks_mut(inputs) {
            for i in 1..inputs {
                row[i] = 0.9 * row[i - 1] + 0.3 * row[i];
            }
        }
        let mut h = vec![0.0; inputs * inputs];
        for row in x.chunks(inputs) {
            for i in 0..inputs {
                for j in 0..inputs {
                    h[i * inputs + j] += row[i] * row[j];
                }
            }
        }
        h
    }

    fn error(weights: &[f32], found: &Int4Rows, h: &[f32]) -> f32 {
        let inputs = found.shape[1];
        let errors: Vec<f32> = found.weights().zip(weights).map(|(q, w)| w - q).collect();
        let of_row = |row: &[f32]| -> f32 {
            (0..inputs)
                .map(|i| row[i] * dot(row, &h[i * inputs..][..inputs]))
                .sum()
        };
        errors.chunks(inputs).map(of_row).sum()
    }

    #[test]
    fn the_factor_multiplies_back() {
        let n = 70;
        let h = hessian(n);
        let mut r = h.clone();
        factor(&mut r, n);
        for i in 0..n {
            for j in i..n {
                let product: f32 = (j..n).map(|k| r[i * n + k] * r[j * n + k]).sum();
                let expected = h[i * n + j];
                assert!(
                    (product - expected).abs() < 1e-3 * h[i * n + i].max(1.0),
                    "{i} {j}"
                );
            }
        }
    }

    #[test]
    fn feedback_beats_rounding_each_weight_by_itself() {
        let (outputs, inputs) = (10, 96);
        let weights = noise(outputs * inputs, 7);
        let bytes: Vec<u8> = weights.iter().flat_map(|x| x.to_le_bytes()).collect();
        let view = f32_view(&bytes, [outputs, inputs]);
        let h = hessian(inputs);
        for symmetric in [false, true] {
            let format = Int4Format {
                group: 32,
                symmetric,
            };
            let plain = Feedback::none(inputs).round(&view, format, Dtype::BF16);
            let better = Feedback::new(h.clone(), inputs).round(&view, format, Dtype::BF16);
            let (plain, better) = (error(&weights, &plain, &h), error(&weights, &better, &h));
            assert!(better < 0.5 * plain, "{better} against {plain}");
        }
    }

    #[test]
    fn inputs_that_were_never_seen_do_no_harm() {
        let inputs = 64;
        let weights = noise(inputs, 3);
        let bytes: Vec<u8> = weights.iter().flat_map(|x| x.to_le_bytes()).collect();
        let format = Int4Format {
            group: 32,
            symmetric: false,
        };
        let feedback = Feedback::new(vec![0.0; inputs * inputs], inputs);
        let found = feedback.round(&f32_view(&bytes, [1, inputs]), format, Dtype::F32);
        for (held, weight) in found.weights().zip(&weights) {
            assert!((held - weight).abs() < 0.1, "{held} for {weight}");
        }
    }
}
