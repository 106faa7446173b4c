//! Streams: queues of tasks that run in order, and only when somebody waits for them. Between streams nothing but events orders
//! anything, and the ones nobody waits for come last.

mod running;

use super::World;
use crate::caller::Caller;
use crate::clock::{Actor, Clock, Epoch};
use crate::fail::{Fail, failure, mistake};
use crate::host_function::HostFunction;
use crate::memory::Span;
use crate::settings::Schedule;
use crate::task::{Id, Task, Work};
use crate::timing::{Cost, Microseconds};
use ropeteam_acl_sys::code::*;
use std::collections::VecDeque;

/// A stream.
pub struct Stream {
    /// The context it belongs to.
    pub context: Id,
    /// Whether it is its context's default stream.
    pub is_default: bool,
    /// Who it is in clocks.
    actor: Actor,
    /// What its last task knows.
    clock: Clock,
    queue: VecDeque<Task>,
    /// Tasks that were ever enqueued, and those that are done.
    enqueued: u64,
    done: u64,
    /// The code that whoever waits for it gets.
    error: Option<i32>,
    /// Whether tasks after a failed one are dropped.
    stops: bool,
    /// A task that never ends is at its head.
    hung: bool,
    /// When its last task ended, in the model.
    now: Microseconds,
}

/// A task before it has its place.
pub struct NewTask {
    /// The call that asks for it.
    pub call: &'static str,
    /// What it may touch.
    pub spans: Vec<Span>,
    /// What it does.
    pub work: Work,
    /// What it waited for knows.
    pub knows: Clock,
    /// What it costs.
    pub cost: Cost,
}

impl World {
    /// Makes a stream in a context.
    pub fn new_stream(&mut self, context: Id, is_default: bool) -> Id {
        let id = self.fresh_handle();
        let stream = Stream {
            context,
            is_default,
            actor: self.fresh_actor(),
            clock: Clock::default(),
            queue: VecDeque::new(),
            enqueued: 0,
            done: 0,
            error: None,
            stops: false,
            hung: false,
            now: 0.0,
        };
        self.streams.insert(id, stream);
        id
    }

    /// `aclrtCreateStream`.
    pub fn create_stream(&mut self, caller: &Caller) -> Result<Id, Fail> {
        let (context, _) = self.current(caller)?;
        if self.streams.len() >= self.settings.stream_limit() {
            return Err(failure(
                ACL_ERROR_RT_NO_STREAM_RESOURCE,
                format!("{} streams are all", self.settings.stream_limit()),
            ));
        }
        Ok(self.new_stream(context, false))
    }

    /// `aclrtDestroyStream`, and with `force` `aclrtDestroyStreamForce`.
    pub fn destroy_stream(&mut self, caller: &Caller, id: Id, force: bool) -> Result<(), Fail> {
        let id = self.own_stream(caller, id)?;
        self.check_not_capturing(id)?;
        let stream = &self.streams[&id];
        if stream.is_default {
            return Err(mistake(
                ACL_ERROR_RT_PARAM_INVALID,
                "a default stream ends with its context",
            ));
        }
        if !force && !stream.queue.is_empty() {
            let text = format!("{} tasks of the stream are not done", stream.queue.len());
            self.violations.report("aclrtDestroyStream", &text);
        }
        self.streams.remove(&id);
        Ok(())
    }

    /// A stream by handle; null is the default stream of the current context.
    pub fn stream(&self, caller: &Caller, id: Id) -> Result<Id, Fail> {
        if id == 0 {
            return Ok(self.current(caller)?.1.default_stream);
        }
        match self.streams.get(&id) {
            Some(_) => Ok(id),
            None => Err(mistake(
                ACL_ERROR_RT_INVALID_HANDLE,
                format!("{id:#x} is no stream (any more)"),
            )),
        }
    }

