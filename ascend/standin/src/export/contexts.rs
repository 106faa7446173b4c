//! Contexts.

use super::{answer, export};
use crate::entry::enter;
use ropeteam_acl_sys::types::aclrtContext;

export! { acl_rt:
    fn aclrtCreateContext(context: *mut aclrtContext, device: i32) -> i32 {
        enter("aclrtCreateContext", |world, caller| {
            let id = world.create_context(caller, device)?;
            // SAFETY: the caller's place for a handle.
            unsafe { answer(context, aclrtContext(id as *mut _)) }
        })
    }

    fn aclrtDestroyContext(context: aclrtContext) -> i32 {
        enter("aclrtDestroyContext", |world, caller| world.destroy_context(caller, context.0 as u64))
    }

    fn aclrtSetCurrentContext(context: aclrtContext) -> i32 {
        enter("aclrtSetCurrentContext", |world, caller| world.set_context(caller, context.0 as u64))
    }

    fn aclrtGetCurrentContext(context: *mut aclrtContext) -> i32 {
        enter("aclrtGetCurrentContext", |world, caller| {
            let (id, _) = world.current(caller)?;
            // SAFETY: the caller's place for a handle.
            unsafe { answer(context, aclrtContext(id as *mut _)) }
        })
    }
}
