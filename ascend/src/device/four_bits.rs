//! Weights of four bits: `WeightQuantBatchMatmulV2` takes them `[inputs, outputs]`, two to a byte, with a factor and an offset for
//! every group of inputs of an output. Files hold blocks of 32 inputs, whose number q stands for `q * scale + minimum`; here it is
//! `(q - 8 + offset) * scale`, so the offset is `8 + minimum / scale`, and none where all are 0.

use super::AclDevice;
use super::fit::lacks_operator;
use crate::tensor::View;
use half::f16;
use ropeteam_acl_sys::types::*;
use ropeteam_device::{DeviceError, Dtype, TensorView};
use std::ptr::null;

/// Inputs of a block.
const BLOCK: usize = 32;
/// Most inputs and outputs of such a product.
const LARGEST: usize = 65_535;
/// Blocks that may share a group; the largest that fits is taken.
const SHARING: [usize; 3] = [4, 2, 1];
/// The operator without which such weights are widened.
const OPERATOR: &str = "aclnnWeightQuantBatchMatmulV2";

/// Factors of groups, `[groups, outputs]` in the type of activations.
#[derive(Clone, Copy)]
pub struct Grouped {
    scale: View,
    offset: Option<View>,
    /// Inputs of a group.
    group: i32,
}

/// A row of blocks as a file holds it.
struct Stored<'a> {
    blocks: &'a [u8],
    /// Bytes of a block, and those before its numbers.
    block: usize,
    head: usize,
}

impl<'a> Stored<'a> {
    fn rows(part: &TensorView<'a>) -> impl Iterator<Item = Self> {
        let (block, head) = (
            part.dtype.block_bytes(),
            part.dtype.block_bytes() - BLOCK / 2,
        );
        let width = part.bytes.len() / part.shape[0];
        let (bytes, order) = (part.bytes, part.row_order);
        (0..part.shape[0]).map(move |row| {
            let row = order.map_or(row, |order| order[row] as usize);
            Self {
                blocks: &bytes[row * width..][..width],
                block,
                head,
            }
        })
    }

    /// Factor and offset of a block.
    fn factors(&self, block: usize) -> (f32, f32) {
        let bytes = &self.blocks[block * self.block..];
        let number = |at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
        let scale = number(0);
        match (self.head, scale) {
            (2, _) => (scale, 0.0),
            // All of its numbers are the minimum.
            (_, 0.0) => (number(2), 1.0),
            _ => (scale, 8.0 + number(2) / scale),
        }
    }

    /// The number of an input less 8, in the lower four bits.
    fn number(&self, input: usize) -> u8 {
        let bytes = &self.blocks[input / BLOCK * self.block..][..self.block];
        if self.head > 2 && bytes[..2] == [0, 0] {
            return 0;
        }
        let within = input % BLOCK;
        let pair = bytes[self.head + within % (BLOCK / 2)];
        let number = if within < BLOCK / 2 {
            pair & 15
        } else {
            pair >> 4
        };
        number ^ 8
    }
}

