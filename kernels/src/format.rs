//! What weights are held as: the formats, the lines of a panel that they take, and what rows they are multiplied by.

use crate::rows::CHUNK;

/// What the numbers of a matrix are held as. Sums are f32 everywhere; integers are multiplied by rows rounded to int8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// f32.
    F32,
    /// bf16.
    Bf16,
    /// int8 with an f32 factor per output: 8 bits a weight.
    Int8,
    /// int8 with an f16 scale per 32 inputs, as in GGUF's Q8_0: 8.5 bits a weight.
    Int8Blocks,
    /// GGUF's Q6_K as it is, with an int8 scale per 16 inputs and an f16 factor: 7 bits a weight. Packed from that only.
    Int6,
    /// int4 with an f16 scale and an f16 minimum per 32 inputs, `scale * q + min`: 5 bits a weight.
    Int4,
}

/// What rows are turned into before they are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowForm {
    /// f32, as they are.
    F32,
    /// bf16, to nearest.
    Bf16,
    /// int8 with a scale per 64 inputs.
    Int8,
}

impl Format {
    /// Inputs of the smallest piece of a panel, and its lines: in integers a chunk of rows, filled up with zeros. Layouts: `pack`.
    const fn unit(self) -> (usize, usize) {
        match self {
            Format::F32 => (1, 1),
            Format::Bf16 => (2, 1),
            Format::Int8 => (CHUNK, CHUNK / 4),
            // A line of scales for two groups of 32 inputs, then those.
            Format::Int8Blocks => (CHUNK, CHUNK / 64 * 17),
            // For 32 inputs a line of scales, four of low nibbles, two of high bit pairs.
            Format::Int6 => (CHUNK, CHUNK / 32 * 7),
            // For 32 inputs a line of scales and minima, four of nibbles.
            Format::Int4 => (CHUNK, CHUNK / 32 * 5),
        }
    }

    /// Lines of a panel of so many inputs.
    pub(crate) const fn panel_lines(self, inputs: usize) -> usize {
        let (unit_inputs, unit_lines) = self.unit();
        inputs.div_ceil(unit_inputs) * unit_lines
    }

    /// What rows are multiplied by it as.
    pub const fn row_form(self) -> RowForm {
        match self {
            Format::F32 => RowForm::F32,
            Format::Bf16 => RowForm::Bf16,
            Format::Int8 | Format::Int8Blocks | Format::Int6 | Format::Int4 => RowForm::Int8,
        }
    }
}
