//! What Ropeteam does not call, so that `acl-sys` does not declare it: memory by keys, and functions of the host in streams. It is here
//! because the contract has rules about it.

use super::answer;
use crate::entry::enter;
use crate::fail::mistake;
use crate::host_function::{Function, HostFunction};
use crate::memory::Span;
use crate::world::KEY_BYTES;
use ropeteam_acl_sys::code::{ACL_ERROR_INVALID_PARAM, ACL_ERROR_RT_PARAM_INVALID};
use ropeteam_acl_sys::types::aclrtStream;
use std::ffi::{CStr, c_char, c_void};

/// The text of a key.
///
/// # Safety
/// `key` is a string.
unsafe fn text(key: *const c_char) -> String {
    // SAFETY: the caller's promise.
    let key = unsafe { CStr::from_ptr(key) };
    key.to_string_lossy().into_owned()
}

/// `aclrtIpcMemGetExportKey` of the official interface.
///
/// # Safety
/// `key` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclrtIpcMemGetExportKey(
    address: *mut c_void,
    size: usize,
    key: *mut c_char,
    len: usize,
    flags: u64,
) -> i32 {
    enter("aclrtIpcMemGetExportKey", |world, caller| {
        if len < KEY_BYTES || key.is_null() {
            let text = format!("a key takes {KEY_BYTES} bytes, not {len}");
            return Err(mistake(ACL_ERROR_RT_PARAM_INVALID, text));
        }
        let memory = Span {
            address: address as u64,
            len: size,
        };
        let made = world.export_memory(caller, memory, flags)?;
        // SAFETY: the caller's promise; the key and its end are shorter.
        unsafe {
            std::ptr::copy_nonoverlapping(made.as_ptr().cast(), key, made.len());
            key.add(made.len()).write(0);
        }
        Ok(())
    })
}

/// `aclrtIpcMemSetImportPid` of the official interface.
///
/// # Safety
/// `key` is a string, and there are `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclrtIpcMemSetImportPid(
    key: *const c_char,
    pids: *mut i32,
    count: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    let (key, pids) = unsafe { (text(key), std::slice::from_raw_parts(pids, count)) };
    enter("aclrtIpcMemSetImportPid", |world, _| {
        world.allow_import(&key, pids)
    })
}

/// `aclrtIpcMemImportByKey` of the official interface.
///
/// # Safety
/// `key` is a string, `address` the caller's place for an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclrtIpcMemImportByKey(
    address: *mut *mut c_void,
    key: *const c_char,
    _flags: u64,
) -> i32 {
    // SAFETY: the caller's promise.
    let key = unsafe { text(key) };
    enter("aclrtIpcMemImportByKey", |world, caller| {
        let found = world.import_memory(caller, &key)?;
        // SAFETY: the caller's place for an address.
        unsafe { answer(address, found as *mut c_void) }
    })
}

/// `aclrtIpcMemClose` of the official interface.
///
/// # Safety
/// `key` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclrtIpcMemClose(key: *const c_char) -> i32 {
    // SAFETY: the caller's promise.
    let key = unsafe { text(key) };
    enter("aclrtIpcMemClose", |world, _| world.close_key(&key))
}

/// `aclrtLaunchHostFunc` of the official interface.
///
/// # Safety
/// Function and argument are good until the stream has come by.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aclrtLaunchHostFunc(
    stream: aclrtStream,
    function: Option<Function>,
    argument: *mut c_void,
) -> i32 {
    enter("aclrtLaunchHostFunc", |world, caller| {
        let Some(function) = function else {
            return Err(mistake(ACL_ERROR_INVALID_PARAM, "no function"));
        };
        let argument = argument as usize;
        let host = HostFunction { function, argument };
        world.call_host(caller, stream.0 as u64, host)
    })
}
