//! Weights on the device: matrices `[out, in]` as files hold them, which products see transposed. Floats come in the type of
//! activations, int8 with a factor per output stays int8, int4 in groups stays int4 (`four_bits`), other quantised formats are widened;
//! all go through pinned buffers.

use super::AclDevice;
use super::buffers::ELEMENT;
use super::fit::check_functions;
use super::four_bits::Grouped;
use crate::memory::Address;
use crate::tensor::View;
use half::{bf16, f16};
use ropeteam_acl_sys::types::*;
use ropeteam_device::checks::{check_parts, check_view, ensure, shape_error};
use ropeteam_device::{DeviceError, Dtype, Precision, TensorView, Weight, dequant_row};

/// Most inputs of a product of int8.
const INT8_INPUTS: usize = 65_535;

/// All weights; `Weight(i)` is the i-th.
#[derive(Default)]
pub struct Weights(Vec<Held>);

/// A weight.
#[derive(Clone, Copy)]
pub struct Held {
    kind: Kind,
    /// Its elements, row by row.
    pub view: View,
    outputs: usize,
    inputs: usize,
    /// Added to each output.
    pub bias: Option<View>,
    /// What its elements are.
    pub form: Form,
}

/// What the elements of a weight are.
#[derive(Clone, Copy)]
pub enum Form {
    /// Floats like activations.
    Floats,
    /// int8, with a factor for each output, f32.
    Int8 {
        /// The factors.
        scale: View,
    },
    /// int4, `[inputs, outputs]`.
    Int4(Grouped),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Linear,
    /// An embedding table; with `head` it is a linear weight as well.
    Table {
        head: bool,
    },
    Vector,
}

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Kind::Linear => "a linear weight",
            Kind::Table { head: true } => "an embedding and head",
            Kind::Table { head: false } => "an embedding",
            Kind::Vector => "a vector",
        }
    }
}

impl Weights {
    fn push(&mut self, held: Held) -> Weight {
        self.0.push(held);
        Weight(self.0.len() as u32 - 1)
    }

    /// The weight, whatever it is.
    pub fn get(&self, op: &'static str, weight: Weight) -> Result<&Held, DeviceError> {
        self.0
            .get(weight.0 as usize)
            .ok_or_else(|| shape_error(op, format!("no weight {}", weight.0)))
    }

    fn of(
        &self,
        op: &'static str,
        weight: Weight,
        fits: impl Fn(Kind) -> bool,
    ) -> Result<&Held, DeviceError> {
        let held = self.get(op, weight)?;
        match fits(held.kind) {
            true => Ok(held),
            false => Err(shape_error(
                op,
                format!("weight {} is {}", weight.0, held.kind.words()),
            )),
        }
    }

    /// Inputs and outputs of a weight that products take.
    pub fn linear(&self, op: &'static str, weight: Weight) -> Result<[usize; 2], DeviceError> {
        let fits = |kind| matches!(kind, Kind::Linear | Kind::Table { head: true });
        let held = self.of(op, weight, fits)?;
        Ok([held.inputs, held.outputs])
    }

    /// An embedding table, with its rows and columns.
    pub fn table(
        &self,
        op: &'static str,
        weight: Weight,
    ) -> Result<(View, [usize; 2]), DeviceError> {
        let held = self.of(op, weight, |kind| matches!(kind, Kind::Table { .. }))?;
        Ok((held.view, [held.outputs, held.inputs]))
    }

    /// A vector.
    pub fn vector(&self, op: &'static str, weight: Weight) -> Result<View, DeviceError> {
        Ok(self.of(op, weight, |kind| kind == Kind::Vector)?.view)
    }

    /// Elements of a vector; 0 when it is none.
    pub fn len(&self, weight: Weight) -> usize {
        self.0.get(weight.0 as usize).map_or(0, |held| held.inputs)
    }
}

