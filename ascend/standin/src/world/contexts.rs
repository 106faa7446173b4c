//! Contexts: a device as threads see it. A thread without one, or with another than an object's, may not use the object.

use super::World;
use crate::caller::Caller;
use crate::fail::{Fail, mistake};
use crate::task::Id;
use ropeteam_acl_sys::code::*;

/// A context.
#[derive(Clone, Debug)]
pub struct Context {
    /// Logical number of its device.
    pub device: usize,
    /// Whether `aclrtSetDevice` made it.
    pub is_default: bool,
    /// The stream that a null handle means.
    pub default_stream: Id,
}

impl World {
    /// Makes a context with its default stream.
    pub fn new_context(&mut self, device: usize, is_default: bool) -> Id {
        let id = self.fresh_handle();
        let default_stream = self.new_stream(id, true);
        let context = Context {
            device,
            is_default,
            default_stream,
        };
        self.contexts.insert(id, context);
        id
    }

    /// The calling thread's context, on a device that still has it.
    pub fn current(&self, caller: &Caller) -> Result<(Id, &Context), Fail> {
        let id = caller.context.ok_or_else(|| {
            mistake(
                ACL_ERROR_RT_CONTEXT_NULL,
                "this thread has no current context",
            )
        })?;
        self.contexts
            .get(&id)
            .map(|context| (id, context))
            .ok_or_else(|| {
                mistake(
                    ACL_ERROR_RT_CONTEXT_NULL,
                    "this thread's context is gone with its device",
                )
            })
    }

    /// `aclrtCreateContext`.
    pub fn create_context(&mut self, caller: &mut Caller, device: i32) -> Result<Id, Fail> {
        let number = self.device_number(device)?;
        let id = self.new_context(number, false);
        caller.context = Some(id);
        Ok(id)
    }

    /// `aclrtDestroyContext`.
    pub fn destroy_context(&mut self, caller: &mut Caller, id: Id) -> Result<(), Fail> {
        if self.context(id)?.is_default {
            return Err(mistake(
                ACL_ERROR_RT_PARAM_INVALID,
                "a default context ends with its device",
            ));
        }
        let streams = self.streams.values();
        let alive = streams.filter(|s| s.context == id && !s.is_default).count();
        let alive = alive + self.events.values().filter(|e| e.context == id).count();
        if alive > 0 {
            let text = format!("{alive} streams and events of it are still alive");
            self.violations.report("aclrtDestroyContext", &text);
        }
        self.streams.retain(|_, stream| stream.context != id);
        self.events.retain(|_, event| event.context != id);
        self.contexts.remove(&id);
        if caller.context == Some(id) {
            caller.context = None;
        }
        Ok(())
    }

    /// `aclrtSetCurrentContext`.
    pub fn set_context(&self, caller: &mut Caller, id: Id) -> Result<(), Fail> {
        self.context(id)?;
        caller.context = Some(id);
        Ok(())
    }

    /// A context by handle.
    pub fn context(&self, id: Id) -> Result<&Context, Fail> {
        self.contexts.get(&id).ok_or_else(|| {
            mistake(
                ACL_ERROR_RT_INVALID_HANDLE,
                format!("{id:#x} is no context"),
            )
        })
    }
}
