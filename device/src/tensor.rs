//! A tensor as a checkpoint holds it: bytes in a file's own format, not yet on any device.

pub use ropeteam_kernels::Dtype;
pub use ropeteam_kernels::dequant::dequant_row;

/// A tensor borrowed from a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    /// Element format; block formats lie along the last dimension.
    pub dtype: Dtype,
    /// `[out, in]` of a matrix, `[n]` of a vector.
    pub shape: [usize; 2],
    /// Row-major bytes; exactly `rows * dtype.row_bytes(cols)`.
    pub bytes: &'a [u8],
    /// Row r of the tensor is row `row_order[r]` of `bytes`; `None`: as stored.
    pub row_order: Option<&'a [u32]>,
    /// One factor per row as stored, for `Dtype::I8`; `None` for all else.
    pub scales: Option<&'a [f32]>,
}
