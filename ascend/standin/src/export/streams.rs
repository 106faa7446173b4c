//! Streams.

use super::{answer, export};
use crate::entry::{enter, enter_waiting};
use crate::fail::{Fail, mistake};
use ropeteam_acl_sys::code::{ACL_ERROR_RT_PARAM_INVALID, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT};
use ropeteam_acl_sys::types::*;
use std::time::Duration;

/// How long a call waits; -1 is for ever, and neither 0 nor anything below is a time.
pub(super) fn patience(milliseconds: i32) -> Result<Option<Duration>, Fail> {
    match milliseconds {
        -1 => Ok(None),
        1.. => Ok(Some(Duration::from_millis(
            milliseconds.unsigned_abs().into(),
        ))),
        _ => Err(mistake(
            ACL_ERROR_RT_PARAM_INVALID,
            format!("a time of {milliseconds} ms"),
        )),
    }
}

export! { acl_rt:
    fn aclrtCreateStream(stream: *mut aclrtStream) -> i32 {
        enter("aclrtCreateStream", |world, caller| {
            let id = world.create_stream(caller)?;
            // SAFETY: the caller's place for a handle.
            unsafe { answer(stream, aclrtStream(id as *mut _)) }
        })
    }

    fn aclrtCreateStreamWithConfig(stream: *mut aclrtStream, _priority: u32, _flag: u32) -> i32 {
        enter("aclrtCreateStreamWithConfig", |world, caller| {
            let id = world.create_stream(caller)?;
            // SAFETY: the caller's place for a handle.
            unsafe { answer(stream, aclrtStream(id as *mut _)) }
        })
    }

    fn aclrtDestroyStream(stream: aclrtStream) -> i32 {
        enter("aclrtDestroyStream", |world, caller| world.destroy_stream(caller, stream.0 as u64, false))
    }

    fn aclrtDestroyStreamForce(stream: aclrtStream) -> i32 {
        enter("aclrtDestroyStreamForce", |world, caller| world.destroy_stream(caller, stream.0 as u64, true))
    }

    fn aclrtSynchronizeStream(stream: aclrtStream) -> i32 {
        let call = "aclrtSynchronizeStream";
        enter_waiting(call, None, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, |world, caller| {
            let id = world.stream(caller, stream.0 as u64)?;
            world.finish_stream(id)
        })
    }

    fn aclrtSynchronizeStreamWithTimeout(stream: aclrtStream, milliseconds: i32) -> i32 {
        let call = "aclrtSynchronizeStreamWithTimeout";
        let time = patience(milliseconds);
        let limit = time.clone().unwrap_or(None);
        enter_waiting(call, limit, ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, |world, caller| {
            time.clone()?;
            let id = world.stream(caller, stream.0 as u64)?;
            world.finish_stream(id)
        })
    }

    fn aclrtStreamQuery(stream: aclrtStream, status: *mut aclrtStreamStatus) -> i32 {
        enter("aclrtStreamQuery", |world, caller| {
            let id = world.stream(caller, stream.0 as u64)?;
            let complete = match world.query_stream(id)? {
                true => ACL_STREAM_STATUS_COMPLETE,
                false => ACL_STREAM_STATUS_NOT_READY,
            };
            // SAFETY: the caller's place for a status.
            unsafe { answer(status, complete) }
        })
    }

    fn aclrtStreamAbort(stream: aclrtStream) -> i32 {
        enter("aclrtStreamAbort", |world, caller| {
            let id = world.stream(caller, stream.0 as u64)?;
            world.abort_stream(id);
            Ok(())
        })
    }

    fn aclrtSetStreamFailureMode(stream: aclrtStream, mode: u64) -> i32 {
        enter("aclrtSetStreamFailureMode", |world, caller| {
            let id = world.own_stream(caller, stream.0 as u64)?;
            if mode == ACL_STOP_ON_FAILURE {
                world.stop_on_failure(id);
            }
            Ok(())
        })
    }

    fn aclrtStreamWaitEvent(stream: aclrtStream, event: aclrtEvent) -> i32 {
        enter("aclrtStreamWaitEvent", |world, caller| {
            world.wait_event(caller, stream.0 as u64, event.0 as u64)
        })
    }
}
