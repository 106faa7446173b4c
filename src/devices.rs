//! The table of devices. To add one: a crate that implements `ropeteam_device::Device`, and a line here.

use crate::start_error::StartError;
use ropeteam_ascend::{AclDevice, AscendOptions, STEPS_AHEAD, Search};
use ropeteam_device::cpu::{CpuDevice, CpuOptions};
use ropeteam_device::{Device, DeviceError, Float, KvPrecision, Precision};
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
    /// Numbers of 16 bits, on a device that has a choice.
    pub half: Float,
    /// Which of its kind, on a machine with several.
    pub number: u32,
    /// Longest that a step may take, in ms: a device that can watch itself gives up a little earlier.
    pub step_timeout_ms: u64,
    /// Whether decode steps are captured as graphs, on a device that knows such.
    pub graphs: bool,
}

/// Opens a device, on the thread that will use it.
pub type Open = fn(&DeviceOptions) -> Result<Box<dyn Device>, DeviceError>;

/// A kind of device that models can be served on.
#[derive(Clone, Copy, Debug)]
pub struct DeviceEntry {
    /// What `--device` calls it, and the info route.
    pub name: &'static str,
    /// Opens it.
    pub open: Open,
    /// Tokens of a KV block where nobody says otherwise.
    pub block_size: u32,
    /// It computes in f32 as well.
    pub f32: bool,
    /// It rounds to fewer bits by itself: weights at load, keys and values as they come.
    pub rounds: bool,
    /// A machine can have several, which are numbered.
    pub numbered: bool,
}

/// All of them.
pub const DEVICES: &[DeviceEntry] = &[
    DeviceEntry {
        name: "cpu",
        open: open_cpu,
        block_size: 16,
        f32: true,
        rounds: true,
        numbered: false,
    },
    DeviceEntry {
        name: "ascend",
        open: open_ascend,
        block_size: 128,
        f32: false,
        rounds: false,
        numbered: true,
    },
];

/// What `--device` names: a kind, and which of it.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The kind.
    pub entry: &'static DeviceEntry,
    /// Numbers, each once; `[0]` where nobody says.
    pub numbers: Vec<u32>,
}

impl Chosen {
    /// Its numbers where `count` devices are asked for: a single number is where they begin, and those of a kind without numbers have
    /// none.
    ///
    /// # Errors
    /// A list of other length.
    pub fn counted(&self, count: u16) -> Result<Vec<u32>, StartError> {
        match self.numbers.as_slice() {
            [_] if !self.entry.numbered => Ok(vec![0; usize::from(count)]),
            [first] => Ok((*first..).take(usize::from(count)).collect()),
            list if count == 1 || list.len() == usize::from(count) => Ok(list.to_vec()),
            list => Err(StartError::Usage(format!(
                "device_count: {count} beside a list of {} devices; leave it out",
                list.len()
            ))),
        }
    }
}

/// The device or devices called `name`: "cpu", "ascend", "ascend:1", "ascend:0,1".
///
/// # Errors
/// Which names there are, or what is wrong with the numbers.
pub fn find(name: &str) -> Result<Chosen, StartError> {
    let (kind, list) = match name.split_once(':') {
        Some((kind, list)) => (kind, Some(list)),
        None => (name, None),
    };
    let kind = if kind == "npu" { "ascend" } else { kind };
    let Some(entry) = DEVICES.iter().find(|entry| entry.name == kind) else {
        let names: Vec<_> = DEVICES.iter().map(|entry| entry.name).collect();
        let names = names.join(", ");
        let what = format!("{name} is unknown; there is: {names}, simulated");
        return Err(StartError::Device(what));
    };
    let numbers = match list {
        None => vec![0],
        Some(list) if entry.numbered => numbers(name, list)?,
        Some(_) => {
            let what = format!("{name}: there is one {kind} only, without a number");
            return Err(StartError::Device(what));
        }
    };
    Ok(Chosen { entry, numbers })
}

fn numbers(name: &str, list: &str) -> Result<Vec<u32>, StartError> {
    let mut numbers = Vec::new();
    for word in list.split(',') {
        match word.trim().parse() {
            Ok(number) if !numbers.contains(&number) => numbers.push(number),
            _ => {
                let what = format!(
                    "{name}: {word:?} is no number of a device, or comes twice; expected: ascend:0 or ascend:0,1"
                );
                return Err(StartError::Device(what));
            }
        }
    }
    Ok(numbers)
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

fn open_ascend(options: &DeviceOptions) -> Result<Box<dyn Device>, DeviceError> {
    // Before the supervisor takes the step for stuck: a device that notices by itself is reset, one that is abandoned is not.
    let patience = options.step_timeout_ms - options.step_timeout_ms / 10;
    let device = AclDevice::open(AscendOptions {
        device: options.number,
        precision: options.precision,
        activations: options.half,
        patience_ms: Some(u32::try_from(patience).unwrap_or(u32::MAX)),
        steps_ahead: STEPS_AHEAD,
        graphs: options.graphs,
        search: Search::from_environment(),
    });
    match device {
        Ok(device) => Ok(Box::new(device)),
        Err(DeviceError::Unavailable(what)) => Err(DeviceError::Unavailable(format!(
            "{what}. `ropeteam doctor` says what to do; --device cpu serves without an NPU"
        ))),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_told_with_those_that_are() {
        let told = |name| find(name).unwrap_err().to_string();
        assert_eq!(
            told("gpu"),
            "device: gpu is unknown; there is: cpu, ascend, simulated"
        );
        assert_eq!(
            told("cpu:1"),
            "device: cpu:1: there is one cpu only, without a number"
        );
        assert!(told("ascend:0,0").contains("comes twice"));
        assert!(told("ascend:x").contains("\"x\" is no number"));
    }

    #[test]
    fn npus_have_numbers() {
        let numbers = |name| find(name).expect("a device").numbers;
        assert_eq!(numbers("ascend"), [0]);
        assert_eq!(numbers("npu:3"), [3]);
        assert_eq!(numbers("ascend:2,0"), [2, 0]);
        let counted = |name, count| find(name).expect("a device").counted(count);
        assert_eq!(counted("cpu", 2).expect("two"), [0, 0]);
        assert_eq!(counted("ascend:1", 2).expect("two"), [1, 2]);
        assert_eq!(counted("ascend:3,1", 1).expect("two"), [3, 1]);
        assert!(counted("ascend:0,1", 3).is_err());
    }
}
