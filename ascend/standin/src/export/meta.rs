//! Tensors, numbers, lists and executors.

use super::export;
use crate::entry::{enter, enter_making};
use crate::fail::{Fail, mistake};
use crate::objects::{end, found};
use crate::tensor::Tensor;
use ropeteam_acl_sys::code::ACLNN_ERR_PARAM_INVALID;
use ropeteam_acl_sys::types::*;
use std::ffi::c_void;

/// Copies numbers of the caller.
///
/// # Safety
/// `from` has `count` of them, or `count` is 0.
unsafe fn numbers<T: Copy>(from: *const T, count: u64) -> Result<Vec<T>, Fail> {
    match count {
        0 => Ok(Vec::new()),
        _ if from.is_null() => Err(mistake(
            ACLNN_ERR_PARAM_INVALID,
            "null where numbers should be",
        )),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(from, count as usize) }.to_vec()),
    }
}

/// Dimensions and strides, which are never negative.
fn lengths(numbers: Vec<i64>) -> Result<Vec<usize>, Fail> {
    let lengths = numbers.iter().map(|n| usize::try_from(*n).ok());
    lengths.collect::<Option<_>>().ok_or_else(|| {
        mistake(
            ACLNN_ERR_PARAM_INVALID,
            format!("a negative number among {numbers:?}"),
        )
    })
}

export! { acl_meta:
    fn aclCreateTensor(
        view_dims: *const i64,
        view_dims_num: u64,
        data_type: aclDataType,
        stride: *const i64,
        offset: i64,
        format: aclFormat,
        storage_dims: *const i64,
        storage_dims_num: u64,
        address: *mut c_void,
    ) -> *mut aclTensor {
        enter_making("aclCreateTensor", |world, _| {
            // SAFETY: the caller's arrays of these lengths.
            let (view, stride, storage) = unsafe {
                (
                    numbers(view_dims, view_dims_num)?,
                    numbers(stride, view_dims_num)?,
                    numbers(storage_dims, storage_dims_num)?,
                )
            };
            let tensor = Tensor::new(Tensor {
                data_type,
                shape: lengths(view)?,
                strides: lengths(stride)?,
                offset: lengths(vec![offset])?[0],
                format,
                storage: lengths(storage)?.iter().product(),
                address: address as u64,
            })?;
            let id = world.fresh_handle();
            world.objects.tensors.insert(id, tensor);
            Ok(id as *mut aclTensor)
        })
    }

    fn aclCreateScalar(value: *mut c_void, data_type: aclDataType) -> *mut aclScalar {
        enter_making("aclCreateScalar", |world, _| {
            let bytes = data_type.bytes().unwrap_or(0) as u64;
            // SAFETY: the caller's value of this type.
            let bytes = unsafe { numbers(value.cast::<u8>(), bytes)? };
            let mut values = Vec::new();
            crate::tensor::decode(data_type, &bytes, &mut values);
            let [value] = values[..] else {
                return Err(mistake(ACLNN_ERR_PARAM_INVALID, format!("a number of type {}", data_type.0)));
            };
            let id = world.fresh_handle();
            world.objects.scalars.insert(id, f64::from(value));
            Ok(id as *mut aclScalar)
        })
    }

    fn aclCreateIntArray(value: *const i64, size: u64) -> *mut aclIntArray {
        enter_making("aclCreateIntArray", |world, _| {
            // SAFETY: the caller's array of this length.
            let value = unsafe { numbers(value, size)? };
            let id = world.fresh_handle();
            world.objects.arrays.insert(id, value);
            Ok(id as *mut aclIntArray)
        })
    }

    fn aclCreateTensorList(value: *const *const aclTensor, size: u64) -> *mut aclTensorList {
        enter_making("aclCreateTensorList", |world, _| {
            // SAFETY: the caller's array of this length.
            let tensors = unsafe { numbers(value, size)? };
            let tensors = tensors.into_iter().map(|tensor| tensor as u64);
            let id = world.fresh_handle();
            world.objects.list(id, tensors.collect())?;
            Ok(id as *mut aclTensorList)
        })
    }

    fn aclDestroyTensor(tensor: *const aclTensor) -> i32 {
        enter("aclDestroyTensor", |world, _| world.objects.end_tensor(tensor as u64))
    }

    fn aclDestroyScalar(scalar: *const aclScalar) -> i32 {
        enter("aclDestroyScalar", |world, _| end(&mut world.objects.scalars, scalar as u64, "scalar").map(drop))
    }

    fn aclDestroyIntArray(array: *const aclIntArray) -> i32 {
        enter("aclDestroyIntArray", |world, _| end(&mut world.objects.arrays, array as u64, "array").map(drop))
    }

    fn aclDestroyTensorList(list: *const aclTensorList) -> i32 {
        enter("aclDestroyTensorList", |world, _| world.objects.end_list(list as u64))
    }

    fn aclSetAclOpExecutorRepeatable(executor: *mut aclOpExecutor) -> i32 {
        enter("aclSetAclOpExecutorRepeatable", |world, caller| world.make_repeatable(caller, executor as u64))
    }

    fn aclDestroyAclOpExecutor(executor: *mut aclOpExecutor) -> i32 {
        enter("aclDestroyAclOpExecutor", |world, _| world.destroy_executor(executor as u64))
    }

    fn aclSetTensorAddr(
        executor: *mut aclOpExecutor,
        index: usize,
        tensor: *mut aclTensor,
        address: *mut c_void,
    ) -> i32 {
        enter("aclSetTensorAddr", |world, _| {
            found(&world.objects.tensors, tensor as u64, "tensor")?;
            world.move_tensor(executor as u64, index, address as u64)
        })
    }
}
