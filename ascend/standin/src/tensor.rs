//! A tensor as operators see it: shape, strides and type over memory of the device. Values are computed in f32 and rounded to the
//! tensor's type when written, as the chip does at the border of an operator.

use crate::fail::{Fail, failure, mistake};
use crate::memory::Span;
use crate::task::Access;
use half::{bf16, f16};
use ropeteam_acl_sys::code::{ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACLNN_ERR_PARAM_INVALID};
use ropeteam_acl_sys::types::*;

/// Most dimensions a tensor has.
const MAX_DIMS: usize = 8;

/// A view of memory on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Type of its elements.
    pub data_type: aclDataType,
    /// Dimensions of the view.
    pub shape: Vec<usize>,
    /// Elements from one index to the next, per dimension.
    pub strides: Vec<usize>,
    /// Elements before the first.
    pub offset: usize,
    /// Layout in memory.
    pub format: aclFormat,
    /// Elements of the memory behind it.
    pub storage: usize,
    /// Address of that memory.
    pub address: u64,
}

impl Tensor {
    /// Checks what a caller describes.
    ///
    /// # Errors
    /// When the view does not fit its memory.
    pub fn new(tensor: Self) -> Result<Self, Fail> {
        let invalid = |text: String| Err(mistake(ACLNN_ERR_PARAM_INVALID, text));
        let is_known = tensor.data_type.bytes().is_some() || tensor.data_type == ACL_INT4;
        if !is_known || tensor.format != ACL_FORMAT_ND {
            let (data_type, format) = (tensor.data_type.0, tensor.format.0);
            return Err(failure(
                ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                format!("the stand-in does not offer type {data_type} in format {format}"),
            ));
        }
        if tensor.shape.len() > MAX_DIMS || tensor.shape.len() != tensor.strides.len() {
            let (dims, strides) = (tensor.shape.len(), tensor.strides.len());
            return invalid(format!("{dims} dimensions and {strides} strides"));
        }
        if tensor.data_type == ACL_INT4
            && (!tensor.is_contiguous()
                || tensor.offset > 0
                || tensor.shape.last().is_none_or(|n| n % 2 > 0))
        {
            return invalid("int4 lies in one piece, with an even last dimension".to_owned());
        }
        let end = tensor.offset + tensor.reach();
        if tensor.elements() > 0 && end > tensor.storage {
            let storage = tensor.storage;
            return invalid(format!("the view ends at element {end} of {storage}"));
        }
        Ok(tensor)
    }

    /// Elements of the view.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Elements from the first to the last of the view, both included.
    fn reach(&self) -> usize {
        let steps = self.shape.iter().zip(&self.strides);
        1 + steps
            .map(|(n, stride)| n.saturating_sub(1) * stride)
            .sum::<usize>()
    }

    /// Bytes of an element.
    pub fn element_bytes(&self) -> usize {
        self.data_type.bytes().unwrap_or(1)
    }

    /// Bytes of all elements of the view.
    pub fn bytes(&self) -> usize {
        self.bytes_of(self.elements())
    }

    /// Bytes of so many elements, two of which may share one.
    fn bytes_of(&self, elements: usize) -> usize {
        match self.data_type {
            ACL_INT4 => elements.div_ceil(2),
            _ => elements * self.element_bytes(),
        }
    }

    /// Whether elements lie one after the other in row-major order.
    pub fn is_contiguous(&self) -> bool {
        self.run_length() == self.elements()
    }

    /// Elements that lie one after the other before the view jumps.
    fn run_length(&self) -> usize {
        let mut run = 1;
        for (n, stride) in self.shape.iter().zip(&self.strides).rev() {
            if *n != 1 && *stride != run {
                break;
            }
            run *= n;
        }
        run
    }

    /// The memory behind it.
    pub fn span(&self) -> Span {
        Span {
            address: self.address,
            len: self.bytes_of(self.storage),
        }
    }

    /// The elements `from .. from + count` of the memory behind it.
    pub fn part(&self, from: usize, count: usize) -> Span {
        Span {
            address: self.address + self.bytes_of(from) as u64,
            len: self.bytes_of(count),
        }
    }

    /// One row of a matrix.
    pub fn row(&self, row: usize) -> Self {
        Self {
            shape: self.shape[1..].to_vec(),
            strides: self.strides[1..].to_vec(),
            offset: self.offset + row * self.strides[0],
            ..self.clone()
        }
    }

    /// The bytes that the view touches, in row-major order, without the gaps between them.
    pub fn runs(&self) -> Vec<Span> {
        let run = self.run_length();
        if self.elements() == 0 {
            return Vec::new();
        }
        let mut outer = self.shape.len();
        let mut inner = 1;
        while outer > 0 && inner < run {
            outer -= 1;
            inner *= self.shape[outer];
        }
        let count: usize = self.shape[..outer].iter().product();
        let start = |index: usize| {
            let mut rest = index;
            let mut at = self.offset;
            for (n, stride) in self.shape[..outer].iter().zip(&self.strides).rev() {
                at += rest % n * stride;
                rest /= n;
            }
            at
        };
        (0..count)
            .map(|index| self.part(start(index), run))
            .collect()
    }

    /// All values in row-major order.
    pub fn read(&self, access: &mut Access<'_>) -> Result<Vec<f32>, Fail> {
        let mut values = Vec::with_capacity(self.elements());
        for run in self.runs() {
            decode(self.data_type, access.read(run)?, &mut values);
        }
        Ok(values)
    }

