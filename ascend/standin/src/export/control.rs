//! What a test asks of the stand-in itself. These symbols are ours, not the official interface's.

use crate::entry::{spend, time_here, world};
use std::ffi::{CStr, c_char, c_void};

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
    world.settle();
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

/// Says whose the block of a cache is; 0: several sequences read it and none writes it.
#[unsafe(no_mangle)]
pub extern "C" fn standinTagBlock(cache: *const c_void, block: usize, owner: u64) {
    world().owners.tag(cache as u64, block, owner);
}

/// Says which owners are behind the sequences of the attentions that are launched from now on.
///
/// # Safety
/// `owners` has `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standinReadAs(owners: *const u64, count: usize) {
    // SAFETY: the caller's promise.
    let owners = unsafe { std::slice::from_raw_parts(owners, count) };
    world().owners.readers = owners.to_vec();
}

/// Microseconds of the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn standinHostTime() -> f64 {
    time_here()
}

/// Lets the calling thread be busy for so many microseconds.
#[unsafe(no_mangle)]
pub extern "C" fn standinSpend(microseconds: f64) {
    spend(microseconds);
}

/// Microseconds that devices spent on tasks, dispatch left out.
#[unsafe(no_mangle)]
pub extern "C" fn standinBusyTime() -> f64 {
    world().busy
}
