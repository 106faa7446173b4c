//! The stand-in as this process's CANN: one copy for all tests of a file, with a few devices.

// Not every test file uses all of it.
#![allow(dead_code)]

use libloading::Library;
use ropeteam_ascend::{AclDevice, AscendOptions, STEPS_AHEAD, Search};
use ropeteam_device::{Float, Precision};
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The stand-in, loaded for the whole process.
pub struct StandIn {
    folder: PathBuf,
    control: Library,
}

static STAND_IN: OnceLock<StandIn> = OnceLock::new();

/// The process's stand-in, with 8 devices of 4 GiB.
pub fn stand_in() -> &'static StandIn {
    STAND_IN.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder").keep();
        let exe = std::env::current_exe().expect("a test runs");
        let built = exe.with_file_name("libropeteam_ascend_standin.so");
        for name in ["libascendcl.so", "libnnopbase.so", "libopapi.so"] {
            std::os::unix::fs::symlink(&built, folder.join(name)).expect("a link");
        }
        let library = folder.join("libascendcl.so");
        // SAFETY: it has no initialisers to speak of.
        let control = unsafe { Library::new(&library) }
            .unwrap_or_else(|error| panic!("{}: {error}", built.display()));
        let stand_in = StandIn { folder, control };
        stand_in.configure("violations=keep;devices=8;memory_mib=4096");
        stand_in
    })
}

impl StandIn {
    /// Changes its settings.
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

    /// Microseconds of this thread in the model, or with `busy` those that devices worked.
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

    /// Lets this thread be busy for so many microseconds of the model.
    pub fn spend(&self, microseconds: f64) {
        // SAFETY: the symbol has this type.
        unsafe {
            let spend = self
                .control
                .get::<unsafe extern "C" fn(f64)>("standinSpend".as_bytes());
            spend.expect("offered")(microseconds);
        }
    }

    /// What it holds against us since last asked.
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
        let text = String::from_utf8_lossy(&buffer).into_owned();
        text.lines().map(str::to_owned).collect()
    }

    /// Asserts that nothing is held against us.
    #[track_caller]
    pub fn clean(&self) {
        let found = self.violations();
        assert!(found.is_empty(), "{found:#?}");
    }

    /// How its `device`-th device is opened.
    pub fn options(&self, device: u32, precision: Precision, activations: Float) -> AscendOptions {
        AscendOptions {
            device,
            precision,
            activations,
            patience_ms: Some(60_000),
            steps_ahead: STEPS_AHEAD,
            graphs: true,
            search: Search {
                folders: vec![self.folder.clone()],
                ..Search::default()
            },
        }
    }

    /// Opens its `device`-th device.
    pub fn open(&self, device: u32, precision: Precision, activations: Float) -> AclDevice {
        AclDevice::open(self.options(device, precision, activations)).expect("a device")
    }
}
