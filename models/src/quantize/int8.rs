//! int8 per output. Projections behind a norm are smoothed first, which changes the norm's weight too.

use super::error::QuantizeError;
use super::output::Output;
use super::{Told, Written, scheme};
use crate::checkpoint::{Checkpoint, Tensor, is_float, read_all};
use crate::families;
use crate::rounding::int8::Int8Rows;
use crate::rounding::smoothing::Smoothing;
use std::path::Path;

/// Writes `checkpoint` to the folder `out` with int8 projections.
///
/// # Errors
/// A model that is quantised already, files that cannot be read or written, a folder that is not empty.
pub fn int8(checkpoint: &Checkpoint, out: &Path, told: Told<'_>) -> Result<Written, QuantizeError> {
    let spec = families::spec(checkpoint.config())?;
    let mut output = Output::begin(checkpoint, out)?;
    let total = 4 * spec.layers();
    for layer in 0..spec.layers() {
        for (index, projection) in spec.projections().in_order().iter().enumerate() {
            let sources = output.sources(layer, projection)?;
            let mut columns = None;
            if let Some(norm) = projection.norm {
                let name = format!("model.layers.{layer}.{norm}.weight");
                let tensor = checkpoint.tensor(&name, &[projection.inputs])?;
                if is_float(tensor.dtype) {
                    let views: Vec<_> = sources.iter().map(|source| source.tensor.view()).collect();
                    let weights = read_all(&tensor.view());
                    let smoothing = Smoothing::new(&weights, &views, tensor.dtype);
                    output.add_vector(name, tensor.dtype, &smoothing.norm)?;
                    columns = Some(smoothing.columns);
                }
            }
            for source in &sources {
                let Tensor { dtype, .. } = source.tensor;
                let rows = Int8Rows::round(&source.tensor.view(), columns.as_deref(), dtype);
                output.add_int8(&source.module, rows, dtype)?;
            }
            told(4 * layer + index + 1, total);
        }
    }
    output.finish(&spec, scheme::int8())
}
