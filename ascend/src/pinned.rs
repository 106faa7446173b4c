//! Pinned memory of the host, which the device reads and writes by itself: a buffer outlives the copies from it and to it because
//! it is not used again before the stream was waited for.

use crate::error::AclError;
use crate::memory::{Address, pointer};
use crate::session::Session;
use ropeteam_acl_sys::types::*;
use ropeteam_device::DeviceError;
use std::rc::Rc;

/// Bytes of each of the two buffers through which weights go.
const STAGE: usize = 8 << 20;
/// Bytes of the buffer from which the numbers of a step go.
const OUTBOX: usize = 1 << 20;
/// Copies begin at multiples of this.
const ALIGNMENT: usize = 64;

/// A pinned buffer.
struct Pinned {
    session: Rc<Session>,
    address: *mut u8,
    bytes: usize,
}

impl Pinned {
    fn new(session: &Rc<Session>, bytes: usize) -> Result<Self, AclError> {
        let mut address = std::ptr::null_mut();
        call!(
            session.acl,
            runtime.aclrtMallocHost(&mut address, bytes.max(1))
        )?;
        let address = address.cast::<u8>();
        // SAFETY: just allocated with this size. Filled so that slices of it are of defined bytes.
        unsafe { address.write_bytes(0, bytes.max(1)) };
        Ok(Self {
            session: session.clone(),
            address,
            bytes,
        })
    }

    fn slice(&self) -> &[u8] {
        // SAFETY: the allocation has this size and lives as long as `self`; no copy to it is under way when it is read.
        unsafe { std::slice::from_raw_parts(self.address, self.bytes) }
    }

    fn slice_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and no copy from it is under way when it is written.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.bytes) }
    }

    /// Enqueues a copy of `count` bytes from `from` on to the device.
    fn send(
        &self,
        from: usize,
        count: usize,
        to: Address,
        stream: aclrtStream,
    ) -> Result<(), AclError> {
        let source = self.slice()[from..from + count].as_ptr().cast();
        let sent = call!(
            self.session.acl,
            runtime.aclrtMemcpyAsync(
                pointer(to),
                count,
                source,
                count,
                ACL_MEMCPY_HOST_TO_DEVICE,
                stream
            )
        );
        self.session.noted(sent)
    }
}

impl Pinned {
    /// Enqueues copies of pieces (address, bytes) of the device, one after the other.
    fn fetch(&mut self, pieces: &[(Address, usize)], stream: aclrtStream) -> Result<(), AclError> {
        let mut at = 0;
        for (address, bytes) in pieces {
            let target = self.slice_mut()[at..at + bytes].as_mut_ptr().cast();
            let copied = call!(
                self.session.acl,
                runtime.aclrtMemcpyAsync(
                    target,
                    *bytes,
                    pointer(*address),
                    *bytes,
                    ACL_MEMCPY_DEVICE_TO_HOST,
                    stream
                )
            );
            self.session.noted(copied)?;
            at += bytes;
        }
        Ok(())
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Err(error) = call!(self.session.acl, runtime.aclrtFreeHost(self.address.cast())) {
            tracing::debug!(%error, "pinned memory could not be freed");
        }
    }
}

/// Brings weights to the device through two buffers: one is filled while the other is copied.
pub struct Staging {
    session: Rc<Session>,
    buffers: Vec<(Pinned, aclrtEvent)>,
}

impl Staging {
    /// Buffers come with the first weight.
    pub fn new(session: &Rc<Session>) -> Self {
        Self {
            session: session.clone(),
            buffers: Vec::new(),
        }
    }

    /// Brings `bytes` bytes to `to`. `fill(at, buffer)` writes those from `at` on; `at` and the buffer's length are multiples of
    /// `unit`, but for the last buffer.
    ///
    /// # Errors
    /// When a copy fails.
    pub fn bring(
        &mut self,
        to: Address,
        bytes: usize,
        unit: usize,
        mut fill: impl FnMut(usize, &mut [u8]),
    ) -> Result<(), DeviceError> {
        let stage = (STAGE / unit.max(1)).max(1) * unit.max(1);
        self.reserve(stage.min(bytes))?;
        let mut at = 0;
        let mut uses = [false; 2];
        for turn in (0..2).cycle() {
            if at == bytes {
                break;
            }
            let count = stage.min(bytes - at);
            let (buffer, event) = &mut self.buffers[turn];
            if std::mem::replace(&mut uses[turn], true) {
                self.session.reach(*event)?;
            }
            fill(at, &mut buffer.slice_mut()[..count]);
            buffer.send(0, count, to + at, self.session.copy)?;
            self.session.mark(*event, self.session.copy)?;
            at += count;
        }
        Ok(self.session.finish(self.session.copy)?)
    }

    /// Two buffers of at least `bytes` bytes.
    fn reserve(&mut self, bytes: usize) -> Result<(), AclError> {
        if self
            .buffers
            .first()
            .is_some_and(|(buffer, _)| buffer.bytes >= bytes)
        {
            return Ok(());
        }
        self.release();
        for _ in 0..2 {
            let buffer = Pinned::new(&self.session, bytes.next_power_of_two())?;
            let event = self.session.event()?;
            self.buffers.push((buffer, event));
        }
        Ok(())
    }

    /// Gives the buffers back; the next weight brings new ones.
    pub fn release(&mut self) {
        self.buffers.clear();
    }
}

/// What the host sends along with a step: ids, positions, slots, block tables. Each goes to a place of its own in the step's buffer,
/// which serves again once the device has come by that step.
pub struct Outbox {
    session: Rc<Session>,
    boxes: Vec<StepBox>,
    /// Which of them fills, and how far.
    current: usize,
    used: usize,
}

