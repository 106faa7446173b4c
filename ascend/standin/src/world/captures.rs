//! Capturing: tasks of a stream, and of streams that wait for its events, are kept instead of run. While it lasts, calls that would
//! wait or allocate are forbidden: to all threads, to the capturing one or to nobody, as its mode says.

use super::World;
use super::graphs::{Graph, Node, Slot};
use crate::caller::Caller;
use crate::clock::{Actor, Clock, Epoch};
use crate::fail::{Fail, failure, mistake};
use crate::task::{Id, Work};
use crate::world::streams::NewTask;
use ropeteam_acl_sys::code::*;
use ropeteam_acl_sys::types::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

/// A capture under way.
pub struct Capture {
    mode: aclmdlRICaptureMode,
    thread: ThreadId,
    /// Its streams, the one it began in first, each with what it knows; places in this list are the actors of these clocks.
    streams: Vec<(Id, Clock)>,
    nodes: Vec<Node>,
    groups: BTreeMap<Id, Range<usize>>,
    /// First task of the group that was begun.
    group_from: Option<usize>,
    /// A forbidden call was made.
    spoilt: bool,
}

impl Capture {
    fn place(&self, stream: Id) -> Option<usize> {
        self.streams.iter().position(|(id, _)| *id == stream)
    }

    /// Whether the calling thread may not wait or allocate.
    fn forbids(&self) -> bool {
        match self.mode {
            ACL_MODEL_RI_CAPTURE_MODE_GLOBAL => true,
            ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL => self.thread == std::thread::current().id(),
            _ => false,
        }
    }
}

impl World {
    fn capture_of(&mut self, stream: Id) -> Option<(Id, &mut Capture)> {
        let mut captures = self.captures.iter_mut();
        let own = captures.find(|(_, capture)| capture.place(stream).is_some());
        own.map(|(id, capture)| (*id, capture))
    }

    /// `aclmdlRICaptureBegin`.
    pub fn begin_capture(
        &mut self,
        caller: &Caller,
        stream: Id,
        mode: aclmdlRICaptureMode,
    ) -> Result<(), Fail> {
        let stream = self.own_stream(caller, stream)?;
        if self.streams[&stream].is_default {
            return Err(mistake(
                ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT,
                "a default stream cannot be captured",
            ));
        }
        self.check_not_capturing(stream)?;
        let capture = Capture {
            mode,
            thread: std::thread::current().id(),
            streams: vec![(stream, Clock::default())],
            nodes: Vec::new(),
            groups: BTreeMap::new(),
            group_from: None,
            spoilt: false,
        };
        let id = self.fresh_handle();
        self.captures.insert(id, capture);
        Ok(())
    }

    /// `aclmdlRICaptureEnd`: the graph's handle.
    pub fn end_capture(&mut self, caller: &Caller, stream: Id) -> Result<Id, Fail> {
        let stream = self.own_stream(caller, stream)?;
        let Some((id, capture)) = self.capture_of(stream) else {
            return Err(mistake(
                ACL_ERROR_RT_STREAM_NOT_CAPTURED,
                "the stream is not captured",
            ));
        };
        if capture.place(stream) != Some(0) {
            return Err(mistake(
                ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED,
                "the capture did not begin in this stream",
            ));
        }
        let same_thread = capture.thread == std::thread::current().id();
        if capture.mode != ACL_MODEL_RI_CAPTURE_MODE_RELAXED && !same_thread {
            return Err(mistake(
                ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD,
                "the capture began on another thread",
            ));
        }
        let Some(capture) = self.captures.remove(&id) else {
            return Ok(id);
        };
        for event in self.events.values_mut() {
            event.captured.take_if(|(of, _)| *of == id);
        }
        check_complete(&capture)?;
        let graph = Graph::new(capture.nodes, capture.groups);
        self.graphs.insert(id, graph);
        Ok(id)
    }

    /// `aclmdlRICaptureGetInfo`.
    pub fn capture_status(&mut self, stream: Id) -> (aclmdlRICaptureStatus, Id) {
        match self.capture_of(stream) {
            None => (ACL_MODEL_RI_CAPTURE_STATUS_NONE, 0),
            Some((id, capture)) if capture.spoilt => (ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED, id),
            Some((id, _)) => (ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE, id),
        }
    }

    /// Keeps a task of a stream that is captured or updates a group; what is left is to be run.
    pub fn keep(&mut self, stream: Id, task: NewTask) -> Option<NewTask> {
        let Work::Run(run) = &task.work else {
            return Some(task);
        };
        let slot = Slot {
            run: run.clone(),
            changed: None,
            used: None,
            fresh: false,
        };
        let node = Node {
            call: task.call,
            spans: task.spans.clone(),
            cost: task.cost,
            slot: Arc::new(Mutex::new(slot)),
        };
        if let Some(update) = self.updates.get_mut(&stream) {
            update.push(node);
            return None;
        }
        let Some((_, capture)) = self.capture_of(stream) else {
            return Some(task);
        };
        if let Some(place) = capture.place(stream) {
            capture.streams[place].1.advance(place as Actor);
        }
        capture.nodes.push(node);
        None
    }

