//! Plain twins of the operators: scalar, row by row, sums in f64. Slow and easy to check against the formula; for tests of
//! kernels and of devices. They round nothing: a caller that compares bf16 rounds the inputs first.

/// `out = x · weightᵀ + bias`; weight is `[outputs, inputs]`, `bias` has `outputs` values or none.
pub fn linear(x: &[f32], weight: &[f32], inputs: usize, bias: &[f32]) -> Vec<f32> {
    let rows = x.chunks_exact(inputs);
    rows.flat_map(|x| {
        weight
            .chunks_exact(inputs)
            .enumerate()
            .map(move |(output, weight)| {
                let bias = bias.get(output).copied().unwrap_or(0.0);
                (dot(x, weight) + f64::from(bias)) as f32
            })
    })
    .collect()
}

/// Rows as they are multiplied by integer weights: each 64 inputs rounded as `rounded_together` does.
pub fn rounded_to_int8(x: &[f32], inputs: usize) -> Vec<f32> {
    let rows = x.chunks_exact(inputs);
    rows.flat_map(|row| rounded_together(row, 64)).collect()
}

/// Each `together` numbers rounded (ties to even) to multiples of a 127th of the largest.
pub fn rounded_together(x: &[f32], together: usize) -> Vec<f32> {
    x.chunks(together)
        .flat_map(|chunk| {
            let largest = chunk.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
            let (scale, inverse) = if largest > 1e-20 {
                (largest / 127.0, 127.0 / largest)
            } else {
                (1.0, 0.0)
            };
            chunk
                .iter()
                .map(move |x| (x * inverse).round_ties_even() * scale)
        })
        .collect()
}

/// `x[r] / rms(x[r]) * weight`.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let rows = x.chunks_exact(weight.len());
    rows.flat_map(|x| {
        let factor = 1.0 / (dot(x, x) / x.len() as f64 + f64::from(eps)).sqrt();
        let scaled = x.iter().zip(weight);
        scaled.map(move |(x, weight)| (f64::from(*x) * factor * f64::from(*weight)) as f32)
    })
    .collect()
}

/// `silu(gate) * up` of rows `[gate | up]`, each `cols` wide.
pub fn silu_mul(x: &[f32], cols: usize) -> Vec<f32> {
    let rows = x.chunks_exact(2 * cols);
    rows.flat_map(|row| {
        let (gate, up) = row.split_at(cols);
        gate.iter().zip(up).map(|(gate, up)| {
            let gate = f64::from(*gate);
            (gate / (1.0 + (-gate).exp()) * f64::from(*up)) as f32
        })
    })
    .collect()
}

/// Turns the pairs of one head in place, by `position * inv_freq[i]` each.
pub fn rotate_head(
    head: &mut [f32],
    position: u32,
    inv_freq: &[f32],
    scale: f32,
    interleaved: bool,
) {
    let pairs = inv_freq.len();
    for (i, freq) in inv_freq.iter().enumerate() {
        let (a, b) = if interleaved {
            (2 * i, 2 * i + 1)
        } else {
            (i, i + pairs)
        };
        // The angle is an f32 product, as the models were trained with.
        let angle = f64::from(position as f32 * freq);
        let (sin, cos) = (
            angle.sin() * f64::from(scale),
            angle.cos() * f64::from(scale),
        );
        let (first, second) = (f64::from(head[a]), f64::from(head[b]));
        head[a] = (first * cos - second * sin) as f32;
        head[b] = (second * cos + first * sin) as f32;
    }
}

/// One head's attention of `query` over some positions: keys and values are `[positions, query.len()]`.
pub fn attention_head(query: &[f32], keys: &[f32], values: &[f32], scale: f32) -> Vec<f32> {
    let dim = query.len();
    let scores: Vec<f64> = keys
        .chunks_exact(dim)
        .map(|key| dot(query, key) * f64::from(scale))
        .collect();
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mut out = vec![0.0; dim];
    for (weight, value) in weights.iter().zip(values.chunks_exact(dim)) {
        for (out, value) in out.iter_mut().zip(value) {
            *out += weight / total * f64::from(*value);
        }
    }
    out.into_iter().map(|x| x as f32).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(a, b)| f64::from(*a) * f64::from(*b))
        .sum()
}