    /// All values of an integer tensor in row-major order.
    pub fn read_integers(&self, access: &mut Access<'_>) -> Result<Vec<i64>, Fail> {
        let mut values = Vec::with_capacity(self.elements());
        for run in self.runs() {
            let bytes = access.read(run)?;
            match self.data_type {
                ACL_INT64 => values.extend(words::<8>(bytes).map(i64::from_le_bytes)),
                ACL_INT32 => {
                    values.extend(words::<4>(bytes).map(|w| i64::from(i32::from_le_bytes(w))))
                }
                _ => values.extend(bytes.iter().map(|byte| i64::from(*byte))),
            }
        }
        Ok(values)
    }

    /// All values of an int8 tensor in row-major order.
    pub fn read_i8(&self, access: &mut Access<'_>) -> Result<Vec<i8>, Fail> {
        let mut values = Vec::with_capacity(self.elements());
        for run in self.runs() {
            values.extend(access.read(run)?.iter().map(|byte| *byte as i8));
        }
        Ok(values)
    }

    /// All values of an int4 tensor in row-major order: of each byte, the lower four bits come first.
    pub fn read_i4(&self, access: &mut Access<'_>) -> Result<Vec<i8>, Fail> {
        let mut values = Vec::with_capacity(self.elements());
        for run in self.runs() {
            let bytes = access.read(run)?.iter();
            values.extend(bytes.flat_map(|byte| [(*byte << 4) as i8 >> 4, *byte as i8 >> 4]));
        }
        Ok(values)
    }

    /// Writes all values in row-major order, rounded to the tensor's type.
    pub fn write(&self, access: &mut Access<'_>, values: &[f32]) -> Result<(), Fail> {
        let mut rest = values;
        for run in self.runs() {
            let (now, later) = rest.split_at(run.len / self.element_bytes());
            encode(self.data_type, now, access.write(run)?);
            rest = later;
        }
        Ok(())
    }
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.as_chunks::<N>().0.iter().copied()
}

/// Appends the values that bytes stand for.
pub fn decode(data_type: aclDataType, bytes: &[u8], values: &mut Vec<f32>) {
    match data_type {
        ACL_FLOAT => values.extend(words::<4>(bytes).map(f32::from_le_bytes)),
        ACL_FLOAT16 => values.extend(words::<2>(bytes).map(|w| f16::from_le_bytes(w).to_f32())),
        ACL_BF16 => values.extend(words::<2>(bytes).map(|w| bf16::from_le_bytes(w).to_f32())),
        ACL_INT32 => values.extend(words::<4>(bytes).map(|w| i32::from_le_bytes(w) as f32)),
        ACL_INT64 => values.extend(words::<8>(bytes).map(|w| i64::from_le_bytes(w) as f32)),
        ACL_INT8 => values.extend(bytes.iter().map(|byte| f32::from(*byte as i8))),
        _ => values.extend(bytes.iter().map(|byte| f32::from(*byte))),
    }
}

/// Rounds values to a type and stores them.
fn encode(data_type: aclDataType, values: &[f32], bytes: &mut [u8]) {
    fn put<const N: usize>(values: &[f32], bytes: &mut [u8], word: impl Fn(f32) -> [u8; N]) {
        let places = bytes.as_chunks_mut::<N>().0;
        for (place, value) in places.iter_mut().zip(values) {
            *place = word(*value);
        }
    }
    match data_type {
        ACL_FLOAT => put(values, bytes, f32::to_le_bytes),
        ACL_FLOAT16 => put(values, bytes, |v| f16::from_f32(v).to_le_bytes()),
        ACL_BF16 => put(values, bytes, |v| bf16::from_f32(v).to_le_bytes()),
        ACL_INT32 => put(values, bytes, |v| (v as i32).to_le_bytes()),
        ACL_INT64 => put(values, bytes, |v| (v as i64).to_le_bytes()),
        ACL_INT8 => put(values, bytes, |v| [(v as i8) as u8]),
        _ => put(values, bytes, |v| [v as u8]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(
        shape: &[usize],
        strides: &[usize],
        offset: usize,
        storage: usize,
    ) -> Result<Tensor, Fail> {
        Tensor::new(Tensor {
            data_type: ACL_BF16,
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            offset,
            format: ACL_FORMAT_ND,
            storage,
            address: 1000,
        })
    }

    #[test]
    fn a_view_must_fit_its_memory() {
        assert!(tensor(&[2, 3], &[3, 1], 0, 6).is_ok());
        assert!(tensor(&[2, 3], &[3, 1], 1, 6).is_err());
        assert!(tensor(&[2, 3], &[8, 1], 0, 11).is_ok());
        assert!(tensor(&[2, 3], &[8, 1], 0, 10).is_err());
        assert!(tensor(&[2, 3], &[1], 0, 6).is_err());
    }

    #[test]
    fn a_view_is_walked_in_runs() {
        let whole = tensor(&[2, 3], &[3, 1], 0, 6).expect("fits");
        assert!(whole.is_contiguous());
        assert_eq!(
            whole.runs(),
            [Span {
                address: 1000,
                len: 12
            }]
        );
        let columns = tensor(&[2, 3], &[8, 1], 2, 16).expect("fits");
        assert!(!columns.is_contiguous());
        let spans = [(1004, 6), (1020, 6)].map(|(address, len)| Span { address, len });
        assert_eq!(columns.runs(), spans);
        let transposed = tensor(&[3, 2], &[1, 3], 0, 6).expect("fits");
        let starts: Vec<u64> = transposed.runs().iter().map(|run| run.address).collect();
        assert_eq!(starts, [1000, 1006, 1002, 1008, 1004, 1010]);
    }

    #[test]
    fn values_are_rounded_to_their_type() {
        let mut bytes = [0; 4];
        encode(ACL_BF16, &[1.0 + 1.0 / 256.0, 3.0], &mut bytes);
        let mut values = Vec::new();
        decode(ACL_BF16, &bytes, &mut values);
        assert_eq!(values, [1.0, 3.0], "half way goes to even");
    }
}
