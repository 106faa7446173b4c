//! A process of its own for each test: a private copy of the library, loaded through `acl-sys` like the real one, with a device, a
//! stream and short words for what tests do again and again.

// Not every test uses all of it.
#![allow(dead_code)]

pub mod tensors;

use libloading::Library;
use ropeteam_acl_sys::types::*;
use ropeteam_acl_sys::{Acl, Search};
use std::ffi::{CStr, CString, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;

/// A loaded copy of the stand-in.
pub struct Rig {
    /// Its functions.
    pub acl: Acl,
    control: Library,
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

impl Rig {
    /// A copy in which nothing was called yet.
    pub fn untouched(settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let exe = std::env::current_exe().expect("a test runs");
        let built = exe.with_file_name("libropeteam_ascend_standin.so");
        let library = folder.path().join("libascendcl.so");
        std::fs::copy(&built, &library).unwrap_or_else(|e| panic!("{}: {e}", built.display()));
        for name in ["libnnopbase.so", "libopapi.so"] {
            std::os::unix::fs::symlink(&library, folder.path().join(name)).expect("a link");
        }
        let search = Search {
            folders: vec![PathBuf::from(folder.path())],
            ..Search::default()
        };
        let acl = Acl::load(&search).expect("the stand-in loads");
        // SAFETY: opening it a second time runs no initialiser.
        let control = unsafe { Library::new(&library) }.expect("the same library");
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

    /// Changes settings.
    pub fn configure(&self, settings: &str) {
        let text = CString::new(settings).expect("no null");
        // SAFETY: the symbol has this type.
        let code = unsafe {
            let configure = self
                .control
                .get::<unsafe extern "C" fn(*const i8) -> i32>("standinConfigure".as_bytes());
            configure.expect("offered")(text.as_ptr().cast())
        };
        assert_eq!(code, 0, "{settings}");
    }

    /// What the stand-in holds against us since last asked.
    pub fn violations(&self) -> Vec<String> {
        let mut buffer = vec![0u8; 1 << 16];
        // SAFETY: the symbol has this type, and the buffer this length.
        let len = unsafe {
            let take = self
                .control
                .get::<unsafe extern "C" fn(*mut u8, usize) -> usize>(
                    "standinTakeViolations".as_bytes(),
                );
            take.expect("offered")(buffer.as_mut_ptr(), buffer.len())
        };
        buffer.truncate(len);
        let text = String::from_utf8(buffer).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    /// Says whose a block of a cache is; 0: it is shared.
    pub fn tag_block(&self, cache: *mut c_void, block: usize, owner: u64) {
        type Tag = unsafe extern "C" fn(*const c_void, usize, u64);
        // SAFETY: the symbol has this type.
        unsafe {
            let tag = self.control.get::<Tag>("standinTagBlock".as_bytes());
            tag.expect("offered")(cache, block, owner);
        }
    }

    /// Says who is behind the sequences of attentions.
    pub fn read_as(&self, owners: &[u64]) {
        type ReadAs = unsafe extern "C" fn(*const u64, usize);
        // SAFETY: the symbol has this type, and the numbers this count.
        unsafe {
            let read = self.control.get::<ReadAs>("standinReadAs".as_bytes());
            read.expect("offered")(owners.as_ptr(), owners.len());
        }
    }

    /// Microseconds of this thread, or with `busy` those that devices worked.
    pub fn microseconds(&self, busy: bool) -> f64 {
        let symbol = match busy {
            true => "standinBusyTime",
            false => "standinHostTime",
        };
        // SAFETY: the symbols have this type.
        unsafe {
            let time = self
                .control
                .get::<unsafe extern "C" fn() -> f64>(symbol.as_bytes());
            time.expect("offered")()
        }
    }

    /// Asserts that nothing is held against us.
    pub fn clean(&self) {
        assert_eq!(self.violations(), [] as [String; 0]);
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
