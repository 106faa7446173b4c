//! Copies and fills.

use super::export;
use crate::entry::{enter, enter_waiting};
use crate::world::{Copy, Fill};
use ropeteam_acl_sys::code::ACL_ERROR_RT_STREAM_SYNC_TIMEOUT;
use ropeteam_acl_sys::types::*;
use std::ffi::c_void;

export! { acl_rt:
    fn aclrtMemcpy(to: *mut c_void, room: usize, from: *const c_void, count: usize, kind: aclrtMemcpyKind) -> i32 {
        let copy = Copy { to: to as u64, room, from: from as u64, count, kind };
        enter("aclrtMemcpy", |world, caller| world.copy_now(caller, copy))
    }

    fn aclrtMemcpyAsync(
        to: *mut c_void,
        room: usize,
        from: *const c_void,
        count: usize,
        kind: aclrtMemcpyKind,
        stream: aclrtStream,
    ) -> i32 {
        let copy = Copy { to: to as u64, room, from: from as u64, count, kind };
        let call = "aclrtMemcpyAsync";
        let mut enqueued = false;
        enter_waiting(call, None, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, |world, caller| {
            // A pageable copy waits, and may be looked at again: it is enqueued once.
            if std::mem::replace(&mut enqueued, true) {
                let id = world.own_stream(caller, stream.0 as u64)?;
                return world.finish_stream(id);
            }
            world.copy_later(caller, stream.0 as u64, copy)
        })
    }

    fn aclrtMemset(address: *mut c_void, room: usize, value: i32, count: usize) -> i32 {
        let fill = Fill { address: address as u64, room, value: value as u8, count };
        enter("aclrtMemset", |world, caller| world.fill_now(caller, fill))
    }

    fn aclrtMemsetAsync(address: *mut c_void, room: usize, value: i32, count: usize, stream: aclrtStream) -> i32 {
        let fill = Fill { address: address as u64, room, value: value as u8, count };
        enter("aclrtMemsetAsync", |world, caller| world.fill_later(caller, stream.0 as u64, fill))
    }
}
