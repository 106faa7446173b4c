//! A device as one thread has it: context, the stream that computes and the one that copies; given back in the right order.

use crate::error::AclError;
use ropeteam_acl_sys::Acl;
use ropeteam_acl_sys::types::*;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// Streams take launches, and answer waits, as fast as the driver can.
const FAST: u32 = ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC;

/// A device of this thread. Handles are not `Send`: the thread that opened it is their home.
pub struct Session {
    /// The libraries.
    pub acl: &'static Acl,
    /// Its number among the visible devices.
    pub device: i32,
    /// Operators and the copies between them run here.
    pub compute: aclrtStream,
    /// Weights come in here.
    pub copy: aclrtStream,
    /// Tasks of graphs get other arguments here.
    pub update: aclrtStream,
    /// Longest wait for the streams in milliseconds; -1: for ever.
    patience_ms: i32,
    context: aclrtContext,
    /// A call failed: nothing on the device can be relied on.
    failed: Cell<bool>,
    /// Events, which end after the streams that come by them.
    events: RefCell<Vec<aclrtEvent>>,
    /// How long the host waited.
    waited: Cell<Duration>,
}

impl Session {
    /// Takes a device for this thread.
    ///
    /// # Errors
    /// When there is no such device, or it does not answer.
    pub fn open(acl: &'static Acl, device: i32, patience_ms: i32) -> Result<Self, AclError> {
        call!(acl, runtime.aclrtSetDevice(device))?;
        let mut session = Self {
            acl,
            device,
            compute: aclrtStream::NULL,
            copy: aclrtStream::NULL,
            update: aclrtStream::NULL,
            patience_ms,
            context: aclrtContext::NULL,
            failed: Cell::new(false),
            events: RefCell::default(),
            waited: Cell::default(),
        };
        call!(
            acl,
            runtime.aclrtCreateContext(&mut session.context, device)
        )?;
        // Each is the session's from when it is there, so that none stays behind when the next call fails.
        for stream in [&mut session.compute, &mut session.copy, &mut session.update] {
            call!(acl, runtime.aclrtCreateStreamWithConfig(stream, 0, FAST))?;
            // What follows a failed task would compute on garbage.
            let stops = ACL_STOP_ON_FAILURE;
            call!(acl, runtime.aclrtSetStreamFailureMode(*stream, stops))?;
        }
        Ok(session)
    }

    /// Waits for all that a stream was given.
    ///
    /// # Errors
    /// The first failure of its tasks; 507046 when it takes too long.
    pub fn finish(&self, stream: aclrtStream) -> Result<(), AclError> {
        self.waiting(|| {
            call!(
                self.acl,
                runtime.aclrtSynchronizeStreamWithTimeout(stream, self.patience_ms)
            )
        })
    }

    /// An event that streams and the host can wait for; it lives as long as the session.
    ///
    /// # Errors
    /// When there are no more.
    pub fn event(&self) -> Result<aclrtEvent, AclError> {
        let mut event = aclrtEvent::NULL;
        call!(
            self.acl,
            runtime.aclrtCreateEventExWithFlag(&mut event, ACL_EVENT_SYNC)
        )?;
        self.events.borrow_mut().push(event);
        Ok(event)
    }

    /// Marks how far a stream was asked to come.
    ///
    /// # Errors
    /// When the stream takes nothing any more.
    pub fn mark(&self, event: aclrtEvent, stream: aclrtStream) -> Result<(), AclError> {
        self.noted(call!(self.acl, runtime.aclrtRecordEvent(event, stream)))
    }

    /// Lets a stream wait until another has come to its mark.
    ///
    /// # Errors
    /// As `mark`.
    pub fn order(&self, stream: aclrtStream, event: aclrtEvent) -> Result<(), AclError> {
        self.noted(call!(self.acl, runtime.aclrtStreamWaitEvent(stream, event)))
    }

    /// Waits until a stream has come to its mark.
    ///
    /// # Errors
    /// The first failure of what it did before; 507047 when it takes too long.
    pub fn reach(&self, event: aclrtEvent) -> Result<(), AclError> {
        self.waiting(|| {
            call!(
                self.acl,
                runtime.aclrtSynchronizeEventWithTimeout(event, self.patience_ms)
            )
        })
    }

    /// How long the host waited so far.
    pub fn waited(&self) -> Duration {
        self.waited.get()
    }

    fn waiting(&self, wait: impl FnOnce() -> Result<(), AclError>) -> Result<(), AclError> {
        let since = Instant::now();
        let done = wait();
        self.waited.set(self.waited.get() + since.elapsed());
        self.noted(done)
    }

    /// Remembers a failure, after which the device is reset when it is given back.
    pub fn noted<T>(&self, outcome: Result<T, AclError>) -> Result<T, AclError> {
        if outcome.is_err() {
            self.failed.set(true);
        }
        outcome
    }

    /// Drops what the streams still have to do, so that memory can be freed.
    pub fn quiesce(&self) {
        let streams = [self.compute, self.copy, self.update];
        for stream in streams
            .into_iter()
            .filter(|stream| *stream != aclrtStream::NULL)
        {
            let waited = match self.failed.get() {
                true => None,
                false => self.finish(stream).ok(),
            };
            if waited.is_none() {
                // What it answers changes nothing: the device is reset afterwards.
                let _ = call!(self.acl, runtime.aclrtStreamAbort(stream));
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let acl = self.acl;
        for stream in [self.compute, self.copy, self.update] {
            if stream != aclrtStream::NULL {
                let _ = call!(acl, runtime.aclrtDestroyStreamForce(stream));
            }
        }
        for event in self.events.get_mut().drain(..) {
            let _ = call!(acl, runtime.aclrtDestroyEvent(event));
        }
        if self.context != aclrtContext::NULL {
            let _ = call!(acl, runtime.aclrtDestroyContext(self.context));
        }
        let reset = match self.failed.get() {
            true => call!(acl, runtime.aclrtResetDeviceForce(self.device)),
            false => call!(acl, runtime.aclrtResetDevice(self.device)),
        };
        if let Err(error) = reset {
            tracing::warn!(device = self.device, %error, "the device could not be given back");
        }
    }
}
