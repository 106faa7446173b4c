//! A view of the scheduler for people (management routes, logs).

use crate::device_core::Load;
use crate::ids::{DeviceId, Epoch};
use crate::placement::Role;
use serde::Serialize;

/// A view of a whole scheduler.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SchedulerSnapshot {
    /// It takes no new sequences.
    pub draining: bool,
    /// Sequences in the queue.
    pub waiting: usize,
    /// Bound of the queue.
    pub max_queue: usize,
    /// Sequences on devices.
    pub running: usize,
    /// Tenants with sequences, by name.
    pub tenants: Vec<TenantView>,
    /// Devices, by id.
    pub devices: Vec<DeviceView>,
}

/// One tenant that waits or runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TenantView {
    /// Its name; `""` is the common tenant.
    pub tenant: String,
    /// Its sequences in the queue.
    pub waiting: usize,
    /// Its sequences on devices.
    pub running: usize,
    /// Its virtual counter: tokens it was served, lifted on entry so that nobody saves up by staying away.
    pub served_tokens: u64,
}

/// One device as the scheduler sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceView {
    /// The device.
    pub device: DeviceId,
    /// Its present or last life.
    pub epoch: Epoch,
    /// Whether it takes work.
    pub up: bool,
    /// Whether an operator holds new work back from it; it is empty when `running` is 0.
    pub held_back: bool,
    /// What it is used for.
    pub role: Role,
    /// Sequences on it.
    pub running: usize,
    /// Blocks that may still be promised.
    pub credit_blocks: u32,
    /// Its last report.
    pub load: Load,
}
