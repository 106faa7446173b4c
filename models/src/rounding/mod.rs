//! Rounding weights to few bits: the arithmetic that loading with int8 weights and `quantize` share.
//! What devices do with the result, and in which files it stands, is not known here.

pub(crate) mod int8;
pub(crate) mod smoothing;

use ropeteam_device::{Dtype, TensorView};

/// Rows `0 .. rows`, shared out over this machine's cores: `work` gets the first row of a share and what each holder has of it.
/// `a` and `b` hold `a.len() / rows` and `b.len() / rows` elements per row.
pub(crate) fn share_rows<A: Send, B: Send>(
    rows: usize,
    a: &mut [A],
    b: &mut [B],
    work: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let share = rows.div_ceil(cores).max(1);
    let widths = (a.len() / rows.max(1), b.len() / rows.max(1));
    std::thread::scope(|scope| {
        let shares = a
            .chunks_mut((share * widths.0).max(1))
            .zip(b.chunks_mut((share * widths.1).max(1)));
        for (index, (a, b)) in shares.enumerate() {
            let work = &work;
            scope.spawn(move || work(index * share, a, b));
        }
    });
}

/// f32 values as a view for a device.
pub(crate) fn f32_view(bytes: &[u8], shape: [usize; 2]) -> TensorView<'_> {
    TensorView {
        dtype: Dtype::F32,
        shape,
        bytes,
        row_order: None,
        scales: None,
    }
}
