//! Tensors, arrays and executors that operators take (aclnn/acl_meta.h), in `libnnopbase.so`.

use crate::types::*;
use std::ffi::c_void;

declare_functions! {
    /// The functions of operators' arguments.
    Meta {
        /// Describes a tensor on the device; strides and offset in elements.
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
        ) -> *mut aclTensor;
        /// Copies one number.
        fn aclCreateScalar(value: *mut c_void, data_type: aclDataType) -> *mut aclScalar;
        /// Copies integers.
        fn aclCreateIntArray(value: *const i64, size: u64) -> *mut aclIntArray;
        /// Takes tensors into a list, which owns them from then on.
        fn aclCreateTensorList(value: *const *const aclTensor, size: u64) -> *mut aclTensorList;
        /// Ends a description; the device's memory stays.
        fn aclDestroyTensor(tensor: *const aclTensor) -> aclnnStatus;
        /// Ends a number.
        fn aclDestroyScalar(scalar: *const aclScalar) -> aclnnStatus;
        /// Ends an array.
        fn aclDestroyIntArray(array: *const aclIntArray) -> aclnnStatus;
        /// Ends a list and the tensors in it.
        fn aclDestroyTensorList(list: *const aclTensorList) -> aclnnStatus;
        /// Lets an executor be launched more than once; right after its first phase.
        fn aclSetAclOpExecutorRepeatable(executor: *mut aclOpExecutor) -> aclnnStatus;
        /// Ends a repeatable executor.
        fn aclDestroyAclOpExecutor(executor: *mut aclOpExecutor) -> aclnnStatus;
        /// Gives the index-th tensor of an executor another address.
        fn aclSetTensorAddr(
            executor: *mut aclOpExecutor,
            index: usize,
            tensor: *mut aclTensor,
            address: *mut c_void,
        ) -> aclnnStatus;
        /// Gives the relative-th tensor of the index-th argument, a list, another address.
        fn aclSetDynamicTensorAddr(
            executor: *mut aclOpExecutor,
            index: usize,
            relative: usize,
            list: *mut aclTensorList,
            address: *mut c_void,
        ) -> aclnnStatus;
    }
}
