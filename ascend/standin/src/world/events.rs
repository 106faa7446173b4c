//! Events: marks in a stream, which others wait for.

use super::World;
use crate::caller::{Caller, Wait};
use crate::clock::Clock;
use crate::fail::{Fail, failure, mistake};
use crate::task::{Id, Work};
use crate::timing::{Cost, Microseconds};
use crate::world::streams::NewTask;
use ropeteam_acl_sys::code::*;
use ropeteam_acl_sys::types::{ACL_EVENT_SYNC, ACL_EVENT_TIME_LINE};

/// An event.
pub struct Event {
    /// The context it was made in.
    pub context: Id,
    /// `ACL_EVENT_*`.
    flags: u32,
    /// Whether it came from `aclrtCreateEventWithFlag` and can be reset.
    resettable: bool,
    /// Whether it can be asked for its status.
    queryable: bool,
    /// Where it was recorded last.
    pub mark: Option<Mark>,
    /// The capture that it was recorded in, and what the stream knew.
    pub captured: Option<(Id, Clock)>,
}

/// Where an event was recorded.
pub struct Mark {
    /// In which stream.
    pub stream: Id,
    /// After how many tasks, the record among them.
    pub tasks: u64,
    /// What the stream knew.
    pub clock: Clock,
    /// When the stream came by, in the model.
    passed: Option<Microseconds>,
}

/// Which of the three calls makes an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// `aclrtCreateEvent`: waited for, timed and asked for; not reset.
    Plain,
    /// `aclrtCreateEventWithFlag`: can be reset.
    WithFlag,
    /// `aclrtCreateEventExWithFlag`: neither reset nor asked for.
    Extended,
}

impl World {
    /// Makes an event.
    pub fn create_event(
        &mut self,
        caller: &Caller,
        kind: EventKind,
        flags: u32,
    ) -> Result<Id, Fail> {
        let (context, _) = self.current(caller)?;
        if self.events.len() >= self.settings.event_limit() {
            return Err(failure(
                ACL_ERROR_RT_NO_EVENT_RESOURCE,
                format!("{} events are all", self.settings.event_limit()),
            ));
        }
        let id = self.fresh_handle();
        let event = Event {
            context,
            flags,
            resettable: kind == EventKind::WithFlag,
            queryable: kind != EventKind::Extended,
            mark: None,
            captured: None,
        };
        self.events.insert(id, event);
        Ok(id)
    }

    /// An event by handle.
    pub fn event(&self, id: Id) -> Result<&Event, Fail> {
        self.events.get(&id).ok_or_else(|| {
            mistake(
                ACL_ERROR_RT_INVALID_HANDLE,
                format!("{id:#x} is no event (any more)"),
            )
        })
    }

    /// `aclrtDestroyEvent`.
    pub fn destroy_event(&mut self, id: Id) -> Result<(), Fail> {
        if let Some(mark) = &self.event(id)?.mark
            && mark.passed.is_none()
            && self.streams.contains_key(&mark.stream)
        {
            let text = "the stream it was recorded in has not come by yet";
            self.violations.report("aclrtDestroyEvent", text);
        }
        self.events.remove(&id);
        Ok(())
    }

    /// `aclrtRecordEvent`.
    pub fn record_event(&mut self, caller: &Caller, id: Id, stream: Id) -> Result<(), Fail> {
        let stream = self.own_stream(caller, stream)?;
        self.event(id)?;
        if self.capture_record(id, stream) {
            return Ok(());
        }
        let task = NewTask {
            call: "aclrtRecordEvent",
            spans: Vec::new(),
            work: Work::Record(id),
            knows: Clock::default(),
            cost: Cost::default(),
        };
        // The mark stands before the task, which an eager schedule runs at once.
        let tasks = self.tasks_of(stream) + 1;
        let mark = Mark {
            stream,
            tasks,
            clock: Clock::default(),
            passed: None,
        };
        if let Some(event) = self.events.get_mut(&id) {
            event.mark = Some(mark);
        }
        self.enqueue(stream, task);
        let clock = self.stream_clock(stream);
        if let Some(mark) = self.events.get_mut(&id).and_then(|e| e.mark.as_mut()) {
            mark.clock = clock;
        }
        Ok(())
    }

    /// `aclrtStreamWaitEvent`.
    pub fn wait_event(&mut self, caller: &Caller, stream: Id, id: Id) -> Result<(), Fail> {
        let stream = self.own_stream(caller, stream)?;
        let event = self.event(id)?;
        if event.flags & ACL_EVENT_SYNC == 0 {
            return Err(mistake(
                ACL_ERROR_RT_PARAM_INVALID,
                "an event without ACL_EVENT_SYNC cannot be waited for by a stream",
            ));
        }
        if self.capture_wait(stream, id)? {
            return Ok(());
        }
        let Some(mark) = &self.event(id)?.mark else {
            let text = "the event was never recorded: whether the stream waits is undefined";
            self.violations.report("aclrtStreamWaitEvent", text);
            return Ok(());
        };
        let work = Work::Wait {
            event: id,
            stream: mark.stream,
            tasks: mark.tasks,
        };
        let task = NewTask {
            call: "aclrtStreamWaitEvent",
            spans: Vec::new(),
            work,
            knows: mark.clock.clone(),
            cost: Cost::default(),
        };
        self.enqueue(stream, task);
        Ok(())
    }

