//! Memory of the device. Pieces that live as long as the device come from large allocations, one after the other: each begins at a
//! multiple of 512 bytes and is followed by what kernels may read beyond its end. The cache, which can be replaced, has allocations
//! of its own.

use crate::error::AclError;
use crate::session::Session;
use ropeteam_acl_sys::code::{
    ACL_ERROR_BAD_ALLOC, ACL_ERROR_RT_DEVICE_OOM, ACL_ERROR_RT_MEMORY_ALLOCATION,
};
use ropeteam_acl_sys::types::*;
use ropeteam_device::DeviceError;
use std::ffi::c_void;
use std::rc::Rc;

/// A piece begins at a multiple of this: the width of what the chip moves at once.
const ALIGNMENT: usize = 512;
/// Kernels read whole groups of 32 bytes, and one more.
const GROUP: usize = 32;
/// Bytes of the first large allocation; each is twice the one before, up to the largest.
const FIRST: usize = 2 << 20;
const LARGEST: usize = 256 << 20;

/// An address on the device.
pub type Address = usize;

/// An address as C takes it.
pub fn pointer(address: Address) -> *mut c_void {
    address as *mut c_void
}

/// Bytes that a piece of `bytes` takes.
pub fn padded(bytes: usize) -> usize {
    (bytes.next_multiple_of(GROUP) + GROUP).next_multiple_of(ALIGNMENT)
}

/// Allocates from the device.
///
/// # Errors
/// `OutOfMemory` with what is free.
pub fn allocate(session: &Session, what: &str, bytes: usize) -> Result<Address, DeviceError> {
    let mut address = std::ptr::null_mut();
    let allocated = call!(
        session.acl,
        runtime.aclrtMalloc(&mut address, bytes, ACL_MEM_MALLOC_HUGE_FIRST)
    );
    let exhausted = [
        ACL_ERROR_BAD_ALLOC,
        ACL_ERROR_RT_MEMORY_ALLOCATION,
        ACL_ERROR_RT_DEVICE_OOM,
    ];
    match allocated {
        Ok(()) => Ok(address as Address),
        Err(error) if error.code().is_some_and(|code| exhausted.contains(&code)) => {
            Err(DeviceError::OutOfMemory {
                what: what.to_owned(),
                needed_bytes: bytes as u64,
                free_bytes: free_bytes(session).unwrap_or(0),
            })
        }
        Err(error) => Err(session.noted::<Address>(Err(error)).unwrap_err().into()),
    }
}

/// Bytes that can still be allocated.
///
/// # Errors
/// When the device does not say.
pub fn free_bytes(session: &Session) -> Result<u64, AclError> {
    let (mut free, mut total) = (0, 0);
    call!(
        session.acl,
        runtime.aclrtGetMemInfo(ACL_HBM_MEM, &mut free, &mut total)
    )?;
    Ok(free as u64)
}

/// One allocation.
pub struct Region {
    session: Rc<Session>,
    /// First byte.
    pub address: Address,
    /// Bytes.
    pub bytes: usize,
}

impl Region {
    /// Allocates.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new(session: &Rc<Session>, what: &str, bytes: usize) -> Result<Self, DeviceError> {
        Ok(Self {
            session: session.clone(),
            address: allocate(session, what, bytes)?,
            bytes,
        })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Err(error) = call!(self.session.acl, runtime.aclrtFree(pointer(self.address))) {
            tracing::debug!(%error, "memory of the device could not be freed");
        }
    }
}

/// Pieces that live as long as the device.
pub struct Arena {
    session: Rc<Session>,
    regions: Vec<Region>,
    /// Bytes of the last region that were given out.
    used: usize,
}

impl Arena {
    /// An empty one.
    pub fn new(session: &Rc<Session>) -> Self {
        Self {
            session: session.clone(),
            regions: Vec::new(),
            used: 0,
        }
    }

    /// A piece of `bytes` bytes, whose values are undefined.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn piece(&mut self, what: &str, bytes: usize) -> Result<Address, DeviceError> {
        let needed = padded(bytes);
        let room = self.regions.last().map_or(0, |last| last.bytes - self.used);
        if room < needed {
            let before = self.regions.last().map_or(FIRST / 2, |last| last.bytes);
            let wanted = (2 * before).min(LARGEST).max(needed);
            // A device that is nearly full may still hold this one piece.
            let region = Region::new(&self.session, what, wanted)
                .or_else(|_| Region::new(&self.session, what, needed))?;
            self.regions.push(region);
            self.used = 0;
        }
        let at = self.used;
        self.used += needed;
        Ok(self.regions.last().map_or(0, |last| last.address + at))
    }
}

/// A piece that is replaced by a larger one when it does not do any more.
#[derive(Default)]
pub struct Growing {
    /// First byte.
    pub address: Address,
    bytes: usize,
}

impl Growing {
    /// At least `bytes` bytes; whether they are others than before. What was there stays until the device ends, since work that is
    /// queued may use it.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve(
        &mut self,
        arena: &mut Arena,
        what: &str,
        bytes: usize,
    ) -> Result<bool, DeviceError> {
        if bytes <= self.bytes {
            return Ok(false);
        }
        let bytes = bytes.next_power_of_two();
        self.address = arena.piece(what, bytes)?;
        self.bytes = bytes;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_leave_room_for_what_kernels_read_beyond_the_end() {
        assert_eq!(padded(1), 512);
        assert_eq!(padded(480), 512);
        assert_eq!(padded(481), 1024, "512 and 32 more");
        assert_eq!(padded(1024), 1536);
    }
}
