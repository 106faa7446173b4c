//! The engine from outside: single behaviours of the device core and the scheduler core, then both under random load.

mod constraints;
mod device_core;
mod device_core_workloads;
mod kept;
mod scheduler;
mod scheduler_worlds;
mod toy;
