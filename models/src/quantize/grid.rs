//! int4 weights as compressed-tensors files hold them: `scale * (q - zero)` with q and zero from 0 to 15, one factor and zero
//! per group of inputs of an output. Which factor a group gets is decided here; which q a weight, in `feedback`.

use crate::checkpoint::rounded;
use ropeteam_device::Dtype;

/// How a matrix is divided into groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int4Format {
    /// Inputs with a factor of their own: 32, 64 or 128.
    pub group: usize,
    /// The zero is always 8.
    pub symmetric: bool,
}

/// The numbers of one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Group {
    pub scale: f32,
    pub zero: u8,
}

/// The largest q, and the zero of symmetric groups.
const MAX: f32 = 15.0;
const MIDDLE: u8 = 8;

/// Shares of a group's range that are tried as the range of its grid: cutting off the outermost weights can move the others less.
const SHARES: [f32; 12] = [
    1.0, 0.975, 0.95, 0.925, 0.9, 0.875, 0.85, 0.825, 0.8, 0.775, 0.75, 0.7,
];

impl Group {
    /// The q next to `x`.
    pub fn nearest(&self, x: f32) -> u8 {
        if self.scale == 0.0 {
            return self.zero;
        }
        (x / self.scale + f32::from(self.zero))
            .round()
            .clamp(0.0, MAX) as u8
    }

    /// The weight that q stands for.
    pub fn weight(&self, q: u8) -> f32 {
        self.scale * (f32::from(q) - f32::from(self.zero))
    }

    /// The grid for `weights` whose rounding errors, weighted by `importance`, are least. Factors are numbers of `scale_dtype`.
    pub fn fit(
        weights: &[f32],
        importance: &[f32],
        format: Int4Format,
        scale_dtype: Dtype,
    ) -> Self {
        let (mut best, mut least) = (
            Group {
                scale: 0.0,
                zero: MIDDLE,
            },
            f32::INFINITY,
        );
        for share in SHARES {
            let group = Self::spanning(weights, share, format, scale_dtype);
            let error: f32 = weights
                .iter()
                .zip(importance)
                .map(|(x, importance)| {
                    let moved = x - group.weight(group.nearest(*x));
                    importance * moved * moved
                })
                .sum();
            if error < least {
                (best, least) = (group, error);
            }
        }
        best
    }

    /// The grid that spans `share` of the weights' range. It holds 0, as the zero is one of its points.
    fn spanning(weights: &[f32], share: f32, format: Int4Format, scale_dtype: Dtype) -> Self {
        let low = share * weights.iter().fold(0.0f32, |low, x| low.min(*x));
        let high = share * weights.iter().fold(0.0f32, |high, x| high.max(*x));
        if format.symmetric {
            let scale = rounded(scale_dtype, high.max(-low) / (MAX / 2.0));
            return Self {
                scale,
                zero: MIDDLE,
            };
        }
        let scale = rounded(scale_dtype, (high - low) / MAX);
        let zero = match scale {
            0.0 => MIDDLE,
            _ => (-low / scale).round().clamp(0.0, MAX) as u8,
        };
        Self { scale, zero }
    }
}

/// A rounded matrix.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Int4Rows {
    pub shape: [usize; 2],
    pub format: Int4Format,
    /// One q per weight, row by row.
    pub numbers: Vec<u8>,
    /// `[outputs, groups]`.
    pub groups: Vec<Group>,
}

impl Int4Rows {
    /// Groups in a row.
    pub fn groups_per_row(&self) -> usize {
        self.shape[1] / self.format.group
    }

    /// Eight numbers a word along the inputs, the first in the lowest bits, as `weight_packed` holds them.
    pub fn packed_numbers(&self) -> Vec<u8> {
        self.numbers
            .chunks_exact(2)
            .map(|pair| pair[0] | pair[1] << 4)
            .collect()
    }

    /// Eight zeros a word along the outputs, as `weight_zero_point` holds them: `[ceil(outputs / 8), groups]`.
    pub fn packed_zeros(&self) -> Vec<u8> {
        let width = self.groups_per_row();
        let mut words = vec![0u32; self.shape[0].div_ceil(8) * width];
        for (index, group) in self.groups.iter().enumerate() {
            let (output, column) = (index / width, index % width);
            words[output / 8 * width + column] |= u32::from(group.zero) << (4 * (output % 8));
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Factors, `[outputs, groups]`.
    pub fn scales(&self) -> Vec<f32> {
        self.groups.iter().map(|group| group.scale).collect()
    }

    /// The weights that the numbers stand for, row by row.
    pub fn weights(&self) -> impl Iterator<Item = f32> + '_ {
        let width = self.format.group;
        let spans = self.numbers.chunks_exact(width).zip(&self.groups);
        spans.flat_map(|(numbers, group)| numbers.iter().map(|q| group.weight(*q)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: Int4Format = Int4Format {
        group: 32,
        symmetric: false,
    };

    #[test]
    fn weights_on_a_grid_stay_where_they_are() {
        for (zero, symmetric) in [(3u8, false), (8, true)] {
            let group = Group { scale: 0.25, zero };
            let mut weights: Vec<f32> = (0..32).map(|q| group.weight(q % 16)).collect();
            // A symmetric grid is as wide as its larger side asks for.
            weights.retain(|x| !symmetric || x.abs() <= 7.5 * 0.25);
            let format = Int4Format {
                symmetric,
                ..FORMAT
            };
            let found = Group::fit(&weights, &vec![1.0; weights.len()], format, Dtype::F32);
            if !symmetric {
                assert_eq!(found, group);
            }
            for x in weights {
                let held = found.weight(found.nearest(x));
                assert!(
                    (held - x).abs() <= found.scale / 2.0 + 1e-6,
                    "{held} for {x}"
                );
            }
        }
    }

    #[test]
    fn a_group_of_zeros_stays_one() {
        let found = Group::fit(&[0.0; 32], &[1.0; 32], FORMAT, Dtype::BF16);
        assert_eq!(found.weight(found.nearest(0.0)), 0.0);
    }

    #[test]
    fn zeros_are_packed_along_the_outputs() {
        let group = |zero| Group { scale: 1.0, zero };
        let rows = Int4Rows {
            shape: [9, 64],
            format: FORMAT,
            numbers: vec![0; 9 * 64],
            groups: (0..18).map(|index| group(index % 16)).collect(),
        };
        let bytes = rows.packed_zeros();
        assert_eq!(bytes.len(), 2 * 2 * 4);
        assert_eq!(
            u32::from_le_bytes(bytes[..4].try_into().unwrap()),
            0xeca8_6420
        );
        assert_eq!(u32::from_le_bytes(bytes[8..12].try_into().unwrap()), 0);
    }
}
