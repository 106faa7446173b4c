//! The table of devices. To add one: a crate that implements `ropeteam_device::Device`, and a line here.

use crate::start_error::StartError;
use ropeteam_device::cpu::{CpuDevice, CpuOptions};
use ropeteam_device::{Device, DeviceError, KvPrecision, Precision};
use serde::{Deserialize, Serialize};

/// How a device is to be opened.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DeviceOptions {
    /// Threads that compute, on a device that uses the host's; `None`: one per core that this process may use.
    pub threads: Option<usize>,
    /// What weights are held in.
    pub precision: Precision,
    /// What keys and values are held in.
    pub kv: KvPrecision,
}

/// Opens a device, on the thread that will use it.
pub type Open = fn(&DeviceOptions) -> Result<Box<dyn Device>, DeviceError>;

/// A device that models can be served on.
#[derive(Clone, Copy, Debug)]
pub struct DeviceEntry {
    /// What `--device` calls it.
    pub name: &'static str,
    /// What the info route calls it.
    pub kind: &'static str,
    /// Opens it.
    pub open: Open,
}

/// All of them.
pub const DEVICES: &[DeviceEntry] = &[DeviceEntry {
    name: "cpu",
    kind: "cpu",
    open: open_cpu,
}];

/// The device called `name`.
///
/// # Errors
/// Which names there are.
pub fn find(name: &str) -> Result<&'static DeviceEntry, StartError> {
    let names = || {
        DEVICES
            .iter()
            .map(|entry| entry.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    DEVICES
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| match name {
            "ascend" | "npu" => StartError::Device(format!(
                "{name} is not offered yet; there is: {}, simulated",
                names()
            )),
            _ => StartError::Device(format!(
                "{name} is unknown; there is: {}, simulated",
                names()
            )),
        })
}

fn open_cpu(options: &DeviceOptions) -> Result<Box<dyn Device>, DeviceError> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or_else(cores);
    Ok(Box::new(CpuDevice::new(CpuOptions {
        precision: options.precision,
        kv: options.kv,
        threads,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_told_with_those_that_are() {
        let told = |name| find(name).unwrap_err().to_string();
        assert_eq!(
            told("ascend"),
            "device: ascend is not offered yet; there is: cpu, simulated"
        );
        assert_eq!(
            told("gpu"),
            "device: gpu is unknown; there is: cpu, simulated"
        );
    }
}