impl AclDevice {
    /// See `Device::load_linear`.
    pub(super) fn bring_linear(
        &mut self,
        op: &'static str,
        parts: &[TensorView<'_>],
        bias: &[TensorView<'_>],
    ) -> Result<Weight, DeviceError> {
        let (inputs, outputs) = check_parts(op, parts)?;
        let mut values = Vec::new();
        for vector in bias {
            values.extend(vector_values(op, vector)?);
        }
        ensure(values.is_empty() || values.len() == outputs, op, || {
            format!("{} bias values for {outputs} outputs", values.len())
        })?;
        let shape = [outputs, inputs];
        let stays = self.options.precision == Precision::Stored;
        let (view, form) = if stays && is_int8(parts, inputs) {
            check_functions(self.session.acl, true)?;
            let (view, scale) = self.bring_int8(parts, shape)?;
            (view, Form::Int8 { scale })
        } else if stays && self.takes_int4(parts, shape) {
            let (view, grouped) = self.bring_int4(parts, shape)?;
            (view, Form::Int4(grouped))
        } else {
            (self.bring_floats(parts, shape)?, Form::Floats)
        };
        let bias = match (values.is_empty(), form) {
            (true, _) => None,
            (_, Form::Int4(_)) => Some(self.bring_int4_bias(&values)?),
            _ => Some(self.bring_values(&values)?),
        };
        Ok(self.weights.push(Held {
            kind: Kind::Linear,
            view,
            outputs,
            inputs,
            bias,
            form,
        }))
    }

    /// See `Device::load_embedding`.
    pub(super) fn bring_table(
        &mut self,
        table: &TensorView<'_>,
        head: bool,
    ) -> Result<Weight, DeviceError> {
        let (inputs, outputs) = check_parts("load_embedding", &[*table])?;
        let view = self.bring_floats(&[*table], [outputs, inputs])?;
        Ok(self.weights.push(Held {
            kind: Kind::Table { head },
            view,
            outputs,
            inputs,
            bias: None,
            form: Form::Floats,
        }))
    }

    /// See `Device::load_vector`.
    pub(super) fn bring_vector(&mut self, vector: &TensorView<'_>) -> Result<Weight, DeviceError> {
        let op = "load_vector";
        let values = vector_values(op, vector)?;
        ensure(!values.is_empty(), op, || {
            "a vector without elements".to_owned()
        })?;
        let view = self.bring_values(&values)?;
        Ok(self.weights.push(Held {
            kind: Kind::Vector,
            view,
            outputs: 1,
            inputs: values.len(),
            bias: None,
            form: Form::Floats,
        }))
    }

    /// Numbers in the type of activations.
    pub(super) fn bring_values(&mut self, values: &[f32]) -> Result<View, DeviceError> {
        let float = self.float();
        let bytes = values.len() * ELEMENT;
        let address = self.arena.piece("weights", bytes)?;
        self.staging.bring(address, bytes, ELEMENT, |at, buffer| {
            let first = at / ELEMENT;
            encode(
                float,
                &values[first..first + buffer.len() / ELEMENT],
                buffer,
            );
        })?;
        Ok(View::new(address, float, &[values.len()]))
    }

    /// Bytes as they are.
    pub(super) fn bring_bytes(&mut self, bytes: &[u8]) -> Result<Address, DeviceError> {
        let address = self.arena.piece("weights", bytes.len())?;
        self.staging.bring(address, bytes.len(), 1, |at, buffer| {
            buffer.copy_from_slice(&bytes[at..at + buffer.len()]);
        })?;
        Ok(address)
    }

    /// Matrices of int8, one below the other, and the factors of their rows.
    fn bring_int8(
        &mut self,
        parts: &[TensorView<'_>],
        [rows, cols]: [usize; 2],
    ) -> Result<(View, View), DeviceError> {
        let address = self.arena.piece("weights", rows * cols)?;
        let mut to = address;
        let mut factors = Vec::with_capacity(rows * 4);
        for part in parts {
            let stored = |row| part.row_order.map_or(row, |order| order[row] as usize);
            let bytes = part.shape[0] * cols;
            self.staging.bring(to, bytes, cols, |at, buffer| {
                for (i, row) in buffer.chunks_exact_mut(cols).enumerate() {
                    row.copy_from_slice(&part.bytes[stored(at / cols + i) * cols..][..cols]);
                }
            })?;
            to += bytes;
            let scales = part.scales.unwrap_or_default();
            let ordered = (0..part.shape[0]).map(|row| scales[stored(row)]);
            factors.extend(ordered.flat_map(f32::to_le_bytes));
        }
        let scale = View::new(self.bring_bytes(&factors)?, ACL_FLOAT, &[rows]);
        Ok((View::new(address, ACL_INT8, &[rows, cols]), scale))
    }

    /// Matrices, one below the other, in the type of activations.
    fn bring_floats(
        &mut self,
        parts: &[TensorView<'_>],
        [rows, cols]: [usize; 2],
    ) -> Result<View, DeviceError> {
        let float = self.float();
        let width = cols * ELEMENT;
        let address = self.arena.piece("weights", rows * width)?;
        let mut to = address;
        let mut values = vec![0.0; cols];
        for part in parts {
            let bytes = part.shape[0] * width;
            self.staging.bring(to, bytes, width, |at, buffer| {
                for (i, row) in buffer.chunks_exact_mut(width).enumerate() {
                    put_row(float, part, at / width + i, &mut values, row);
                }
            })?;
            to += bytes;
        }
        Ok(View::new(address, float, &[rows, cols]))
    }
}

/// Whether a product can take the parts as they are: int8, and not more inputs than it counts.
fn is_int8(parts: &[TensorView<'_>], inputs: usize) -> bool {
    parts.iter().all(|part| part.dtype == Dtype::I8) && inputs <= INT8_INPUTS
}

/// Row `row` of a matrix, in the type of activations.
fn put_row(
    float: aclDataType,
    part: &TensorView<'_>,
    row: usize,
    values: &mut [f32],
    out: &mut [u8],
) {
    let stored = part.row_order.map_or(row, |order| order[row] as usize);
    let width = part.bytes.len() / part.shape[0];
    let bytes = &part.bytes[stored * width..][..width];
    let is_same = match part.dtype {
        Dtype::BF16 => float == ACL_BF16,
        Dtype::F16 => float == ACL_FLOAT16,
        _ => false,
    };
    if is_same {
        out.copy_from_slice(bytes);
        return;
    }
    dequant_row(part.dtype, bytes, values);
    if let Some(scales) = part.scales {
        values.iter_mut().for_each(|x| *x *= scales[stored]);
    }
    encode(float, values, out);
}

/// The numbers of a vector `[n, 1]` (then `row_order` moves elements) or `[1, n]`.
pub fn vector_values(op: &'static str, view: &TensorView<'_>) -> Result<Vec<f32>, DeviceError> {
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
    Ok(match view.row_order.filter(|_| view.shape[1] == 1) {
        Some(order) => order.iter().map(|row| values[*row as usize]).collect(),
        None => values,
    })
}

/// Rounds numbers to bf16 or f16 and stores them.
pub fn encode(float: aclDataType, values: &[f32], out: &mut [u8]) {
    let words = out.as_chunks_mut::<ELEMENT>().0.iter_mut().zip(values);
    if float == ACL_FLOAT16 {
        words.for_each(|(word, value)| *word = f16::from_f32(*value).to_le_bytes());
    } else {
        words.for_each(|(word, value)| *word = bf16::from_f32(*value).to_le_bytes());
    }
}

/// Appends the numbers that bytes of bf16 or f16 stand for.
pub fn decode(float: aclDataType, bytes: &[u8], out: &mut Vec<f32>) {
    let words = bytes.as_chunks::<ELEMENT>().0.iter().copied();
    if float == ACL_FLOAT16 {
        out.extend(words.map(|word| f16::from_le_bytes(word).to_f32()));
    } else {
        out.extend(words.map(|word| bf16::from_le_bytes(word).to_f32()));
    }
}
