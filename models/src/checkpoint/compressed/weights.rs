//! Puts a weight together from the tensors that stand for it: packed numbers become blocks that devices take, without
//! being rounded again (factors are kept in f16, which holds those of real files to a thousandth of a step).

use super::super::error::CheckpointError;
use super::super::floats;
use super::super::table::TensorTable;
use super::super::tensor::Tensor;
use super::scheme::{Scheme, Span, Storage};
use super::words::{BLOCK, Packed, SIGN, push_q4_1, push_q8_0};
use super::{WEIGHT, WORD};
use ropeteam_device::Dtype;
use std::borrow::Cow;

/// The weight `[outputs, inputs]` of a quantised module.
///
/// # Errors
/// A part that is missing or of another kind or shape than the scheme asks for, a factor that is no finite number.
pub(crate) fn read<'a>(
    table: &'a TensorTable,
    module: &str,
    scheme: &Scheme,
    [outputs, inputs]: [usize; 2],
) -> Result<Tensor<'a>, CheckpointError> {
    let parts = Parts {
        table,
        module,
        scheme,
        outputs,
        inputs,
    };
    match scheme.storage {
        Storage::Bytes => parts.signed_bytes(),
        Storage::Words(bits) => {
            parts.check_stated_shape()?;
            match (bits, scheme.span) {
                (8, Span::Channel | Span::Tensor) => parts.unpacked_bytes(),
                _ => parts.blocks(bits),
            }
        }
    }
}

/// The stored tensors of one weight.
struct Parts<'a, 'm> {
    table: &'a TensorTable,
    module: &'m str,
    scheme: &'m Scheme,
    outputs: usize,
    inputs: usize,
}

