//! What a test asks of the stand-in itself. These symbols are ours, not the official interface's.

use crate::entry::world;
use std::ffi::{CStr, c_char};

/// Changes settings; 0 when they were understood.
///
/// # Safety
/// `text` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standinConfigure(text: *const c_char) -> i32 {
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let mut world = world();
    let outcome = world.settings.apply(&text);
    world.violations.policy = world.settings.violations;
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            world.violations.report("standinConfigure", &error);
            1
        }
    }
}

/// Hands out the violations so far, one a line, and forgets them; as many whole bytes as fit, and how many there were.
///
/// # Safety
/// `buffer` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standinTakeViolations(buffer: *mut u8, len: usize) -> usize {
    let lines = world().violations.take().join("\n");
    // SAFETY: the caller's promise, and no more than there is.
    unsafe { std::ptr::copy_nonoverlapping(lines.as_ptr(), buffer, lines.len().min(len)) };
    lines.len()
}
