//! Allocating and freeing, on devices and pinned on the host.

use super::World;
use crate::caller::Caller;
use crate::fail::{Fail, failure, mistake};
use crate::memory::{Home, POISON, Span, is_device_address};
use ropeteam_acl_sys::code::*;
use ropeteam_acl_sys::types::*;

impl World {
    /// `aclrtMalloc`.
    pub fn allocate(
        &mut self,
        caller: &Caller,
        size: usize,
        policy: aclrtMemMallocPolicy,
    ) -> Result<u64, Fail> {
        let (_, context) = self.current(caller)?;
        let device = self.devices[context.device].physical;
        let huge = match policy {
            ACL_MEM_MALLOC_NORMAL_ONLY | ACL_MEM_MALLOC_NORMAL_ONLY_P2P => false,
            ACL_MEM_MALLOC_HUGE_FIRST
            | ACL_MEM_MALLOC_HUGE_ONLY
            | ACL_MEM_MALLOC_HUGE_FIRST_P2P
            | ACL_MEM_MALLOC_HUGE_ONLY_P2P => true,
            other => {
                return Err(mistake(
                    ACL_ERROR_INVALID_PARAM,
                    format!("there is no policy {}", other.0),
                ));
            }
        };
        if size == 0 {
            return Err(mistake(ACL_ERROR_INVALID_PARAM, "0 bytes"));
        }
        self.check_capture_mode(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT)?;
        let total = self.settings.memory_bytes;
        self.memory
            .allocate(device, size as u64, huge, total)
            .ok_or_else(|| {
                let free = total - self.memory.used(device);
                failure(
                    ACL_ERROR_RT_MEMORY_ALLOCATION,
                    format!("{size} bytes are wanted, {free} of {total} are free"),
                )
            })
    }

    /// `aclrtFree`.
    pub fn free(&mut self, caller: &Caller, address: u64) -> Result<(), Fail> {
        let (_, context) = self.current(caller)?;
        let device = self.devices[context.device].physical;
        let home = Home::Device(device);
        if !is_device_address(address) {
            return Err(mistake(
                ACL_ERROR_RT_PARAM_INVALID,
                format!("{address:#x} is no device address"),
            ));
        }
        self.release("aclrtFree", address, home)
    }

    /// `aclrtMallocHost`.
    pub fn pin(&mut self, caller: &Caller, size: usize) -> Result<u64, Fail> {
        self.current(caller)?;
        if size == 0 {
            return Err(mistake(ACL_ERROR_INVALID_PARAM, "0 bytes"));
        }
        self.memory.pin(size).ok_or_else(|| {
            failure(
                ACL_ERROR_RT_MEMORY_ALLOCATION,
                format!("the host has no {size} bytes"),
            )
        })
    }

    /// `aclrtFreeHost`.
    pub fn unpin(&mut self, address: u64) -> Result<(), Fail> {
        self.release("aclrtFreeHost", address, Home::Host)
    }

    /// Frees an allocation after checking that nobody needs it any more.
    fn release(&mut self, call: &'static str, address: u64, home: Home) -> Result<(), Fail> {
        let found = self.memory.find(address);
        let (base, own, len) = match found {
            Some((base, block)) => (base, block.home, block.len()),
            None => {
                return Err(mistake(
                    ACL_ERROR_RT_PARAM_INVALID,
                    format!("{address:#x} is not allocated (any more)"),
                ));
            }
        };
        if base != address {
            return Err(mistake(
                ACL_ERROR_RT_PARAM_INVALID,
                format!("{address:#x} lies inside the allocation of {base:#x}"),
            ));
        }
        if own != home {
            return Err(mistake(
                ACL_ERROR_RT_PARAM_INVALID,
                format!("{address:#x} is memory of {own:?}, not of {home:?}"),
            ));
        }
        self.check_capture_mode(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT)?;
        let span = Span { address, len };
        if let Some(task) = self.captured_on(span) {
            let text =
                format!("{span} are freed, of {task}, which a graph needs as long as it lives");
            self.violations.report(call, &text);
        }
        if let Some(holder) = self.imported_on(span) {
            let text = format!("{span} are freed, and {holder} may use them");
            self.violations.report(call, &text);
        }
        let pending = self.pending_on(span);
        if let Some(task) = pending {
            let text = format!("{span} are freed while {task} still needs them");
            self.violations.report(call, &text);
        }
        let Some(mut block) = self.memory.free(address) else {
            return Ok(());
        };
        block.bytes_mut().fill(POISON);
        if pending.is_some() && home == Home::Host {
            // A copy that is still queued reads the poison instead of whatever comes to lie there.
            std::mem::forget(block);
        }
        Ok(())
    }

    /// `aclrtGetMemInfo`: free and total bytes.
    pub fn memory_info(&self, caller: &Caller, kind: aclrtMemAttr) -> Result<(usize, usize), Fail> {
        let (_, context) = self.current(caller)?;
        let device = self.devices[context.device].physical;
        let has_ddr = self.settings.is_310p();
        match kind {
            ACL_DDR_MEM | ACL_DDR_MEM_HUGE | ACL_DDR_MEM_NORMAL if has_ddr => {}
            ACL_HBM_MEM | ACL_HBM_MEM_HUGE | ACL_HBM_MEM_NORMAL if !has_ddr => {}
            _ => {
                return Err(mistake(
                    ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                    format!("{} has no memory of kind {}", self.settings.soc, kind.0),
                ));
            }
        }
        let total = self.settings.memory_bytes;
        let free = total - self.memory.used(device);
        Ok((free as usize, total as usize))
    }
}
