//! The runtime: process, device, context, stream, event, memory (acl.h and acl_rt.h), in `libascendcl.so`.

use crate::types::*;
use std::ffi::{c_char, c_void};

declare_functions! {
    /// The runtime's functions.
    Runtime {
        /// Starts AscendCL, once per process; a repeat answers 100002.
        fn aclInit(config_path: *const c_char) -> aclError;
        /// Ends AscendCL for the whole process.
        fn aclFinalize() -> aclError;
        /// What the last failure of this thread says; null when there is none. Valid until the next call, cleared by it.
        fn aclGetRecentErrMsg() -> *const c_char;
        /// Name of the chip ("Ascend910B3"); null without a device.
        fn aclrtGetSocName() -> *const c_char;
        /// Version of the runtime's interface.
        fn aclrtGetVersion(major: *mut i32, minor: *mut i32, patch: *mut i32) -> aclError;

        /// Makes a device this thread's, with its default context.
        fn aclrtSetDevice(device: i32) -> aclError;
        /// Gives back one `aclrtSetDevice`; the last one frees what the device holds.
        fn aclrtResetDevice(device: i32) -> aclError;
        /// Gives back all of them at once.
        fn aclrtResetDeviceForce(device: i32) -> aclError;
        /// This thread's device.
        fn aclrtGetDevice(device: *mut i32) -> aclError;
        /// Visible devices.
        fn aclrtGetDeviceCount(count: *mut u32) -> aclError;
        /// Waits until all streams of this thread's device are empty.
        fn aclrtSynchronizeDevice() -> aclError;

        /// Makes a context and this thread's current one.
        fn aclrtCreateContext(context: *mut aclrtContext, device: i32) -> aclError;
        /// Ends an explicit context.
        fn aclrtDestroyContext(context: aclrtContext) -> aclError;
        /// Makes a context this thread's.
        fn aclrtSetCurrentContext(context: aclrtContext) -> aclError;
        /// This thread's context.
        fn aclrtGetCurrentContext(context: *mut aclrtContext) -> aclError;

        /// Makes a stream.
        fn aclrtCreateStream(stream: *mut aclrtStream) -> aclError;
        /// Makes a stream with a priority and flags.
        fn aclrtCreateStreamWithConfig(stream: *mut aclrtStream, priority: u32, flag: u32) -> aclError;
        /// Ends a stream after its tasks.
        fn aclrtDestroyStream(stream: aclrtStream) -> aclError;
        /// Ends a stream and drops its tasks.
        fn aclrtDestroyStreamForce(stream: aclrtStream) -> aclError;
        /// Waits for a stream's tasks.
        fn aclrtSynchronizeStream(stream: aclrtStream) -> aclError;
        /// Waits for a stream's tasks, at most so many milliseconds (-1: for ever).
        fn aclrtSynchronizeStreamWithTimeout(stream: aclrtStream, milliseconds: i32) -> aclError;
        /// Whether a stream's tasks are done.
        fn aclrtStreamQuery(stream: aclrtStream, status: *mut aclrtStreamStatus) -> aclError;
        /// Drops a stream's tasks; who waits for them gets 107023.
        fn aclrtStreamAbort(stream: aclrtStream) -> aclError;
        /// Whether a stream stops after a failed task.
        fn aclrtSetStreamFailureMode(stream: aclrtStream, mode: u64) -> aclError;
        /// Lets a stream wait for an event's last record.
        fn aclrtStreamWaitEvent(stream: aclrtStream, event: aclrtEvent) -> aclError;

        /// Makes an event.
        fn aclrtCreateEvent(event: *mut aclrtEvent) -> aclError;
        /// Makes an event with flags.
        fn aclrtCreateEventWithFlag(event: *mut aclrtEvent, flag: u32) -> aclError;
        /// Makes an event with flags that can be recorded again without a reset.
        fn aclrtCreateEventExWithFlag(event: *mut aclrtEvent, flag: u32) -> aclError;
        /// Ends an event.
        fn aclrtDestroyEvent(event: aclrtEvent) -> aclError;
        /// Marks the present end of a stream.
        fn aclrtRecordEvent(event: aclrtEvent, stream: aclrtStream) -> aclError;
        /// Takes an event's mark away, in stream order.
        fn aclrtResetEvent(event: aclrtEvent, stream: aclrtStream) -> aclError;
        /// Whether the event's mark was passed.
        fn aclrtQueryEventStatus(event: aclrtEvent, status: *mut aclrtEventRecordedStatus) -> aclError;
        /// Waits for an event.
        fn aclrtSynchronizeEvent(event: aclrtEvent) -> aclError;
        /// Waits for an event, at most so many milliseconds (-1: for ever).
        fn aclrtSynchronizeEventWithTimeout(event: aclrtEvent, milliseconds: i32) -> aclError;
        /// Milliseconds between two events.
        fn aclrtEventElapsedTime(milliseconds: *mut f32, start: aclrtEvent, end: aclrtEvent) -> aclError;

        /// Free and total bytes of a kind of memory.
        fn aclrtGetMemInfo(attribute: aclrtMemAttr, free: *mut usize, total: *mut usize) -> aclError;
        /// Allocates device memory, not zeroed, 64-byte aligned.
        fn aclrtMalloc(address: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy) -> aclError;
        /// Frees device memory; does not wait for tasks that use it.
        fn aclrtFree(address: *mut c_void) -> aclError;
        /// Allocates pinned host memory.
        fn aclrtMallocHost(address: *mut *mut c_void, size: usize) -> aclError;
        /// Frees pinned host memory.
        fn aclrtFreeHost(address: *mut c_void) -> aclError;
        /// Copies and waits; `room` is the capacity of `to`.
        fn aclrtMemcpy(to: *mut c_void, room: usize, from: *const c_void, count: usize, kind: aclrtMemcpyKind) -> aclError;
        /// Copies in stream order.
        fn aclrtMemcpyAsync(
            to: *mut c_void,
            room: usize,
            from: *const c_void,
            count: usize,
            kind: aclrtMemcpyKind,
            stream: aclrtStream,
        ) -> aclError;
        /// Fills device memory and waits.
        fn aclrtMemset(address: *mut c_void, room: usize, value: i32, count: usize) -> aclError;
        /// Fills device memory in stream order.
        fn aclrtMemsetAsync(address: *mut c_void, room: usize, value: i32, count: usize, stream: aclrtStream) -> aclError;

        /// Whether a device can reach another's memory.
        fn aclrtDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) -> aclError;
        /// Lets this thread's device reach another's memory.
        fn aclrtDeviceEnablePeerAccess(peer: i32, flags: u32) -> aclError;
        /// Ends that.
        fn aclrtDeviceDisablePeerAccess(peer: i32) -> aclError;
    }
}
