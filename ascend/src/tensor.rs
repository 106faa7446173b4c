//! Tensors as operators take them: a view of memory on the device, and the description that the library keeps of it.

use crate::error::AclError;
use crate::memory::{Address, pointer};
use ropeteam_acl_sys::Acl;
use ropeteam_acl_sys::types::*;

/// Most dimensions in use.
const RANK: usize = 4;
/// A tensor's address is a multiple of this.
const ALIGNMENT: usize = 32;

/// A view of memory on the device: elements of one type in up to four dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// First byte of the memory.
    pub address: Address,
    /// Type of its elements.
    pub data_type: aclDataType,
    rank: usize,
    shape: [i64; RANK],
    strides: [i64; RANK],
    offset: i64,
    storage: i64,
}

impl View {
    /// Elements one after the other, row-major.
    pub fn new(address: Address, data_type: aclDataType, shape: &[usize]) -> Self {
        let mut view = Self {
            address,
            data_type,
            rank: shape.len(),
            shape: [0; RANK],
            strides: [1; RANK],
            offset: 0,
            storage: shape.iter().product::<usize>() as i64,
        };
        for (place, size) in view.shape.iter_mut().zip(shape) {
            *place = *size as i64;
        }
        for i in (1..view.rank).rev() {
            view.strides[i - 1] = view.strides[i] * view.shape[i];
        }
        view
    }

    /// Columns `first .. first + width` of all rows of this matrix, split into heads of `width / heads` when `heads` is given.
    pub fn columns(self, first: usize, width: usize, heads: Option<usize>) -> Self {
        let row = self.strides[0];
        let bytes = self.data_type.bytes().unwrap_or(1);
        let mut view = self;
        // The start goes into the address where it is aligned, so that the same description serves every start.
        match (first * bytes).is_multiple_of(ALIGNMENT) {
            true => view.address += first * bytes,
            false => view.offset = first as i64,
        }
        view.storage = view.offset + (self.shape[0] - 1) * row + width as i64;
        match heads {
            None => {
                view.shape[1] = width as i64;
            }
            Some(heads) => {
                let size = (width / heads) as i64;
                view.rank = 3;
                view.shape = [self.shape[0], heads as i64, size, 0];
                view.strides = [row, size, 1, 1];
            }
        }
        view
    }

    /// Rows `first .. first + rows` of this matrix.
    pub fn row_range(self, first: usize, rows: usize) -> Self {
        let width = self.shape[1];
        let bytes = self.data_type.bytes().unwrap_or(1);
        let from = first * width as usize;
        let mut view = self;
        match (from * bytes).is_multiple_of(ALIGNMENT) {
            true => view.address += from * bytes,
            false => view.offset += from as i64,
        }
        view.shape[0] = rows as i64;
        view.storage = view.offset + rows as i64 * width;
        view
    }

    /// Rows and columns of a matrix.
    pub fn matrix(&self) -> [usize; 2] {
        [self.shape[0] as usize, self.shape[1] as usize]
    }

    /// First byte of the view itself.
    pub fn first_byte(&self) -> Address {
        self.address + self.offset as usize * self.data_type.bytes().unwrap_or(1)
    }

    /// The same memory with its two dimensions exchanged.
    pub fn transposed(mut self) -> Self {
        self.shape.swap(0, 1);
        self.strides.swap(0, 1);
        self
    }

    /// Appends what tells one description from another: all but the address.
    pub fn describe(&self, key: &mut Vec<i64>) {
        key.extend([self.data_type.0.into(), self.rank as i64, self.offset]);
        key.extend_from_slice(&self.shape[..self.rank]);
        key.extend_from_slice(&self.strides[..self.rank]);
    }

    /// Describes it to the library.
    ///
    /// # Errors
    /// When the library refuses the view.
    pub fn create(&self, acl: &'static Acl) -> Result<Tensor, AclError> {
        // SAFETY: the arrays have the lengths that go with them and are copied by the call.
        let created = unsafe {
            acl.meta.aclCreateTensor(
                self.shape.as_ptr(),
                self.rank as u64,
                self.data_type,
                self.strides.as_ptr(),
                self.offset,
                ACL_FORMAT_ND,
                &self.storage,
                1,
                pointer(self.address),
            )
        };
        owned(created?, "aclCreateTensor").map(|handle| Tensor { acl, handle })
    }
}

