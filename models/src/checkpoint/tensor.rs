//! A tensor that was asked for: borrowed from its file as it stands there, or put together from several stored ones.

use ropeteam_device::{Dtype, TensorView};
use std::borrow::Cow;

/// A checked tensor of a checkpoint.
#[derive(Clone, Debug)]
pub struct Tensor<'a> {
    pub(crate) dtype: Dtype,
    pub(crate) shape: [usize; 2],
    pub(crate) bytes: Cow<'a, [u8]>,
    pub(crate) row_order: Option<&'a [u32]>,
    pub(crate) scales: Option<Vec<f32>>,
}

impl Tensor<'_> {
    /// It, as devices take it.
    pub fn view(&self) -> TensorView<'_> {
        TensorView {
            dtype: self.dtype,
            shape: self.shape,
            bytes: &self.bytes,
            row_order: self.row_order,
            scales: self.scales.as_deref(),
        }
    }
}

impl<'a> From<TensorView<'a>> for Tensor<'a> {
    fn from(view: TensorView<'a>) -> Self {
        Self {
            dtype: view.dtype,
            shape: view.shape,
            bytes: Cow::Borrowed(view.bytes),
            row_order: view.row_order,
            scales: view.scales.map(<[f32]>::to_vec),
        }
    }
}
