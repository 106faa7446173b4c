//! AscendCL and aclnn as C declares them: types, constants, error codes, and one table of functions per header, loaded at run time.
//! No logic: what a code means to us, who owns a handle and on which thread it lives is the business of `ascend`.
//! Names are C's own, so that a reader finds them in the official documentation. Which facts are declared here, and against
//! which release they were compared, is checked by `just acl-headers`.

#![allow(non_camel_case_types)]

#[macro_use]
mod declare;
pub mod acl_mdl;
pub mod acl_meta;
pub mod acl_rt;
pub mod aclnn;
pub mod code;
pub mod dcmi;
pub mod load;
pub mod types;

pub use declare::{Absent, Signature};
pub use load::{Acl, LoadError, Search};
