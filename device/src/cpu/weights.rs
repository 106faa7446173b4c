//! The weights of a CPU device, packed at load.

use super::memory::{ensure_free, out_of_memory};
use super::{ensure, shape_error};
use crate::checks::{check_parts, check_view};
use crate::{DeviceError, Precision, TensorView, Weight};
use ropeteam_kernels::dequant::dequant_row;
use ropeteam_kernels::{Dtype, Format, Machine, Matrix, MatrixId, MatrixStore, Source};

/// All weights; `Weight(i)` is the i-th.
#[derive(Default)]
pub(super) struct Weights {
    held: Vec<Held>,
    store: MatrixStore,
}

enum Held {
    Linear(MatrixId),
    /// An embedding table; with `head` it is a linear weight as well.
    Table {
        matrix: MatrixId,
        head: bool,
    },
    Vector(Vec<f32>),
}

impl Held {
    fn kind(&self) -> &'static str {
        match self {
            Held::Linear(_) => "a linear weight",
            Held::Table { head: true, .. } => "an embedding and head",
            Held::Table { head: false, .. } => "an embedding",
            Held::Vector(_) => "a vector",
        }
    }
}

impl Weights {
    pub(super) fn load_linear(
        &mut self,
        machine: &mut Machine,
        precision: Precision,
        parts: &[TensorView<'_>],
        bias: &[TensorView<'_>],
    ) -> Result<Weight, DeviceError> {
        let op = "load_linear";
        let mut values = Vec::new();
        for vector in bias {
            append_vector(op, vector, &mut values)?;
        }
        let matrix = self.pack(op, machine, precision, parts, &values)?;
        Ok(self.push(Held::Linear(matrix)))
    }

    pub(super) fn load_embedding(
        &mut self,
        machine: &mut Machine,
        precision: Precision,
        table: &TensorView<'_>,
        head: bool,
    ) -> Result<Weight, DeviceError> {
        // Of all weights, four bits cost most in the table that logits come from (0.06 nll on SmolLM2).
        let precision = match precision {
            Precision::Int4 if head && stored_format(table.dtype) != Format::Int4 => {
                Precision::Int8
            }
            other => other,
        };
        let matrix = self.pack("load_embedding", machine, precision, &[*table], &[])?;
        Ok(self.push(Held::Table { matrix, head }))
    }

    pub(super) fn load_vector(&mut self, vector: &TensorView<'_>) -> Result<Weight, DeviceError> {
        let mut values = Vec::new();
        append_vector("load_vector", vector, &mut values)?;
        ensure(!values.is_empty(), "load_vector", || {
            "a vector without elements".to_owned()
        })?;
        Ok(self.push(Held::Vector(values)))
    }

    /// Checks and packs a matrix.
    fn pack(
        &mut self,
        op: &'static str,
        machine: &mut Machine,
        precision: Precision,
        parts: &[TensorView<'_>],
        bias: &[f32],
    ) -> Result<MatrixId, DeviceError> {
        let (inputs, outputs) = check_parts(op, parts)?;
        ensure(bias.is_empty() || bias.len() == outputs, op, || {
            format!("{} bias values for {outputs} outputs", bias.len())
        })?;
        let formats = formats_of(precision, parts);
        let sizes = formats.iter().zip(parts);
        let bytes = sizes
            .map(|(format, part)| MatrixStore::bytes(*format, part.shape[0], inputs))
            .sum();
        ensure_free("weights", bytes)?;
        let sources: Vec<_> = formats
            .iter()
            .zip(parts)
            .map(|(format, part)| (*format, source(part)))
            .collect();
        let packed = self.store.pack_mixed(machine, inputs, &sources, bias);
        packed.map_err(|_| out_of_memory("weights", bytes))
    }

    fn push(&mut self, held: Held) -> Weight {
        self.held.push(held);
        Weight(self.held.len() as u32 - 1)
    }

    fn get(&self, op: &'static str, weight: Weight) -> Result<&Held, DeviceError> {
        self.held
            .get(weight.0 as usize)
            .ok_or_else(|| shape_error(op, format!("no weight {}", weight.0)))
    }

    /// A weight that `linear` takes.
    pub(super) fn linear(
        &self,
        op: &'static str,
        weight: Weight,
    ) -> Result<Matrix<'_>, DeviceError> {
        match self.get(op, weight)? {
            Held::Linear(matrix) | Held::Table { matrix, head: true } => {
                Ok(self.store.get(*matrix))
            }
            other => Err(shape_error(
                op,
                format!("weight {} is {}", weight.0, other.kind()),
            )),
        }
    }

    /// An embedding table.
    pub(super) fn table(
        &self,
        op: &'static str,
        weight: Weight,
    ) -> Result<Matrix<'_>, DeviceError> {
        match self.get(op, weight)? {
            Held::Table { matrix, .. } => Ok(self.store.get(*matrix)),
            other => Err(shape_error(
                op,
                format!("weight {} is {}", weight.0, other.kind()),
            )),
        }
    }

    /// A vector.
    pub(super) fn vector(&self, op: &'static str, weight: Weight) -> Result<&[f32], DeviceError> {
        match self.get(op, weight)? {
            Held::Vector(values) => Ok(values),
            other => Err(shape_error(
                op,
                format!("weight {} is {}", weight.0, other.kind()),
            )),
        }
    }
}

fn source<'a>(view: &TensorView<'a>) -> Source<'a> {
    Source {
        dtype: view.dtype,
        rows: view.shape[0],
        bytes: view.bytes,
        row_order: view.row_order,
        scales: view.scales,
    }
}

