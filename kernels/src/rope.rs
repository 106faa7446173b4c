//! Rotary position embedding, in place. Su et al., RoFormer.

use crate::Machine;
use crate::simd::{Bf16, Kernel};

/// Cosines and sines of some rows.
#[derive(Clone, Debug, Default)]
pub struct Angles {
    /// Per row: the cosines of all pairs, then their sines.
    cos_sin: Vec<f32>,
    pairs: usize,
}

impl Angles {
    /// Angles `positions[r] * inv_freq[i]`, cosines and sines multiplied by `scale`. The buffer is reused.
    pub fn fill(&mut self, positions: &[u32], inv_freq: &[f32], scale: f32) {
        self.pairs = inv_freq.len();
        self.cos_sin.clear();
        for position in positions {
            let angle = |freq: &f32| *position as f32 * freq;
            self.cos_sin
                .extend(inv_freq.iter().map(|freq| angle(freq).cos() * scale));
            self.cos_sin
                .extend(inv_freq.iter().map(|freq| angle(freq).sin() * scale));
        }
    }

    /// Cosines and sines of a row.
    fn row(&self, row: usize) -> (&[f32], &[f32]) {
        self.cos_sin[2 * row * self.pairs..][..2 * self.pairs].split_at(self.pairs)
    }
}

/// What of a row is rotated, and how.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// Width of a row.
    pub cols: usize,
    /// Heads to rotate, from the start of the row.
    pub heads: usize,
    /// Elements per head; the leading `2 * pairs` of them are rotated.
    pub head_dim: usize,
    /// Pairs are (2i, 2i + 1) instead of (i, i + pairs).
    pub interleaved: bool,
}

/// Rotates the leading heads of every row of `x` by the angles of that row.
///
/// # Panics
/// When there are fewer angles than rows or a head is narrower than its rotated part.
pub fn rotate(machine: &mut Machine, x: &mut [f32], at: Rotation, angles: &Angles) {
    assert!(
        2 * angles.pairs <= at.head_dim && at.heads * at.head_dim <= at.cols,
        "rotated part of a row"
    );
    let isa = machine.isa;
    machine.for_rows(x, at.cols, |first, x| {
        for (r, row) in x.chunks_exact_mut(at.cols).enumerate() {
            let (cos, sin) = angles.row(first + r);
            isa.dispatch(RotateRow {
                heads: &mut row[..at.heads * at.head_dim],
                at,
                cos,
                sin,
            });
        }
    });
}

struct RotateRow<'a> {
    heads: &'a mut [f32],
    at: Rotation,
    cos: &'a [f32],
    sin: &'a [f32],
}

impl Kernel for RotateRow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Bf16>(self, _: S) {
        let turns = self.cos.iter().zip(self.sin);
        for head in self.heads.chunks_exact_mut(self.at.head_dim) {
            let rotated = &mut head[..2 * self.cos.len()];
            if self.at.interleaved {
                for (pair, (cos, sin)) in
                    rotated.as_chunks_mut::<2>().0.iter_mut().zip(turns.clone())
                {
                    *pair = turn(*pair, *cos, *sin);
                }
            } else {
                let (first, second) = rotated.split_at_mut(self.cos.len());
                for ((a, b), (cos, sin)) in first.iter_mut().zip(second).zip(turns.clone()) {
                    [*a, *b] = turn([*a, *b], *cos, *sin);
                }
            }
        }
    }
}

#[inline(always)]
fn turn([a, b]: [f32; 2], cos: f32, sin: f32) -> [f32; 2] {
    [a * cos - b * sin, b * cos + a * sin]
}