    /// An event recorded in a captured stream becomes part of the capture; whether it did.
    pub fn capture_record(&mut self, event: Id, stream: Id) -> bool {
        let captured = self.capture_of(stream).and_then(|(id, capture)| {
            let place = capture.place(stream)?;
            Some((id, capture.streams[place].1.clone()))
        });
        let is_captured = captured.is_some();
        if let Some(event) = self.events.get_mut(&event) {
            event.captured = captured;
        }
        is_captured
    }

    /// A stream that waits for a captured event joins the capture; whether it did.
    pub fn capture_wait(&mut self, stream: Id, event: Id) -> Result<bool, Fail> {
        let captured = self.event(event)?.captured.clone();
        let own = self.capture_of(stream).map(|(id, _)| id);
        let Some((id, clock)) = captured else {
            return match own {
                None => Ok(false),
                Some(_) => Err(self.spoil(
                    stream,
                    ACL_ERROR_RT_CAPTURE_DEPENDENCY,
                    "a captured stream waits for an event from outside the capture",
                )),
            };
        };
        if own.is_some_and(|own| own != id) {
            return Err(self.spoil(
                stream,
                ACL_ERROR_STREAM_CAPTURE_CONFLICT,
                "a captured stream waits for an event of another capture",
            ));
        }
        let Some(capture) = self.captures.get_mut(&id) else {
            return Ok(false);
        };
        let place = capture.place(stream).unwrap_or_else(|| {
            // From here on it must be waited for, even if it does nothing.
            let place = capture.streams.len();
            let mut clock = Clock::default();
            clock.advance(place as Actor);
            capture.streams.push((stream, clock));
            place
        });
        capture.streams[place].1.join(&clock);
        Ok(true)
    }

    /// Makes the capture of a stream worthless.
    fn spoil(&mut self, stream: Id, code: i32, text: &str) -> Fail {
        if let Some((_, capture)) = self.capture_of(stream) {
            capture.spoilt = true;
        }
        mistake(code, text)
    }

    /// A call that a captured stream cannot serve.
    pub fn check_not_capturing(&mut self, stream: Id) -> Result<(), Fail> {
        match self.capture_of(stream).is_some() {
            true => Err(self.spoil(
                stream,
                ACL_ERROR_RT_STREAM_CAPTURED,
                "the stream is captured",
            )),
            false => Ok(()),
        }
    }

    /// A call that waits or allocates, which captures may forbid.
    pub fn check_capture_mode(&mut self, code: i32) -> Result<(), Fail> {
        let forbidding = self
            .captures
            .values_mut()
            .filter(|capture| capture.forbids());
        let mut spoilt = false;
        for capture in forbidding {
            capture.spoilt = true;
            spoilt = true;
        }
        match spoilt {
            true => Err(mistake(code, "forbidden while a stream is captured")),
            false => Ok(()),
        }
    }

    /// `aclmdlRICaptureTaskGrpBegin`.
    pub fn begin_group(&mut self, caller: &Caller, stream: Id) -> Result<(), Fail> {
        let stream = self.own_stream(caller, stream)?;
        let Some((_, capture)) = self.capture_of(stream) else {
            return Err(not_captured());
        };
        if capture.group_from.is_some() {
            return Err(group_status("a group was begun already"));
        }
        capture.group_from = Some(capture.nodes.len());
        Ok(())
    }

    /// `aclmdlRICaptureTaskGrpEnd`: the group's handle.
    pub fn end_group(&mut self, caller: &Caller, stream: Id) -> Result<Id, Fail> {
        let stream = self.own_stream(caller, stream)?;
        let handle = self.fresh_handle();
        let Some((_, capture)) = self.capture_of(stream) else {
            return Err(not_captured());
        };
        let Some(from) = capture.group_from.take() else {
            return Err(group_status("no group was begun"));
        };
        capture.groups.insert(handle, from..capture.nodes.len());
        Ok(handle)
    }
}

fn not_captured() -> Fail {
    mistake(
        ACL_ERROR_RT_STREAM_NOT_CAPTURED,
        "the stream is not captured",
    )
}

fn group_status(text: &str) -> Fail {
    mistake(ACL_ERROR_STREAM_TASK_GROUP_STATUS, text)
}

/// A capture that can become a graph.
fn check_complete(capture: &Capture) -> Result<(), Fail> {
    if capture.spoilt {
        return Err(failure(
            ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED,
            "a forbidden call was made during the capture",
        ));
    }
    if capture.group_from.is_some() {
        return Err(group_status("a group was not ended"));
    }
    let (_, first) = &capture.streams[0];
    for (place, (_, clock)) in capture.streams.iter().enumerate().skip(1) {
        let actor = place as Actor;
        let last = Epoch {
            actor,
            tick: clock.get(actor),
            call: "aclmdlRICaptureEnd",
        };
        if !first.knows(&last) {
            return Err(mistake(
                ACL_ERROR_RT_STREAM_UNJOINED,
                "a stream that joined the capture was not waited for",
            ));
        }
    }
    Ok(())
}