impl<'a> Parts<'a, '_> {
    fn name(&self, part: &str) -> String {
        format!("{}.{part}", self.module)
    }

    fn per_output(&self, bytes: Cow<'a, [u8]>) -> Result<Tensor<'a>, CheckpointError> {
        Ok(Tensor {
            dtype: Dtype::I8,
            shape: [self.outputs, self.inputs],
            bytes,
            row_order: None,
            scales: Some(self.scales_of_outputs()?),
        })
    }

    fn signed_bytes(&self) -> Result<Tensor<'a>, CheckpointError> {
        let shape = [self.outputs, self.inputs];
        let bytes = self.table.raw(&self.name(WEIGHT), "I8", &shape)?;
        self.per_output(Cow::Borrowed(bytes))
    }

    fn unpacked_bytes(&self) -> Result<Tensor<'a>, CheckpointError> {
        let words = self.words(8)?;
        let width = self.inputs.div_ceil(WORD) * WORD;
        let rows = words.chunks_exact(width);
        let bytes = rows
            .flat_map(|row| row[..self.inputs].iter().map(|byte| byte ^ SIGN))
            .collect();
        self.per_output(Cow::Owned(bytes))
    }

    /// Numbers with a factor per group, as blocks of 32.
    fn blocks(&self, bits: u32) -> Result<Tensor<'a>, CheckpointError> {
        let (dtype, block_bytes) = match bits {
            4 => (Dtype::Q4_1, 16),
            _ => (Dtype::Q8_0, 32),
        };
        let (words, scales) = (self.words(bits)?, self.scales()?);
        let (groups, zeros) = (self.groups(), self.zero_points(bits)?);
        let blocks_per_group = self.inputs / BLOCK / groups;
        let row_bytes = dtype.row_bytes(self.inputs).unwrap_or(0);
        let mut bytes = Vec::with_capacity(self.outputs * row_bytes);
        for (index, packed) in words.chunks_exact(block_bytes).enumerate() {
            let blocks = groups * blocks_per_group;
            let (output, group) = (index / blocks, index % blocks / blocks_per_group);
            let scale = match self.scheme.span {
                Span::Tensor => scales[0],
                _ => scales[output * groups + group],
            };
            let zero = zeros.as_ref().map_or(1 << (bits - 1), |zeros| {
                // Zero points are packed along the outputs.
                let per_word = (32 / bits) as usize;
                let word = output / per_word * groups + group;
                zeros.get(word * per_word + output % per_word)
            });
            let finite = match <&[u8; 16]>::try_from(packed) {
                Ok(packed) => push_q4_1(packed, scale, zero, &mut bytes),
                Err(_) => push_q8_0(packed, scale, &mut bytes),
            };
            if !finite {
                return Err(self.not_finite(output));
            }
        }
        Ok(Tensor {
            dtype,
            shape: [self.outputs, self.inputs],
            bytes: Cow::Owned(bytes),
            row_order: None,
            scales: None,
        })
    }

    /// The packed words; for blocks, rows are whole blocks.
    fn words(&self, bits: u32) -> Result<&'a [u8], CheckpointError> {
        let per_word = (32 / bits) as usize;
        let in_blocks = bits == 4 || matches!(self.scheme.span, Span::Group(_));
        let whole = match self.scheme.span {
            Span::Group(size) => size,
            _ if in_blocks => BLOCK,
            _ => 1,
        };
        let name = self.name("weight_packed");
        if !self.inputs.is_multiple_of(whole) {
            let detail = format!(
                "{name} has rows of {} numbers, which are no whole groups of {whole}",
                self.inputs
            );
            return Err(CheckpointError::malformed(
                self.table.file_of(&name),
                detail,
            ));
        }
        let shape = [self.outputs, self.inputs.div_ceil(per_word)];
        self.table.raw(&name, "I32", &shape)
    }

    /// Groups with a factor of their own in each output.
    fn groups(&self) -> usize {
        match self.scheme.span {
            Span::Group(size) => self.inputs / size,
            _ => 1,
        }
    }

    /// Factors as stored: one, one per output, or one per group of each output.
    fn scales(&self) -> Result<Vec<f32>, CheckpointError> {
        let name = self.name("weight_scale");
        let shapes: &[&[usize]] = match self.scheme.span {
            Span::Tensor => &[&[1], &[]],
            Span::Channel => &[&[self.outputs, 1], &[self.outputs]],
            Span::Group(_) => &[&[self.outputs, self.groups()]],
        };
        let view = self.table.floats(&name, shapes)?;
        let scales = floats::read_all(&view);
        match scales.iter().position(|scale| !scale.is_finite()) {
            Some(bad) => Err(self.not_finite(bad / self.groups())),
            None => Ok(scales),
        }
    }

    fn scales_of_outputs(&self) -> Result<Vec<f32>, CheckpointError> {
        let scales = self.scales()?;
        Ok(match self.scheme.span {
            Span::Tensor => vec![scales[0]; self.outputs],
            _ => scales,
        })
    }

    /// Zero points as they are packed: word by word, along the outputs.
    fn zero_points(&self, bits: u32) -> Result<Option<Packed<'a>>, CheckpointError> {
        if self.scheme.symmetric {
            return Ok(None);
        }
        let rows = self.outputs.div_ceil((32 / bits) as usize);
        let name = self.name("weight_zero_point");
        let bytes = self.table.raw(&name, "I32", &[rows, self.groups()])?;
        Ok(Some(Packed::new(bytes, bits)))
    }

    /// `weight_shape` must say what the configuration does.
    fn check_stated_shape(&self) -> Result<(), CheckpointError> {
        let name = self.name("weight_shape");
        let bytes = self.table.raw(&name, "I64", &[2])?;
        let stated: Vec<i64> = bytes
            .as_chunks()
            .0
            .iter()
            .map(|number| i64::from_le_bytes(*number))
            .collect();
        if stated == [self.outputs as i64, self.inputs as i64] {
            return Ok(());
        }
        let detail = format!(
            "{name} says {stated:?}, expected [{}, {}]",
            self.outputs, self.inputs
        );
        Err(CheckpointError::malformed(
            self.table.file_of(&name),
            detail,
        ))
    }

    fn not_finite(&self, row: usize) -> CheckpointError {
        let tensor = self.name("weight_scale");
        CheckpointError::NotFinite {
            file: self.table.file_of(&tensor).to_path_buf(),
            tensor,
            row,
        }
    }
}
