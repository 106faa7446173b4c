//! Copies and fills. Pinned host memory is read and written when the task runs, pageable memory before the call returns.

use super::World;
use crate::caller::{Caller, Wait};
use crate::clock::Clock;
use crate::fail::{Fail, mistake};
use crate::memory::{Home, POISON, Span, is_device_address};
use crate::task::{Access, Id, Work};
use crate::timing::Cost;
use crate::world::streams::NewTask;
use ropeteam_acl_sys::code::*;
use ropeteam_acl_sys::types::*;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::sync::Arc;

/// A copy that somebody asks for.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// Where to.
    pub to: u64,
    /// Bytes that fit there.
    pub room: usize,
    /// Where from.
    pub from: u64,
    /// Bytes.
    pub count: usize,
    /// Direction.
    pub kind: aclrtMemcpyKind,
}

/// One end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Device,
    Pinned,
    Pageable,
}

impl World {
    /// `aclrtMemcpy`: at once, without regard to what streams still have to do.
    pub fn copy_now(&mut self, caller: &Caller, copy: Copy) -> Result<(), Fail> {
        self.current(caller)?;
        let ends = self.check_copy(&copy)?;
        self.check_capture_mode(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT)?;
        if !self.settings.computes {
            self.clear_target(&copy, ends.1);
            return Ok(());
        }
        self.as_host("aclrtMemcpy", |access| move_bytes(access, &copy, ends))
    }

    /// `aclrtMemcpyAsync`.
    pub fn copy_later(&mut self, caller: &Caller, stream: Id, copy: Copy) -> Result<Wait, Fail> {
        let stream = self.own_stream(caller, stream)?;
        let ends = self.check_copy(&copy)?;
        if copy.count == 0 {
            return Ok(Wait::Done);
        }
        let waits = ends.0 == End::Pageable || ends.1 == End::Pageable;
        if waits {
            self.check_capture_mode(ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC)?;
        }
        if !self.settings.computes {
            self.clear_target(&copy, ends.1);
        }
        let expected = (ends.0 == End::Pinned).then(|| self.fingerprint(copy.from, copy.count));
        self.spoil_target(&copy, ends.1);
        let work = move |access: &mut Access<'_>| {
            access.bad_address = ACL_ERROR_RT_SYS_DMA;
            if let Some(expected) = expected
                && fingerprint(access.read(span(copy.from, copy.count))?) != expected
            {
                let text = format!("the pinned source changed before the copy ran: {copy:x?}");
                access.violations.report("aclrtMemcpyAsync", &text);
            }
            move_bytes(access, &copy, ends)
        };
        let spans = [(copy.from, ends.0), (copy.to, ends.1)];
        let spans = spans.into_iter().filter(|(_, end)| *end != End::Pageable);
        let task = NewTask {
            call: "aclrtMemcpyAsync",
            spans: spans.map(|(from, _)| span(from, copy.count)).collect(),
            work: Work::Run(Arc::new(work)),
            knows: Clock::default(),
            cost: moves(2 * copy.count),
        };
        self.enqueue(stream, task);
        match waits {
            true => self.finish_stream(stream),
            false => Ok(Wait::Done),
        }
    }

    /// `aclrtMemset`.
    pub fn fill_now(&mut self, caller: &Caller, fill: Fill) -> Result<(), Fail> {
        self.current(caller)?;
        check_fill(&fill)?;
        self.check_capture_mode(ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT)?;
        match self.settings.computes {
            true => self.as_host("aclrtMemset", |access| fill.run(access)),
            false => Ok(()),
        }
    }

    /// `aclrtMemsetAsync`.
    pub fn fill_later(&mut self, caller: &Caller, stream: Id, fill: Fill) -> Result<(), Fail> {
        let stream = self.own_stream(caller, stream)?;
        check_fill(&fill)?;
        let task = NewTask {
            call: "aclrtMemsetAsync",
            spans: vec![span(fill.address, fill.count)],
            work: Work::Run(Arc::new(move |access| fill.run(access))),
            knows: Clock::default(),
            cost: moves(fill.count),
        };
        self.enqueue(stream, task);
        Ok(())
    }

    /// What the two ends are, source first, and whether the direction says so.
    fn check_copy(&self, copy: &Copy) -> Result<(End, End), Fail> {
        let ends = (self.end(copy.from), self.end(copy.to));
        let on_device = (ends.0 == End::Device, ends.1 == End::Device);
        let fits = match copy.kind {
            ACL_MEMCPY_HOST_TO_HOST => on_device == (false, false),
            ACL_MEMCPY_HOST_TO_DEVICE => on_device == (false, true),
            ACL_MEMCPY_DEVICE_TO_HOST => on_device == (true, false),
            ACL_MEMCPY_DEVICE_TO_DEVICE => on_device == (true, true),
            ACL_MEMCPY_DEFAULT => true,
            other => {
                return Err(mistake(
                    ACL_ERROR_INVALID_PARAM,
                    format!("there is no direction {}", other.0),
                ));
            }
        };
        if copy.count > 0 && (copy.from == 0 || copy.to == 0) {
            return Err(mistake(ACL_ERROR_INVALID_PARAM, "a null address"));
        }
        if !fits {
            return Err(mistake(
                ACL_ERROR_RT_PARAM_INVALID,
                format!("direction {} between {ends:?}", copy.kind.0),
            ));
        }
        if copy.count > copy.room {
            return Err(mistake(
                ACL_ERROR_RT_PARAM_INVALID,
                format!("{} bytes into room for {}", copy.count, copy.room),
            ));
        }
        Ok(ends)
    }

    fn end(&self, address: u64) -> End {
        if is_device_address(address) {
            return End::Device;
        }
        match self.memory.find(address) {
            Some((_, block)) if block.home == Home::Host => End::Pinned,
            _ => End::Pageable,
        }
    }

    /// A pinned target is undefined from the call on, so that who reads it too early does not find what it hopes for. Left alone
    /// while another task needs what stands there.
    fn spoil_target(&mut self, copy: &Copy, target: End) {
        let bytes = span(copy.to, copy.count);
        if target != End::Pinned || !self.settings.computes || self.pending_on(bytes).is_some() {
            return;
        }
        if let Some((base, block)) = self.memory.find_mut(copy.to) {
            let start = (copy.to - base) as usize;
            if let Some(bytes) = block.bytes_mut().get_mut(start..start + copy.count) {
                bytes.fill(POISON);
            }
        }
    }

    /// Where nothing is computed, the host gets zeros.
    fn clear_target(&mut self, copy: &Copy, target: End) {
        match target {
            End::Device => {}
            // SAFETY: the caller's own memory of this size, pinned or not.
            _ => unsafe { std::ptr::write_bytes(copy.to as *mut u8, 0, copy.count) },
        }
    }

    fn fingerprint(&self, address: u64, count: usize) -> u64 {
        let found = self.memory.find(address);
        let bytes = found.and_then(|(base, block)| {
            let start = (address - base) as usize;
            block.bytes().get(start..start + count)
        });
        fingerprint(bytes.unwrap_or_default())
    }
}

