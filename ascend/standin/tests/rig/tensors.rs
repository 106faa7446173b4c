//! Tensors for tests: memory and description in one, in bf16 unless said otherwise.

use super::Rig;
use crate::{code, ok};
use half::bf16;
use ropeteam_acl_sys::types::*;
use std::ffi::c_void;
use std::ptr::null_mut;

/// A tensor with its own memory.
pub struct Held {
    /// Its description.
    pub tensor: *mut aclTensor,
    /// Its memory.
    pub address: *mut c_void,
    /// Its elements.
    pub elements: usize,
}

/// A view of memory.
pub struct View<'a> {
    /// Type of elements.
    pub data_type: aclDataType,
    /// Dimensions.
    pub shape: &'a [i64],
    /// Strides; `None` for row-major.
    pub strides: Option<&'a [i64]>,
    /// First element.
    pub offset: i64,
    /// Elements of the memory.
    pub storage: i64,
}

impl Rig {
    /// Describes a view.
    pub fn view(&self, address: *mut c_void, view: &View<'_>) -> *mut aclTensor {
        let mut row_major = vec![1; view.shape.len()];
        for i in (1..view.shape.len()).rev() {
            row_major[i - 1] = row_major[i] * view.shape[i];
        }
        let strides = view.strides.unwrap_or(&row_major);
        let rank = view.shape.len() as u64;
        code!(self.meta.aclCreateTensor(
            view.shape.as_ptr(),
            rank,
            view.data_type,
            strides.as_ptr(),
            view.offset,
            ACL_FORMAT_ND,
            &view.storage,
            1,
            address,
        ))
    }

    /// Describes all of some memory.
    pub fn whole(
        &self,
        address: *mut c_void,
        data_type: aclDataType,
        shape: &[i64],
    ) -> *mut aclTensor {
        let view = View {
            data_type,
            shape,
            strides: None,
            offset: 0,
            storage: shape.iter().product(),
        };
        self.view(address, &view)
    }

    /// A tensor of unwritten memory.
    pub fn empty(&self, data_type: aclDataType, shape: &[i64]) -> Held {
        let elements = shape.iter().product::<i64>() as usize;
        let address = self.device(elements * data_type.bytes().expect("whole bytes"));
        Held {
            tensor: self.whole(address, data_type, shape),
            address,
            elements,
        }
    }

    fn filled(&self, bytes: &[u8], data_type: aclDataType, shape: &[i64]) -> Held {
        let address = self.device_with(bytes);
        let elements = shape.iter().product::<i64>() as usize;
        assert_eq!(
            bytes.len(),
            elements * data_type.bytes().expect("whole bytes")
        );
        Held {
            tensor: self.whole(address, data_type, shape),
            address,
            elements,
        }
    }

    /// A tensor of bf16.
    pub fn bf16(&self, values: &[f32], shape: &[i64]) -> Held {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|v| bf16::from_f32(*v).to_le_bytes())
            .collect();
        self.filled(&bytes, ACL_BF16, shape)
    }

    /// A tensor of i32.
    pub fn i32(&self, values: &[i32], shape: &[i64]) -> Held {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.filled(&bytes, ACL_INT32, shape)
    }

    /// A tensor of i8.
    pub fn i8(&self, values: &[i8], shape: &[i64]) -> Held {
        let bytes: Vec<u8> = values.iter().map(|v| *v as u8).collect();
        self.filled(&bytes, ACL_INT8, shape)
    }

    /// A tensor of bytes that count as booleans.
    pub fn bools(&self, values: &[u8], shape: &[i64]) -> Held {
        self.filled(values, ACL_BOOL, shape)
    }

    /// Numbers on the host.
    pub fn numbers(&self, values: &[i64]) -> *mut aclIntArray {
        code!(
            self.meta
                .aclCreateIntArray(values.as_ptr(), values.len() as u64)
        )
    }

    /// Values of a bf16 tensor, once nobody works on it.
    pub fn values(&self, held: &Held) -> Vec<f32> {
        let bytes = self.read(held.address, held.elements * 2);
        let words = bytes.as_chunks::<2>().0;
        words
            .iter()
            .map(|word| bf16::from_le_bytes(*word).to_f32())
            .collect()
    }

    /// Workspace of a size; null for none.
    pub fn workspace(&self, size: u64) -> *mut c_void {
        match size {
            0 => null_mut(),
            size => self.device(size as usize),
        }
    }

    /// Destroys tensors.
    pub fn forget(&self, tensors: &[&Held]) {
        for held in tensors {
            ok!(self.meta.aclDestroyTensor(held.tensor));
        }
    }
}

/// Calls an operator's first phase: its code, the workspace it wants and the executor.
#[macro_export]
macro_rules! phase1 {
    ($rig:ident . $name:ident ( $($argument:expr),* $(,)? )) => {{
        let (mut size, mut executor) = (0u64, std::ptr::null_mut());
        let code = $crate::code!($rig.operators.$name($($argument,)* &mut size, &mut executor));
        (code, size, executor)
    }};
}

/// Runs an operator on a stream and waits for it; the code of whichever step failed first.
#[macro_export]
macro_rules! compute {
    ($rig:ident, $stream:expr, $first:ident, $second:ident ( $($argument:expr),* $(,)? )) => {{
        let (code, size, executor) = $crate::phase1!($rig.$first($($argument),*));
        let workspace = $rig.workspace(size);
        let launched = match code {
            0 => $crate::code!($rig.operators.$second(workspace, size, executor, $stream)),
            code => code,
        };
        match launched {
            0 => $crate::code!($rig.runtime.aclrtSynchronizeStream($stream)),
            code => code,
        }
    }};
}
