//! How every exported call begins and ends: faults on demand, whether AscendCL runs, the calling thread's state, and what a failure
//! leaves behind for `aclGetRecentErrMsg`.

use crate::caller::{Caller, Wait};
use crate::fail::{Fail, failure, mistake};
use crate::fault::Fault;
use crate::host_function;
use crate::host_time;
use crate::timing::call_time;
use crate::world::{Process, World};
use ropeteam_acl_sys::code::{ACL_ERROR_UNINITIALIZE, ACL_SUCCESS};
use std::cell::RefCell;
use std::ffi::CString;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| Mutex::new(World::from_environment()));

thread_local! {
    static CALLER: RefCell<Caller> = RefCell::default();
}

/// All there is, for one call.
pub fn world() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One call that does not wait.
pub fn enter(
    call: &'static str,
    body: impl FnOnce(&mut World, &mut Caller) -> Result<(), Fail>,
) -> i32 {
    if let Some(code) = host_function::refusal(call) {
        return code;
    }
    CALLER.with_borrow_mut(|caller| {
        let result = begin(call, caller).and_then(|mut world| {
            let done = body(&mut world, caller);
            note(&mut world, call, &done);
            let (time, is_real) = (world.now, world.settings.real_clock);
            drop(world);
            host_time::reach(caller, is_real, time);
            done
        });
        finish(call, caller, result)
    })
}

/// Microseconds of the calling thread.
pub fn time_here() -> f64 {
    let is_real = world().settings.real_clock;
    CALLER.with_borrow(|caller| host_time::now(caller, is_real))
}

/// Lets the calling thread be busy.
pub fn spend(microseconds: f64) {
    let is_real = world().settings.real_clock;
    CALLER.with_borrow_mut(|caller| {
        let time = host_time::now(caller, is_real) + microseconds;
        host_time::reach(caller, is_real, time);
    });
}

/// One call that waits, at most `patience`; `timeout` is the code for longer.
pub fn enter_waiting(
    call: &'static str,
    patience: Option<Duration>,
    timeout: i32,
    mut body: impl FnMut(&mut World, &mut Caller) -> Result<Wait, Fail>,
) -> i32 {
    if let Some(code) = host_function::refusal(call) {
        return code;
    }
    CALLER.with_borrow_mut(|caller| {
        let since = Instant::now();
        let mut started = begin(call, caller);
        let result = loop {
            let done = started.and_then(|mut world| {
                let done = body(&mut world, caller);
                note(&mut world, call, &done);
                let done_at = world.wake.take().unwrap_or(0.0);
                let (time, is_real) = (world.now.max(done_at), world.settings.real_clock);
                drop(world);
                host_time::reach(caller, is_real, time);
                done
            });
            match done {
                Ok(Wait::Hung) if patience.is_none_or(|patience| since.elapsed() < patience) => {
                    std::thread::sleep(Duration::from_millis(1));
                    started = Ok(world());
                }
                Ok(Wait::Hung) => break Err(failure(timeout, "not done in time")),
                Ok(Wait::Done) => break Ok(()),
                Err(fail) => break Err(fail),
            }
        };
        finish(call, caller, result)
    })
}

/// One call that hands out a pointer: null when it fails.
pub fn enter_making<T>(
    call: &'static str,
    body: impl FnOnce(&mut World, &mut Caller) -> Result<*mut T, Fail>,
) -> *mut T {
    let mut made = std::ptr::null_mut();
    enter(call, |world, caller| {
        made = body(world, caller)?;
        Ok(())
    });
    made
}

/// The message of this thread's last failure, once.
pub fn take_message() -> *const std::ffi::c_char {
    CALLER.with_borrow_mut(|caller| {
        caller.read = caller.message.take();
        let text = caller.read.as_ref();
        text.map_or(std::ptr::null(), |text| text.as_ptr())
    })
}

fn begin(call: &'static str, caller: &Caller) -> Result<MutexGuard<'static, World>, Fail> {
    let mut world = world();
    world.now = host_time::now(caller, world.settings.real_clock) + call_time(call);
    world.wake = None;
    match world.settings.fault_at(call) {
        Some(Fault::Code(code)) => return Err(failure(code, "a fault was asked for")),
        Some(Fault::Die) => std::process::abort(),
        Some(Fault::Hang) => {
            drop(world);
            loop {
                std::thread::park();
            }
        }
        None => {}
    }
    if world.process != Process::Running && call != "aclInit" {
        let fail = mistake(ACL_ERROR_UNINITIALIZE, "AscendCL does not run");
        note::<()>(&mut world, call, &Err(fail.clone()));
        return Err(fail);
    }
    Ok(world)
}

fn note<T>(world: &mut World, call: &'static str, result: &Result<T, Fail>) {
    if let Err(fail) = result
        && fail.mistake
    {
        let text = format!("{} (code {})", fail.text, fail.code);
        world.violations.report(call, &text);
    }
}

fn finish(call: &'static str, caller: &mut Caller, result: Result<(), Fail>) -> i32 {
    match result {
        Ok(()) => ACL_SUCCESS,
        Err(fail) => {
            caller.message = CString::new(format!("{call}: {}", fail.text)).ok();
            fail.code
        }
    }
}