/// A fill that somebody asks for.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// First byte.
    pub address: u64,
    /// Bytes that may be filled.
    pub room: usize,
    /// What with.
    pub value: u8,
    /// Bytes.
    pub count: usize,
}

impl Fill {
    fn run(&self, access: &mut Access<'_>) -> Result<(), Fail> {
        access
            .write(span(self.address, self.count))?
            .fill(self.value);
        Ok(())
    }
}

fn check_fill(fill: &Fill) -> Result<(), Fail> {
    if fill.count > fill.room {
        return Err(mistake(
            ACL_ERROR_RT_PARAM_INVALID,
            format!("{} bytes into room for {}", fill.count, fill.room),
        ));
    }
    match is_device_address(fill.address) {
        true => Ok(()),
        false => Err(mistake(
            ACL_ERROR_RT_PARAM_INVALID,
            format!("{:#x} is no device address", fill.address),
        )),
    }
}

fn moves(bytes: usize) -> Cost {
    Cost {
        bytes: bytes as u64,
        ..Cost::default()
    }
}

fn span(address: u64, len: usize) -> Span {
    Span { address, len }
}

fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn move_bytes(access: &mut Access<'_>, copy: &Copy, ends: (End, End)) -> Result<(), Fail> {
    if copy.count == 0 {
        return Ok(());
    }
    let bytes = match ends.0 {
        // SAFETY: a pageable source is the caller's promise, and the call has not returned yet.
        End::Pageable => unsafe {
            std::slice::from_raw_parts(copy.from as *const u8, copy.count).to_vec()
        },
        _ => access.read(span(copy.from, copy.count))?.to_vec(),
    };
    match ends.1 {
        // SAFETY: as above, for the target.
        End::Pageable => unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy.to as *mut u8, copy.count);
        },
        _ => access
            .write(span(copy.to, copy.count))?
            .copy_from_slice(&bytes),
    }
    Ok(())
}
