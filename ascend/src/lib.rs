//! Huawei Ascend NPUs: `AclDevice` does what `ropeteam_device::Device` asks for with AscendCL and aclnn operators, which are loaded
//! at run time. One device belongs to the thread that opened it; nothing here can be sent to another.
//!
//! Layers: `acl-sys` declares the C functions; `error` turns every code into a value; `session`, `memory`, `pinned` and `tensor` own
//! what has to be given back; `launch` prepares and launches operators; the files of `device` say which operator does what (begin with
//! `device/mod.rs`).
//! What each must obey stands in the official documentation; a software stand-in (`ascend/standin`) holds us to it in tests.

// Calls of C functions stand in one macro, whose arguments are this crate's own handles, addresses and numbers.
#![allow(clippy::macro_metavars_in_unsafe)]

#[macro_use]
mod error;
#[macro_use]
mod launch;
mod device;
mod library;
mod memory;
mod pinned;
mod session;
mod survey;
mod tensor;

pub use device::{AclDevice, AscendOptions, NEEDED, NEEDED_BY_INT8, STEPS_AHEAD, lacking};
pub use error::AclError;
pub use library::Search;
pub use survey::{Npu, Survey, survey};