fn owned<T>(handle: *mut T, call: &'static str) -> Result<*mut T, AclError> {
    match handle.is_null() {
        false => Ok(handle),
        true => Err(AclError::Code {
            call,
            code: ropeteam_acl_sys::code::ACLNN_ERR_PARAM_NULLPTR,
            text: "it gave no object".to_owned(),
        }),
    }
}

/// A description that the library keeps.
pub struct Tensor {
    acl: &'static Acl,
    handle: *mut aclTensor,
}

impl Tensor {
    /// Its handle.
    pub fn handle(&self) -> *mut aclTensor {
        self.handle
    }

    /// Gives it to a list, which ends it.
    fn into_handle(self) -> *mut aclTensor {
        let handle = self.handle;
        std::mem::forget(self);
        handle
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        let _ = call!(self.acl, meta.aclDestroyTensor(self.handle));
    }
}

/// A list of one tensor.
pub struct TensorList {
    acl: &'static Acl,
    handle: *mut aclTensorList,
}

impl TensorList {
    /// Takes the tensor.
    ///
    /// # Errors
    /// When the library refuses it.
    pub fn of(acl: &'static Acl, tensor: Tensor) -> Result<Self, AclError> {
        let only = tensor.into_handle().cast_const();
        // SAFETY: one tensor, alive, which the list owns from here on.
        let created = unsafe { acl.meta.aclCreateTensorList(&only, 1) };
        owned(created?, "aclCreateTensorList").map(|handle| Self { acl, handle })
    }

    /// Its handle.
    pub fn handle(&self) -> *mut aclTensorList {
        self.handle
    }
}

impl Drop for TensorList {
    fn drop(&mut self) {
        let _ = call!(self.acl, meta.aclDestroyTensorList(self.handle));
    }
}

/// Integers that the library keeps.
pub struct IntArray {
    acl: &'static Acl,
    handle: *mut aclIntArray,
}

impl IntArray {
    /// Copies numbers.
    ///
    /// # Errors
    /// When the library refuses them.
    pub fn new(acl: &'static Acl, numbers: &[i64]) -> Result<Self, AclError> {
        // SAFETY: as many numbers as said, copied by the call.
        let created = unsafe {
            acl.meta
                .aclCreateIntArray(numbers.as_ptr(), numbers.len() as u64)
        };
        owned(created?, "aclCreateIntArray").map(|handle| Self { acl, handle })
    }

    /// Its handle.
    pub fn handle(&self) -> *mut aclIntArray {
        self.handle
    }
}

impl Drop for IntArray {
    fn drop(&mut self) {
        let _ = call!(self.acl, meta.aclDestroyIntArray(self.handle));
    }
}

/// The number 1 in f32, which sums take as their factor.
pub struct One {
    acl: &'static Acl,
    handle: *mut aclScalar,
}

impl One {
    /// Hands it to the library.
    ///
    /// # Errors
    /// When the library refuses it.
    pub fn new(acl: &'static Acl) -> Result<Self, AclError> {
        let mut one = 1f32;
        // SAFETY: a number of this type, copied by the call.
        let created = unsafe { acl.meta.aclCreateScalar((&raw mut one).cast(), ACL_FLOAT) };
        owned(created?, "aclCreateScalar").map(|handle| Self { acl, handle })
    }

    /// Its handle.
    pub fn handle(&self) -> *mut aclScalar {
        self.handle
    }
}

impl Drop for One {
    fn drop(&mut self) {
        let _ = call!(self.acl, meta.aclDestroyScalar(self.handle));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_begin_in_the_address_where_they_can() {
        let rows = View::new(4096, ACL_BF16, &[3, 80]);
        let aligned = rows.columns(16, 32, None);
        assert_eq!((aligned.address, aligned.offset), (4128, 0));
        assert_eq!(aligned.storage, 2 * 80 + 32);
        let crooked = rows.columns(5, 6, Some(2));
        assert_eq!((crooked.address, crooked.offset), (4096, 5));
        assert_eq!(&crooked.shape[..3], [3, 2, 3]);
        assert_eq!(&crooked.strides[..3], [80, 3, 1]);
        assert_eq!(crooked.storage, 5 + 2 * 80 + 6);
    }
}