    /// A stream by handle, of the current context.
    pub fn own_stream(&self, caller: &Caller, id: Id) -> Result<Id, Fail> {
        let (context, _) = self.current(caller)?;
        let id = self.stream(caller, id)?;
        match self.streams[&id].context == context {
            true => Ok(id),
            false => Err(mistake(
                ACL_ERROR_RT_STREAM_CONTEXT,
                "the stream is not of this thread's current context",
            )),
        }
    }

    /// Logical number of a stream's device.
    pub fn device_of(&self, stream: Id) -> Option<usize> {
        let context = self.streams.get(&stream)?.context;
        self.contexts.get(&context).map(|context| context.device)
    }

    /// Puts a task at a stream's end. Returns how many tasks the stream has had then.
    pub fn enqueue(&mut self, id: Id, task: NewTask) -> u64 {
        let Some(task) = self.keep(id, task) else {
            return self.tasks_of(id);
        };
        let Some(stream) = self.streams.get_mut(&id) else {
            return 0;
        };
        stream.clock.join(&self.host);
        stream.clock.join(&task.knows);
        let at = Epoch {
            actor: stream.actor,
            tick: stream.clock.advance(stream.actor),
            call: task.call,
        };
        stream.queue.push_back(Task {
            spans: task.spans,
            at,
            clock: stream.clock.clone(),
            work: task.work,
            cost: task.cost,
            ready_at: self.now,
        });
        stream.enqueued += 1;
        let enqueued = stream.enqueued;
        if self.settings.schedule == Schedule::Eager {
            self.run(id, enqueued);
        }
        self.stir();
        enqueued
    }

    /// `aclrtLaunchHostFunc`.
    pub fn call_host(
        &mut self,
        caller: &Caller,
        stream: Id,
        host: HostFunction,
    ) -> Result<(), Fail> {
        let stream = self.own_stream(caller, stream)?;
        self.check_not_capturing(stream)?;
        let task = NewTask {
            call: "aclrtLaunchHostFunc",
            spans: Vec::new(),
            work: Work::Host(host),
            knows: Clock::default(),
            cost: Cost::default(),
        };
        self.enqueue(stream, task);
        Ok(())
    }

    /// What the last task of a stream knows.
    pub fn stream_clock(&self, stream: Id) -> Clock {
        self.streams
            .get(&stream)
            .map(|stream| stream.clock.clone())
            .unwrap_or_default()
    }

    /// Whether a stream has done so many tasks; a stream that is gone has.
    pub fn has_done(&self, stream: Id, tasks: u64) -> bool {
        self.streams
            .get(&stream)
            .is_none_or(|stream| stream.done >= tasks)
    }

    /// Tasks that a stream has had, and those it has done.
    pub fn tasks_of(&self, id: Id) -> u64 {
        self.streams.get(&id).map_or(0, |stream| stream.enqueued)
    }

    fn done(&self, id: Id) -> u64 {
        self.streams.get(&id).map_or(0, |stream| stream.done)
    }

    fn now(&self, id: Id) -> Microseconds {
        self.streams.get(&id).map_or(0.0, |stream| stream.now)
    }

    /// `aclrtStreamAbort`: drops all tasks; waiters get 107023.
    pub fn abort_stream(&mut self, id: Id) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.drop_tasks();
            stream.hung = false;
            stream.error = Some(ACL_ERROR_RT_STREAM_ABORT);
        }
    }

    /// `aclrtSetStreamFailureMode`.
    pub fn stop_on_failure(&mut self, id: Id) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.stops = true;
        }
    }

    /// What the host learnt by waiting for an event.
    pub fn host_learns(&mut self, clock: &Clock) {
        self.host.join(clock);
    }

    /// The call of a task that may touch a span and is not done.
    pub fn pending_on(&self, span: Span) -> Option<&'static str> {
        let tasks = self.streams.values().flat_map(|stream| &stream.queue);
        let mut touching = tasks.filter(|task| task.spans.iter().any(|own| own.meets(&span)));
        touching.next().map(|task| task.at.call)
    }
}

impl Stream {
    fn drop_tasks(&mut self) {
        self.queue.clear();
        self.done = self.enqueued;
    }
}
