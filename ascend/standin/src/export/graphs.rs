//! Captures and graphs.

use super::{answer, export};
use crate::entry::enter;
use crate::fail::mistake;
use ropeteam_acl_sys::code::ACL_ERROR_INVALID_PARAM;
use ropeteam_acl_sys::types::*;

export! { acl_mdl:
    fn aclmdlRICaptureBegin(stream: aclrtStream, mode: aclmdlRICaptureMode) -> i32 {
        enter("aclmdlRICaptureBegin", |world, caller| {
            if !(ACL_MODEL_RI_CAPTURE_MODE_GLOBAL..=ACL_MODEL_RI_CAPTURE_MODE_RELAXED).contains(&mode) {
                return Err(mistake(ACL_ERROR_INVALID_PARAM, format!("there is no mode {}", mode.0)));
            }
            world.begin_capture(caller, stream.0 as u64, mode)
        })
    }

    fn aclmdlRICaptureGetInfo(stream: aclrtStream, status: *mut aclmdlRICaptureStatus, graph: *mut aclmdlRI) -> i32 {
        enter("aclmdlRICaptureGetInfo", |world, caller| {
            let stream = world.stream(caller, stream.0 as u64)?;
            let (found, id) = world.capture_status(stream);
            if !graph.is_null() {
                // SAFETY: the caller's place for a handle.
                unsafe { answer(graph, aclmdlRI(id as *mut _))? };
            }
            // SAFETY: the caller's place for a status.
            unsafe { answer(status, found) }
        })
    }

    fn aclmdlRICaptureEnd(stream: aclrtStream, graph: *mut aclmdlRI) -> i32 {
        enter("aclmdlRICaptureEnd", |world, caller| {
            let id = world.end_capture(caller, stream.0 as u64)?;
            // SAFETY: the caller's place for a handle.
            unsafe { answer(graph, aclmdlRI(id as *mut _)) }
        })
    }

    fn aclmdlRIExecuteAsync(graph: aclmdlRI, stream: aclrtStream) -> i32 {
        enter("aclmdlRIExecuteAsync", |world, caller| world.replay(caller, graph.0 as u64, stream.0 as u64))
    }

    fn aclmdlRIDestroy(graph: aclmdlRI) -> i32 {
        enter("aclmdlRIDestroy", |world, _| world.destroy_graph(graph.0 as u64))
    }

    fn aclmdlRICaptureTaskGrpBegin(stream: aclrtStream) -> i32 {
        enter("aclmdlRICaptureTaskGrpBegin", |world, caller| world.begin_group(caller, stream.0 as u64))
    }

    fn aclmdlRICaptureTaskGrpEnd(stream: aclrtStream, group: *mut aclrtTaskGrp) -> i32 {
        enter("aclmdlRICaptureTaskGrpEnd", |world, caller| {
            let id = world.end_group(caller, stream.0 as u64)?;
            // SAFETY: the caller's place for a handle.
            unsafe { answer(group, aclrtTaskGrp(id as *mut _)) }
        })
    }

    fn aclmdlRICaptureTaskUpdateBegin(stream: aclrtStream, group: aclrtTaskGrp) -> i32 {
        enter("aclmdlRICaptureTaskUpdateBegin", |world, caller| {
            world.begin_update(caller, stream.0 as u64, group.0 as u64)
        })
    }

    fn aclmdlRICaptureTaskUpdateEnd(stream: aclrtStream) -> i32 {
        enter("aclmdlRICaptureTaskUpdateEnd", |world, caller| world.end_update(caller, stream.0 as u64))
    }
}
