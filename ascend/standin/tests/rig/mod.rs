//! A process of its own for each test: a private copy of the library, loaded through `acl-sys` like the real one, with a device, a
//! stream and short words for what tests do again and again.

// Not every test uses all of it.
#![allow(dead_code)]

mod control;
pub mod tensors;

use control::{Control, install};
use ropeteam_acl_sys::types::*;
use ropeteam_acl_sys::{Acl, Search};
use std::ffi::{CStr, c_void};
use std::ops::Deref;
use std::path::PathBuf;
use std::ptr::null_mut;

/// A loaded copy of the stand-in.
pub struct Rig {
    /// Its functions.
    pub acl: Acl,
    control: Control,
}

/// Calls a function of a table and gives its code.
#[macro_export]
macro_rules! code {
    ($rig:ident . $table:ident . $name:ident ( $($argument:expr),* $(,)? )) => {
        // SAFETY: the arguments are the test's own, and what is wrong with them is what it tests.
        unsafe { $rig.acl.$table.$name($($argument),*) }.expect("offered")
    };
}

/// Calls a function that must succeed.
#[macro_export]
macro_rules! ok {
    ($rig:ident . $table:ident . $name:ident ( $($argument:expr),* $(,)? )) => {{
        let code = $crate::code!($rig.$table.$name($($argument),*));
        assert_eq!(code, 0, "{}: {:?}", stringify!($name), $rig.message());
    }};
}

impl Deref for Rig {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
    }
}

impl Rig {
    /// A copy in which nothing was called yet.
    pub fn untouched(settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let library = install(folder.path(), true);
        let search = Search {
            folders: vec![PathBuf::from(folder.path())],
            ..Search::default()
        };
        let acl = Acl::load(&search).expect("the stand-in loads");
        let control = Control::new(&library);
        let rig = Self { acl, control };
        rig.configure("violations=keep");
        rig.configure(settings);
        rig
    }

    /// A copy that runs, with device 0 set for this thread.
    pub fn new(settings: &str) -> Self {
        let rig = Self::untouched(settings);
        ok!(rig.runtime.aclInit(std::ptr::null()));
        ok!(rig.runtime.aclrtSetDevice(0));
        rig
    }

    /// Asserts that exactly one thing is, and that it says `text`.
    #[track_caller]
    pub fn caught(&self, text: &str) {
        let found = self.violations();
        assert_eq!(found.len(), 1, "one violation: {found:?}");
        assert!(found[0].contains(text), "{text:?} in {found:?}");
    }

    /// The last failure's text.
    pub fn message(&self) -> String {
        let text = code!(self.runtime.aclGetRecentErrMsg());
        if text.is_null() {
            return String::new();
        }
        // SAFETY: a string until the next call.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    }

    /// A stream.
    pub fn stream(&self) -> aclrtStream {
        let mut stream = aclrtStream::NULL;
        ok!(self.runtime.aclrtCreateStream(&mut stream));
        stream
    }

    /// An event that streams can wait for.
    pub fn event(&self) -> aclrtEvent {
        let mut event = aclrtEvent::NULL;
        ok!(self
            .runtime
            .aclrtCreateEventExWithFlag(&mut event, ACL_EVENT_SYNC));
        event
    }

    /// Device memory.
    pub fn device(&self, bytes: usize) -> *mut c_void {
        let mut address = null_mut();
        ok!(self
            .runtime
            .aclrtMalloc(&mut address, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
        address
    }

    /// Pinned memory.
    pub fn pinned(&self, bytes: usize) -> *mut c_void {
        let mut address = null_mut();
        ok!(self.runtime.aclrtMallocHost(&mut address, bytes));
        address
    }

    /// Pinned memory that holds something.
    pub fn pinned_with(&self, bytes: &[u8]) -> *mut c_void {
        let address = self.pinned(bytes.len());
        // SAFETY: it has this size, and nothing else uses it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast(), bytes.len()) };
        address
    }

    /// Device memory that holds something.
    pub fn device_with(&self, bytes: &[u8]) -> *mut c_void {
        let address = self.device(bytes.len());
        let count = bytes.len();
        let from = bytes.as_ptr().cast();
        ok!(self
            .runtime
            .aclrtMemcpy(address, count, from, count, ACL_MEMCPY_HOST_TO_DEVICE));
        address
    }

    /// What device memory holds.
    pub fn read(&self, address: *mut c_void, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let to = bytes.as_mut_ptr().cast();
        ok!(self
            .runtime
            .aclrtMemcpy(to, count, address, count, ACL_MEMCPY_DEVICE_TO_HOST));
        bytes
    }

    /// An asynchronous copy; its code.
    pub fn copy(
        &self,
        to: *mut c_void,
        from: *mut c_void,
        count: usize,
        kind: aclrtMemcpyKind,
        stream: aclrtStream,
    ) -> i32 {
        code!(
            self.runtime
                .aclrtMemcpyAsync(to, count, from, count, kind, stream)
        )
    }

    /// Waits for a stream.
    pub fn finish(&self, stream: aclrtStream) {
        ok!(self.runtime.aclrtSynchronizeStream(stream));
    }
}

/// A stream as a number, which may go to another thread; so may not the handle.
pub fn number(stream: aclrtStream) -> usize {
    stream.0 as usize
}

/// The stream of a number.
pub fn numbered(stream: usize) -> aclrtStream {
    aclrtStream(stream as *mut c_void)
}

/// What pinned memory holds.
pub fn look(address: *mut c_void, count: usize) -> Vec<u8> {
    // SAFETY: the test's own memory of this size.
    unsafe { std::slice::from_raw_parts(address.cast::<u8>(), count) }.to_vec()
}