    /// `aclrtResetEvent`.
    pub fn reset_event(&mut self, caller: &Caller, id: Id, stream: Id) -> Result<(), Fail> {
        let stream = self.own_stream(caller, stream)?;
        self.check_not_capturing(stream)?;
        if !self.event(id)?.resettable {
            return Err(mistake(
                ACL_ERROR_RT_PARAM_INVALID,
                "only events of aclrtCreateEventWithFlag can be reset",
            ));
        }
        let task = NewTask {
            call: "aclrtResetEvent",
            spans: Vec::new(),
            work: Work::Reset(id),
            knows: Clock::default(),
            cost: Cost::default(),
        };
        self.enqueue(stream, task);
        Ok(())
    }

    /// `aclrtQueryEventStatus`: whether the mark was passed; each question lets the stream do one task.
    pub fn query_event(&mut self, id: Id) -> Result<bool, Fail> {
        self.check_not_captured(id)?;
        let event = self.event(id)?;
        if !event.queryable {
            return Err(mistake(
                ACL_ERROR_RT_PARAM_INVALID,
                "events of aclrtCreateEventExWithFlag cannot be asked for their status",
            ));
        }
        let Some((stream, tasks, clock)) = self.marked(id)? else {
            return Ok(true);
        };
        if !self.has_done(stream, tasks) {
            self.query_stream(stream)?;
        }
        self.check_stream(stream)?;
        let passed = self.has_done(stream, tasks);
        if passed {
            self.host_learns(&clock);
        }
        Ok(passed)
    }

    /// `aclrtSynchronizeEvent`.
    pub fn finish_event(&mut self, id: Id) -> Result<Wait, Fail> {
        self.check_not_captured(id)?;
        let Some((stream, tasks, clock)) = self.marked(id)? else {
            let text = "the event was never recorded";
            self.violations.report("aclrtSynchronizeEvent", text);
            return Ok(Wait::Done);
        };
        if let Wait::Hung = self.run(stream, tasks) {
            return Ok(Wait::Hung);
        }
        self.host_learns(&clock);
        self.wake = self.passed_at(id);
        self.check_stream(stream)?;
        Ok(Wait::Done)
    }

    /// `aclrtEventElapsedTime`: from one event to another, in milliseconds of the model.
    pub fn elapsed(&self, start: Id, end: Id) -> Result<f32, Fail> {
        let (start, end) = (self.time_of(start)?, self.time_of(end)?);
        Ok(((end - start) / 1000.0) as f32)
    }

    fn time_of(&self, id: Id) -> Result<Microseconds, Fail> {
        if self.event(id)?.flags & ACL_EVENT_TIME_LINE == 0 {
            return Err(mistake(
                ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
                "an event without ACL_EVENT_TIME_LINE has no time",
            ));
        }
        self.passed_at(id).ok_or_else(|| {
            mistake(
                ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
                "the event was not recorded and passed",
            )
        })
    }

    /// When a stream came by an event's mark.
    pub fn passed_at(&self, id: Id) -> Option<Microseconds> {
        self.events.get(&id)?.mark.as_ref()?.passed
    }

    /// An event that is part of a capture cannot be waited for or asked.
    fn check_not_captured(&self, id: Id) -> Result<(), Fail> {
        if self.event(id)?.captured.is_none() {
            return Ok(());
        }
        Err(mistake(
            ACL_ERROR_RT_EVENT_CAPTURED,
            "the event was recorded in a capture",
        ))
    }

    fn marked(&self, id: Id) -> Result<Option<(Id, u64, Clock)>, Fail> {
        let mark = self.event(id)?.mark.as_ref();
        Ok(mark.map(|mark| (mark.stream, mark.tasks, mark.clock.clone())))
    }

    /// A stream comes by the record of an event, its task of that number.
    pub fn pass(&mut self, id: Id, stream: Id, tasks: u64, now: Microseconds) {
        let mark = self.events.get_mut(&id).and_then(|e| e.mark.as_mut());
        if let Some(mark) = mark.filter(|mark| mark.stream == stream && mark.tasks == tasks) {
            mark.passed = Some(now);
        }
    }

    /// The stream's reset of an event runs.
    pub fn unmark(&mut self, id: Id) {
        if let Some(event) = self.events.get_mut(&id) {
            event.mark = None;
        }
    }
}