/// What each part of a matrix is held as.
fn formats_of(precision: Precision, parts: &[TensorView<'_>]) -> Vec<Format> {
    let one = match precision {
        Precision::F32 => Format::F32,
        Precision::Bf16 => Format::Bf16,
        Precision::Int8 => Format::Int8,
        Precision::Int4 => Format::Int4,
        Precision::Stored => {
            let formats = parts.iter().map(|part| stored_format(part.dtype));
            let formats: Vec<_> = formats.collect();
            // All parts are multiplied by the same rows: quantised weights beside floats are widened to theirs.
            if formats.contains(&Format::Bf16) {
                Format::Bf16
            } else {
                return formats;
            }
        }
    };
    vec![one; parts.len()]
}

/// The format that holds a dtype with all its bits: floats of 32 and 16 bits apart, which are rounded to bf16.
fn stored_format(dtype: Dtype) -> Format {
    match dtype {
        Dtype::F32 | Dtype::F16 | Dtype::BF16 => Format::Bf16,
        Dtype::I8 => Format::Int8,
        Dtype::Q8_0 => Format::Int8Blocks,
        Dtype::Q6_K => Format::Int6,
        Dtype::Q4_0 | Dtype::Q4_1 | Dtype::Q4_K => Format::Int4,
    }
}

/// Appends a vector in f32. Its shape is `[n, 1]` (then `row_order` moves elements) or `[1, n]`.
fn append_vector(
    op: &'static str,
    view: &TensorView<'_>,
    out: &mut Vec<f32>,
) -> Result<(), DeviceError> {
    check_view(op, view)?;
    ensure(view.shape.contains(&1), op, || {
        format!("a vector of shape {:?}", view.shape)
    })?;
    let mut values = vec![0.0; view.shape[0] * view.shape[1]];
    dequant_row(view.dtype, view.bytes, &mut values);
    if let Some(scales) = view.scales {
        let rows = values.chunks_exact_mut(view.shape[1]);
        for (row, scale) in rows.zip(scales) {
            row.iter_mut().for_each(|x| *x *= scale);
        }
    }
    match view.row_order.filter(|_| view.shape[1] == 1) {
        Some(order) => out.extend(order.iter().map(|row| values[*row as usize])),
        None => out.extend_from_slice(&values),
    }
    Ok(())
}
