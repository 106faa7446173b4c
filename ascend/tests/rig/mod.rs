//! The stand-in as this process's CANN: one copy for all tests of a file, with a few devices.

// Not every test file uses all of it.
#![allow(dead_code)]

#[path = "../../standin/tests/rig/control.rs"]
mod control;
pub mod decoder;
pub mod modelled;

use control::{Control, install};
use ropeteam_ascend::{AclDevice, AscendOptions, STEPS_AHEAD, Search};
use ropeteam_device::{Float, Precision};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The stand-in, loaded for the whole process.
pub struct StandIn {
    folder: PathBuf,
    control: Control,
}

static STAND_IN: OnceLock<StandIn> = OnceLock::new();

/// The process's stand-in, with 8 devices of 4 GiB.
pub fn stand_in() -> &'static StandIn {
    STAND_IN.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder").keep();
        let control = Control::new(&install(&folder, false));
        control.configure("violations=keep;devices=8;memory_mib=4096");
        StandIn { folder, control }
    })
}

impl Deref for StandIn {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
    }
}

impl StandIn {
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
