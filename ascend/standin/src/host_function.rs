//! Functions of the host that a stream calls. They may not call AscendCL, which would wait for the stream that waits for them: a call is
//! refused at once and remembered until the function has returned.

use crate::violations::Violations;
use ropeteam_acl_sys::code::ACL_ERROR_RT_PARAM_INVALID;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;

/// A function that the caller gives to a stream.
pub type Function = unsafe extern "C" fn(*mut c_void);

/// A function and what it is given. The caller promised that both are good on any thread until the stream has come by.
#[derive(Clone, Copy)]
pub struct HostFunction {
    /// The function.
    pub function: Function,
    /// Its argument, as a number.
    pub argument: usize,
}

thread_local! {
    static RUNS: Cell<bool> = const { Cell::new(false) };
    static CALLS: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// The code for a call from inside such a function; `None` where none runs on this thread.
pub fn refusal(call: &'static str) -> Option<i32> {
    RUNS.get().then(|| {
        CALLS.with_borrow_mut(|calls| calls.push(call));
        ACL_ERROR_RT_PARAM_INVALID
    })
}

/// Runs one and reports what it should not have called.
pub fn run(host: HostFunction, violations: &mut Violations) {
    RUNS.set(true);
    // SAFETY: the caller's own function with its own argument.
    unsafe { (host.function)(host.argument as *mut c_void) };
    RUNS.set(false);
    for call in CALLS.take() {
        violations.report(call, "is called by a function that a stream calls");
    }
}
