//! What the tests of several crates do with the stand-in itself: put it where a library is looked for, and ask it for what its own
//! symbols tell.

use libloading::Library;
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};

/// Names of the libraries that it stands for; the first one holds the runtime.
const NAMES: [&str; 3] = ["libascendcl.so", "libnnopbase.so", "libopapi.so"];

/// Puts the built stand-in into a folder under the names of CANN's libraries; `copy`: one of its own, with a state of its own.
pub fn install(folder: &Path, copy: bool) -> PathBuf {
    let exe = std::env::current_exe().expect("a test runs");
    let built = exe.with_file_name("libropeteam_ascend_standin.so");
    let first = folder.join(NAMES[0]);
    let placed = match copy {
        true => std::fs::copy(&built, &first).map(|_| ()),
        false => std::os::unix::fs::symlink(&built, &first),
    };
    placed.unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    for name in &NAMES[1..] {
        std::os::unix::fs::symlink(&first, folder.join(name)).expect("a link");
    }
    first
}

/// The symbols of a loaded stand-in that are not the official interface's.
pub struct Control(Library);

impl Control {
    /// Of the library in a file.
    pub fn new(library: &Path) -> Self {
        // SAFETY: it has no initialisers to speak of.
        let library = unsafe { Library::new(library) };
        Self(library.expect("the stand-in loads"))
    }

    /// Calls a symbol of the type `F`.
    pub fn with<F: Copy, R>(&self, symbol: &str, call: impl FnOnce(F) -> R) -> R {
        // SAFETY: every caller names the type that the stand-in gives the symbol.
        let function = unsafe { self.0.get::<F>(symbol.as_bytes()) };
        call(*function.expect("offered"))
    }

    /// Changes settings.
    pub fn configure(&self, settings: &str) {
        type Configure = unsafe extern "C" fn(*const i8) -> i32;
        let text = CString::new(settings).expect("no null");
        // SAFETY: a string.
        let code = self.with("standinConfigure", |configure: Configure| unsafe {
            configure(text.as_ptr().cast())
        });
        assert_eq!(code, 0, "{settings}");
    }

    /// What it holds against us since last asked.
    pub fn violations(&self) -> Vec<String> {
        type Take = unsafe extern "C" fn(*mut u8, usize) -> usize;
        let mut buffer = vec![0u8; 1 << 16];
        // SAFETY: the buffer has this length.
        let len = self.with("standinTakeViolations", |take: Take| unsafe {
            take(buffer.as_mut_ptr(), buffer.len())
        });
        buffer.truncate(len);
        let text = String::from_utf8_lossy(&buffer).into_owned();
        text.lines().map(str::to_owned).collect()
    }

    /// Asserts that nothing is held against us.
    #[track_caller]
    pub fn clean(&self) {
        assert_eq!(self.violations(), [] as [String; 0]);
    }

    /// Microseconds of this thread in the model, or with `busy` those that devices worked.
    pub fn microseconds(&self, busy: bool) -> f64 {
        let symbol = match busy {
            true => "standinBusyTime",
            false => "standinHostTime",
        };
        // SAFETY: it takes nothing.
        self.with(symbol, |time: unsafe extern "C" fn() -> f64| unsafe {
            time()
        })
    }

    /// Lets this thread be busy for so many microseconds of the model.
    pub fn spend(&self, microseconds: f64) {
        // SAFETY: a number.
        self.with("standinSpend", |spend: unsafe extern "C" fn(f64)| unsafe {
            spend(microseconds);
        });
    }

    /// Says whose a block of a cache is; 0: it is shared.
    pub fn tag_block(&self, cache: *mut c_void, block: usize, owner: u64) {
        type Tag = unsafe extern "C" fn(*const c_void, usize, u64);
        // SAFETY: numbers.
        self.with("standinTagBlock", |tag: Tag| unsafe {
            tag(cache, block, owner)
        });
    }

    /// Says who is behind the sequences of attentions.
    pub fn read_as(&self, owners: &[u64]) {
        type ReadAs = unsafe extern "C" fn(*const u64, usize);
        // SAFETY: as many numbers as said.
        self.with("standinReadAs", |read: ReadAs| unsafe {
            read(owners.as_ptr(), owners.len());
        });
    }
}
