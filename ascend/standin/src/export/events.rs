//! Events.

use super::streams::patience;
use super::{answer, export};
use crate::caller::Caller;
use crate::entry::{enter, enter_waiting};
use crate::fail::Fail;
use crate::world::{EventKind, World};
use ropeteam_acl_sys::code::ACL_ERROR_RT_EVENT_SYNC_TIMEOUT;
use ropeteam_acl_sys::types::*;

/// Makes an event of a kind.
///
/// # Safety
/// `event` is null or the caller's place for a handle.
unsafe fn make(
    world: &mut World,
    caller: &Caller,
    event: *mut aclrtEvent,
    (kind, flag): (EventKind, u32),
) -> Result<(), Fail> {
    let id = world.create_event(caller, kind, flag)?;
    // SAFETY: the caller's promise.
    unsafe { answer(event, aclrtEvent(id as *mut _)) }
}

export! { acl_rt:
    fn aclrtCreateEvent(event: *mut aclrtEvent) -> i32 {
        let kind = (EventKind::Plain, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE);
        // SAFETY: handed on.
        enter("aclrtCreateEvent", |world, caller| unsafe { make(world, caller, event, kind) })
    }

    fn aclrtCreateEventWithFlag(event: *mut aclrtEvent, flag: u32) -> i32 {
        let kind = (EventKind::WithFlag, flag);
        // SAFETY: handed on.
        enter("aclrtCreateEventWithFlag", |world, caller| unsafe { make(world, caller, event, kind) })
    }

    fn aclrtCreateEventExWithFlag(event: *mut aclrtEvent, flag: u32) -> i32 {
        let kind = (EventKind::Extended, flag);
        // SAFETY: handed on.
        enter("aclrtCreateEventExWithFlag", |world, caller| unsafe { make(world, caller, event, kind) })
    }

    fn aclrtDestroyEvent(event: aclrtEvent) -> i32 {
        enter("aclrtDestroyEvent", |world, _| world.destroy_event(event.0 as u64))
    }

    fn aclrtRecordEvent(event: aclrtEvent, stream: aclrtStream) -> i32 {
        enter("aclrtRecordEvent", |world, caller| {
            world.record_event(caller, event.0 as u64, stream.0 as u64)
        })
    }

    fn aclrtResetEvent(event: aclrtEvent, stream: aclrtStream) -> i32 {
        enter("aclrtResetEvent", |world, caller| {
            world.reset_event(caller, event.0 as u64, stream.0 as u64)
        })
    }

    fn aclrtQueryEventStatus(event: aclrtEvent, status: *mut aclrtEventRecordedStatus) -> i32 {
        enter("aclrtQueryEventStatus", |world, _| {
            let complete = match world.query_event(event.0 as u64)? {
                true => ACL_EVENT_RECORDED_STATUS_COMPLETE,
                false => ACL_EVENT_RECORDED_STATUS_NOT_READY,
            };
            // SAFETY: the caller's place for a status.
            unsafe { answer(status, complete) }
        })
    }

    fn aclrtSynchronizeEvent(event: aclrtEvent) -> i32 {
        let call = "aclrtSynchronizeEvent";
        enter_waiting(call, None, ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, |world, _| {
            world.finish_event(event.0 as u64)
        })
    }

    fn aclrtSynchronizeEventWithTimeout(event: aclrtEvent, milliseconds: i32) -> i32 {
        let call = "aclrtSynchronizeEventWithTimeout";
        let time = patience(milliseconds);
        let limit = time.clone().unwrap_or(None);
        enter_waiting(call, limit, ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, |world, _| {
            time.clone()?;
            world.finish_event(event.0 as u64)
        })
    }

    fn aclrtEventElapsedTime(milliseconds: *mut f32, start: aclrtEvent, end: aclrtEvent) -> i32 {
        enter("aclrtEventElapsedTime", |world, _| {
            let time = world.elapsed(start.0 as u64, end.0 as u64)?;
            // SAFETY: the caller's place for a number.
            unsafe { answer(milliseconds, time) }
        })
    }
}
