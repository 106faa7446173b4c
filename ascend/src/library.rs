//! The CANN libraries of this process: opened and started once, never closed.

use crate::error::AclError;
use ropeteam_acl_sys::Acl;
pub use ropeteam_acl_sys::Search;
use ropeteam_acl_sys::code::ACL_ERROR_REPEAT_INITIALIZE;
use std::sync::{Mutex, PoisonError};

static LIBRARY: Mutex<Option<&'static Acl>> = Mutex::new(None);

/// The libraries, opened by the first call as `search` says; later ones get the same.
///
/// # Errors
/// When they are not there, or AscendCL does not start.
pub fn library(search: &Search) -> Result<&'static Acl, AclError> {
    let mut library = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(acl) = *library {
        return Ok(acl);
    }
    // The driver's threads live in the libraries, so they stay for good.
    let acl: &'static Acl = Box::leak(Box::new(Acl::load(search)?));
    match call!(acl, runtime.aclInit(std::ptr::null())) {
        Err(error) if error.code() != Some(ACL_ERROR_REPEAT_INITIALIZE) => return Err(error),
        _ => {}
    }
    tracing::debug!(libraries = ?acl.libraries, absent = ?acl.absent(), "CANN opened");
    *library = Some(acl);
    Ok(acl)
}
