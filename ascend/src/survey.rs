//! What there is on this machine: libraries, versions, chips with their memory and health. For people who look after it.

use crate::error::AclError;
use crate::library::library;
use ropeteam_acl_sys::dcmi::Health;
use ropeteam_acl_sys::types::ACL_HBM_MEM;
use ropeteam_acl_sys::{Acl, Search, dcmi};
use std::ffi::CStr;
use std::path::PathBuf;

/// What CANN says of this machine.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The libraries that were opened.
    pub libraries: Vec<PathBuf>,
    /// Functions that they lack.
    pub absent: Vec<&'static str>,
    /// Version of the runtime's interface, "1.15.0".
    pub runtime_version: Option<String>,
    /// The visible chips, by number.
    pub npus: Vec<Npu>,
}

/// A visible chip.
#[derive(Clone, Debug)]
pub struct Npu {
    /// Its number among the visible ones.
    pub number: u32,
    /// "Ascend910B3".
    pub name: String,
    /// Free and all bytes of its memory, or why it does not say.
    pub memory: Result<(u64, u64), String>,
    /// What the driver's management library thinks of it; `None` without that library.
    pub health: Option<Health>,
}

/// Asks CANN. Takes each chip for a moment.
///
/// # Errors
/// When CANN is not installed or does not start.
pub fn survey(search: &Search) -> Result<Survey, AclError> {
    let acl = library(search)?;
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    let version = call!(
        acl,
        runtime.aclrtGetVersion(&mut major, &mut minor, &mut patch)
    );
    let mut count = 0;
    call!(acl, runtime.aclrtGetDeviceCount(&mut count))?;
    let healths = dcmi::healths();
    let npus = (0..count).map(|number| Npu {
        number,
        name: chip_name(acl).unwrap_or_else(|| "an unnamed chip".to_owned()),
        memory: memory(acl, number).map_err(|error| error.to_string()),
        health: healths.get(number as usize).copied(),
    });
    Ok(Survey {
        libraries: acl.libraries.clone(),
        absent: acl.absent(),
        runtime_version: version.ok().map(|()| format!("{major}.{minor}.{patch}")),
        npus: npus.collect(),
    })
}

/// "Ascend910B3"; `None` when the runtime knows no chip.
pub fn chip_name(acl: &Acl) -> Option<String> {
    // SAFETY: the call takes nothing and answers null or a string that stays.
    let name = unsafe { acl.runtime.aclrtGetSocName() }.ok()?;
    if name.is_null() {
        return None;
    }
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(name) };
    Some(name.to_string_lossy().into_owned())
}

fn memory(acl: &Acl, number: u32) -> Result<(u64, u64), AclError> {
    let (mut free, mut total) = (0, 0);
    call!(acl, runtime.aclrtSetDevice(number as i32))?;
    let asked = call!(
        acl,
        runtime.aclrtGetMemInfo(ACL_HBM_MEM, &mut free, &mut total)
    );
    call!(acl, runtime.aclrtResetDevice(number as i32))?;
    asked.map(|()| (free as u64, total as u64))
}