/// The buffer of one step.
#[derive(Default)]
struct StepBox {
    buffer: Option<Pinned>,
    event: Option<aclrtEvent>,
    /// The event was recorded behind its copies and not waited for.
    sent: bool,
}

impl Outbox {
    /// For so many steps that are enqueued at a time. Buffers come with their first use.
    pub fn new(session: &Rc<Session>, steps: usize) -> Self {
        Self {
            session: session.clone(),
            boxes: std::iter::repeat_with(StepBox::default)
                .take(steps)
                .collect(),
            current: 0,
            used: 0,
        }
    }

    /// Enqueues `bytes` for `to` on the compute stream.
    ///
    /// # Errors
    /// When a copy fails, or the wait for room.
    pub fn send(&mut self, bytes: &[u8], to: Address) -> Result<(), AclError> {
        let current = &self.boxes[self.current];
        let room = current.buffer.as_ref().map_or(0, |buffer| buffer.bytes);
        if self.used + bytes.len() > room {
            if room > 0 {
                self.session.finish(self.session.compute)?;
                self.clear();
            }
            if bytes.len() > room {
                let size = bytes.len().max(OUTBOX).next_power_of_two();
                self.boxes[self.current].buffer = Some(Pinned::new(&self.session, size)?);
            }
        }
        let Some(buffer) = &mut self.boxes[self.current].buffer else {
            return Ok(());
        };
        let at = self.used;
        buffer.slice_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        buffer.send(at, bytes.len(), to, self.session.compute)?;
        self.used = (at + bytes.len()).next_multiple_of(ALIGNMENT);
        Ok(())
    }

    /// The step is enqueued: the next one has another buffer.
    ///
    /// # Errors
    /// When the device fails in a step whose buffer is waited for.
    pub fn turn(&mut self) -> Result<(), AclError> {
        let current = &mut self.boxes[self.current];
        let event = match current.event {
            Some(event) => event,
            None => *current.event.insert(self.session.event()?),
        };
        self.session.mark(event, self.session.compute)?;
        current.sent = true;
        self.current = (self.current + 1) % self.boxes.len();
        self.used = 0;
        let next = &mut self.boxes[self.current];
        if let (true, Some(event)) = (std::mem::take(&mut next.sent), next.event) {
            self.session.reach(event)?;
        }
        Ok(())
    }

    /// The compute stream was waited for: all copies are done.
    pub fn clear(&mut self) {
        self.used = 0;
        for step in &mut self.boxes {
            step.sent = false;
        }
    }
}

/// Best columns that come back from the device while it goes on: for each of the steps that may be enqueued, a buffer and an event.
pub struct Answers {
    session: Rc<Session>,
    boxes: Vec<StepBox>,
    next: u64,
}

impl Answers {
    /// For so many steps at a time.
    pub fn new(session: &Rc<Session>, steps: usize) -> Self {
        Self {
            session: session.clone(),
            boxes: std::iter::repeat_with(StepBox::default)
                .take(steps)
                .collect(),
            next: 0,
        }
    }

    /// Lets pieces (address, bytes) come, one after the other, when the compute stream is so far. Returns the number of the answer.
    ///
    /// # Errors
    /// When the copies cannot be enqueued.
    pub fn ask(&mut self, pieces: &[(Address, usize)]) -> Result<u64, AclError> {
        let total: usize = pieces.iter().map(|(_, bytes)| bytes).sum();
        let number = self.next;
        self.next += 1;
        let place = (number % self.boxes.len() as u64) as usize;
        let step = &mut self.boxes[place];
        let room = step.buffer.as_ref().map_or(0, |buffer| buffer.bytes);
        if room < total {
            if room > 0 {
                // An answer that nobody wanted may still be on its way there.
                self.session.finish(self.session.compute)?;
            }
            step.buffer = Some(Pinned::new(&self.session, total.next_power_of_two())?);
        }
        let event = match step.event {
            Some(event) => event,
            None => *step.event.insert(self.session.event()?),
        };
        if let Some(buffer) = &mut step.buffer {
            buffer.fetch(pieces, self.session.compute)?;
        }
        self.session.mark(event, self.session.compute)?;
        Ok(number)
    }

    /// Waits for an answer: its bytes.
    ///
    /// # Errors
    /// The first failure of what the stream did before it.
    pub fn wait(&mut self, number: u64) -> Result<&[u8], AclError> {
        let place = (number % self.boxes.len() as u64) as usize;
        let step = &self.boxes[place];
        if let Some(event) = step.event {
            self.session.reach(event)?;
        }
        Ok(step.buffer.as_ref().map_or(&[], Pinned::slice))
    }
}

/// What comes back from the device.
pub struct Inbox {
    session: Rc<Session>,
    buffer: Option<Pinned>,
}

impl Inbox {
    /// Its buffer comes with the first use.
    pub fn new(session: &Rc<Session>) -> Self {
        Self {
            session: session.clone(),
            buffer: None,
        }
    }

    /// Reads pieces (address, bytes) of the device, one after the other, once the compute stream has come so far.
    ///
    /// # Errors
    /// The first failure of what the stream had to do, or of the copies.
    pub fn read(&mut self, pieces: &[(Address, usize)]) -> Result<&[u8], AclError> {
        let total: usize = pieces.iter().map(|(_, bytes)| bytes).sum();
        if self
            .buffer
            .as_ref()
            .is_none_or(|buffer| buffer.bytes < total)
        {
            self.buffer = None;
            self.buffer = Some(Pinned::new(&self.session, total.next_power_of_two())?);
        }
        let Some(buffer) = &mut self.buffer else {
            return Ok(&[]);
        };
        buffer.fetch(pieces, self.session.compute)?;
        self.session.finish(self.session.compute)?;
        Ok(&buffer.slice()[..total])
    }
}