impl AclDevice {
    /// Whether the parts can stay in four bits.
    pub(super) fn takes_int4(
        &self,
        parts: &[TensorView<'_>],
        [outputs, inputs]: [usize; 2],
    ) -> bool {
        let in_blocks = |part: &TensorView<'_>| matches!(part.dtype, Dtype::Q4_0 | Dtype::Q4_1);
        parts.iter().all(in_blocks)
            && outputs.is_multiple_of(2)
            && outputs <= LARGEST
            && (BLOCK + 1..=LARGEST).contains(&inputs)
            && !lacks_operator(&self.session.acl.operators.absent(), OPERATOR)
    }

    /// Brings the parts, one beside the other.
    pub(super) fn bring_int4(
        &mut self,
        parts: &[TensorView<'_>],
        [outputs, inputs]: [usize; 2],
    ) -> Result<(View, Grouped), DeviceError> {
        let rows: Vec<Stored<'_>> = parts.iter().flat_map(Stored::rows).collect();
        let width = outputs / 2;
        let address = self.arena.piece("weights", inputs * width)?;
        self.staging
            .bring(address, inputs * width, width, |at, buffer| {
                for (line, input) in buffer.chunks_exact_mut(width).zip(at / width..) {
                    for (byte, [low, high]) in line.iter_mut().zip(rows.as_chunks::<2>().0) {
                        *byte = low.number(input) | high.number(input) << 4;
                    }
                }
            })?;
        let blocks = inputs / BLOCK;
        let factors: Vec<Vec<(f32, f32)>> = (0..blocks)
            .map(|block| rows.iter().map(|row| row.factors(block)).collect())
            .collect();
        let alike = |sharing: usize| {
            let fits = blocks.is_multiple_of(sharing) && blocks > sharing;
            fits && factors
                .chunks(sharing)
                .all(|group| group.iter().all(|line| *line == group[0]))
        };
        let sharing = SHARING
            .into_iter()
            .find(|sharing| alike(*sharing))
            .unwrap_or(1);
        let shared: Vec<&(f32, f32)> = factors.iter().step_by(sharing).flatten().collect();
        let scales: Vec<f32> = shared.iter().map(|(scale, _)| *scale).collect();
        let offsets: Vec<f32> = shared.iter().map(|(_, offset)| *offset).collect();
        let shape = [blocks / sharing, outputs];
        let scale = self.bring_matrix(&scales, shape)?;
        let offset = match offsets.iter().all(|offset| *offset == 0.0) {
            true => None,
            false => Some(self.bring_matrix(&offsets, shape)?),
        };
        let grouped = Grouped {
            scale,
            offset,
            group: (sharing * BLOCK) as i32,
        };
        let view = View::new(address, ACL_INT4, &[inputs, outputs]);
        Ok((view, grouped))
    }

    fn bring_matrix(&mut self, values: &[f32], shape: [usize; 2]) -> Result<View, DeviceError> {
        let flat = self.bring_values(values)?;
        Ok(View::new(flat.address, flat.data_type, &shape))
    }

    /// The bias of such a product: f32 beside bf16.
    pub(super) fn bring_int4_bias(&mut self, values: &[f32]) -> Result<View, DeviceError> {
        if self.float() != ACL_BF16 {
            return self.bring_values(values);
        }
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let address = self.bring_bytes(&bytes)?;
        Ok(View::new(address, ACL_FLOAT, &[values.len()]))
    }

    /// `out = x · weight + bias`.
    pub(super) fn product_in_int4(
        &mut self,
        x: View,
        (weight, bias): (View, Option<View>),
        grouped: Grouped,
        out: View,
    ) -> Result<(), DeviceError> {
        let mut tensors = vec![x, weight, grouped.scale, out];
        let mut places = vec![0, 1, 2, 7];
        for (tensor, place) in [(grouped.offset, 3), (bias, 6)] {
            tensors.extend(tensor);
            places.extend(tensor.map(|_| place));
        }
        let offset = grouped.offset.map(|_| 4);
        let bias = bias.map(|_| tensors.len() - 1);
        let given = |at: Option<&*mut aclTensor>| at.map_or(null(), |at| at.cast_const());
        launch!(
            self,
            aclnnWeightQuantBatchMatmulV2GetWorkspaceSize,
            aclnnWeightQuantBatchMatmulV2,
            tensors,
            places,
            [
                grouped.group.into(),
                grouped.offset.is_some().into(),
                bias.is_some().into()
            ],
            |t| (
                t[0],
                t[1],
                t[2],
                given(offset.map(|at| &t[at])),
                null(),
                null(),
                given(bias.map(|at| &t[at])),
                grouped.group,
                t[3]
            )
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeteam_device::dequant_row;

    /// What the operator makes of a row.
    fn computed(row: &Stored<'_>, inputs: usize) -> Vec<f32> {
        let number = |input| f32::from((row.number(input) << 4) as i8 >> 4);
        let value = |input: usize| {
            let (scale, offset) = row.factors(input / BLOCK);
            (number(input) + offset) * scale
        };
        (0..inputs).map(value).collect()
    }

    #[test]
    fn numbers_stand_for_what_the_file_means() {
        for (dtype, heads) in [
            (Dtype::Q4_0, [&[0x00, 0x38][..], &[0x00, 0x00]]),
            (
                Dtype::Q4_1,
                [&[0x00, 0x38, 0x00, 0xbc], &[0x00, 0x00, 0x00, 0x40]],
            ),
        ] {
            let numbers: Vec<u8> = (0..16).map(|i| i * 17 % 251).collect();
            let bytes: Vec<u8> = heads
                .iter()
                .flat_map(|head| [head, &numbers[..]].concat())
                .collect();
            let mut expected = vec![0.0; 64];
            dequant_row(dtype, &bytes, &mut expected);
            let view = TensorView {
                dtype,
                shape: [1, 64],
                bytes: &bytes,
                row_order: None,
                scales: None,
            };
            let row = Stored::rows(&view).next().expect("a row");
            assert_eq!(computed(&row, 64), expected, "{dtype:?}");
        }
    }
}
