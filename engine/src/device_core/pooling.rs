//! One vector from the hidden states of a prompt, gathered chunk by chunk in the order of positions: how the prompt was cut changes no bit.

use crate::request::Pooling;

/// What has been gathered so far.
#[derive(Clone, Debug)]
pub(super) struct PooledStates {
    how: Pooling,
    /// Sum of the rows, or the last row; `[width]`.
    values: Vec<f64>,
    rows: u32,
}

impl PooledStates {
    pub fn new(how: Pooling) -> Self {
        PooledStates {
            how,
            values: Vec::new(),
            rows: 0,
        }
    }

    /// Whether every token's state counts, so that none may come from the prefix cache.
    pub fn needs_all(&self) -> bool {
        self.how == Pooling::Mean
    }

    /// Forgets everything: the prompt is computed anew.
    pub fn clear(&mut self) {
        self.values.clear();
        self.rows = 0;
    }

    /// Takes in `hidden`, the states of `rows` tokens.
    pub fn add(&mut self, hidden: &[f32], rows: usize) {
        let width = hidden.len() / rows.max(1);
        if width == 0 {
            return;
        }
        if self.how == Pooling::Last {
            let last = &hidden[hidden.len() - width..];
            self.values = last.iter().map(|&value| f64::from(value)).collect();
            return;
        }
        self.values.resize(width, 0.0);
        for row in hidden.chunks_exact(width) {
            for (sum, &value) in self.values.iter_mut().zip(row) {
                *sum += f64::from(value);
            }
            self.rows += 1;
        }
    }

    /// The vector; `None` if it holds what is no number.
    pub fn vector(&self) -> Option<Vec<f32>> {
        let count = f64::from(self.rows.max(1));
        let mean = self.values.iter().map(|value| (value / count) as f32);
        let vector: Vec<f32> = mean.collect();
        vector
            .iter()
            .all(|value| value.is_finite())
            .then_some(vector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_the_rows_are_cut_the_vector_is_the_same() {
        let rows: Vec<f32> = (0..12).map(|i| (i as f32 * 0.7).sin()).collect();
        for how in [Pooling::Mean, Pooling::Last] {
            let mut whole = PooledStates::new(how);
            whole.add(&rows, 4);
            let mut cut = PooledStates::new(how);
            cut.add(&rows[..3], 1);
            cut.add(&rows[3..], 3);
            assert_eq!(whole.vector(), cut.vector());
            let expected = match how {
                Pooling::Mean => (rows[0] + rows[3] + rows[6] + rows[9]) / 4.0,
                Pooling::Last => rows[9],
            };
            assert!((whole.vector().unwrap()[0] - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn what_is_no_number_is_no_vector() {
        let mut states = PooledStates::new(Pooling::Mean);
        states.add(&[1.0, f32::NAN], 1);
        assert_eq!(states.vector(), None);
        states.clear();
        states.add(&[1.0, 2.0], 1);
        assert_eq!(states.vector(), Some(vec![1.0, 2.0]));
    }
}
