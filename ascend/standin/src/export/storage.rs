//! Memory of devices and pinned memory of the host.

use super::{answer, export};
use crate::entry::enter;
use ropeteam_acl_sys::types::*;
use std::ffi::c_void;

export! { acl_rt:
    fn aclrtMalloc(address: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy) -> i32 {
        enter("aclrtMalloc", |world, caller| {
            let given = world.allocate(caller, size, policy)?;
            // SAFETY: the caller's place for an address.
            unsafe { answer(address, given as *mut c_void) }
        })
    }

    fn aclrtFree(address: *mut c_void) -> i32 {
        enter("aclrtFree", |world, caller| world.free(caller, address as u64))
    }

    fn aclrtMallocHost(address: *mut *mut c_void, size: usize) -> i32 {
        enter("aclrtMallocHost", |world, caller| {
            let given = world.pin(caller, size)?;
            // SAFETY: the caller's place for an address.
            unsafe { answer(address, given as *mut c_void) }
        })
    }

    fn aclrtFreeHost(address: *mut c_void) -> i32 {
        enter("aclrtFreeHost", |world, _| world.unpin(address as u64))
    }

    fn aclrtGetMemInfo(attribute: aclrtMemAttr, free: *mut usize, total: *mut usize) -> i32 {
        enter("aclrtGetMemInfo", |world, caller| {
            let info = world.memory_info(caller, attribute)?;
            // SAFETY: the caller's places for two numbers.
            unsafe {
                answer(free, info.0)?;
                answer(total, info.1)
            }
        })
    }
}
