//! Element formats of stored weights and the sizes that follow from them. Decoding stands in `dequant`.

/// Element format of stored weights. Block formats are those of GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, non_camel_case_types)]
pub enum Dtype {
    F32,
    F16,
    BF16,
    /// Signed bytes with a factor per row, which lies beside them (`Source::scales`).
    I8,
    Q4_0,
    Q4_1,
    Q8_0,
    Q4_K,
    Q6_K,
}

impl Dtype {
    /// Elements that are stored together; a row holds whole blocks.
    pub const fn block_elements(self) -> usize {
        match self {
            Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::I8 => 1,
            Dtype::Q4_0 | Dtype::Q4_1 | Dtype::Q8_0 => 32,
            Dtype::Q4_K | Dtype::Q6_K => 256,
        }
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::BF16 => 2,
            Dtype::I8 => 1,
            // One f16 scale and 16 bytes of nibbles; Q4_1 adds an f16 minimum.
            Dtype::Q4_0 => 18,
            Dtype::Q4_1 => 20,
            // One f16 scale and 32 signed bytes.
            Dtype::Q8_0 => 34,
            // Two f16, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles.
            Dtype::Q4_K => 144,
            // 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales, one f16.
            Dtype::Q6_K => 210,
        }
    }

    /// Bytes of a row of `cols` elements; `None` when `cols` is not a whole number of blocks or the size overflows.
    pub const fn row_bytes(self, cols: usize) -> Option<usize> {
        if !cols.is_multiple_of(self.block_elements()) {
            return None;
        }
        (cols / self.block_elements()).checked_mul(self.block_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_broken_blocks_has_no_size() {
        assert_eq!(Dtype::Q4_1.row_bytes(64), Some(40));
        assert_eq!(Dtype::Q4_1.row_bytes(48), None);
        assert_eq!(Dtype::Q6_K.row_bytes(512), Some(420));
        assert_eq!(Dtype::BF16.row_bytes(3), Some(6));
        assert_eq!(Dtype::F32.row_bytes(usize::MAX), None);
    }
}
