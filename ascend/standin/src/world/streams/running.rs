//! Running a stream's tasks, in order, when somebody waits for them, and what a failed one leaves behind.

use crate::caller::Wait;
use crate::fail::{Fail, failure};
use crate::fault::Fault;
use crate::host_function;
use crate::task::{Access, Id, Reach, Task, Work};
use crate::timing::{task_time, work_time};
use crate::world::World;
use ropeteam_acl_sys::code::*;

impl World {
    /// Runs a stream until so many tasks are done, with what they wait for.
    pub fn run(&mut self, id: Id, tasks: u64) -> Wait {
        loop {
            self.stir();
            if self.has_done(id, tasks) {
                break;
            }
            let Some(stream) = self.streams.get_mut(&id) else {
                break;
            };
            if stream.hung {
                return Wait::Hung;
            }
            let Some(task) = stream.queue.front().cloned() else {
                break;
            };
            if let Work::Wait { stream, tasks, .. } = task.work
                && !self.has_done(stream, tasks)
            {
                if let Wait::Hung = self.run(stream, tasks) {
                    return Wait::Hung;
                }
                // Where streams are mixed, this one may have got on meanwhile.
                continue;
            }
            if let Wait::Hung = self.run_one(id, &task) {
                return Wait::Hung;
            }
        }
        Wait::Done
    }

    /// Where streams are mixed: lets any of them do its next task, now and then.
    pub(super) fn stir(&mut self) {
        // Taken away while it is thrown, since what it starts would throw it again.
        let Some(mut die) = self.die.take() else {
            return;
        };
        die ^= die << 13;
        die ^= die >> 7;
        die ^= die << 17;
        let busy = self
            .streams
            .iter()
            .filter(|(_, stream)| !stream.queue.is_empty());
        let busy: Vec<Id> = busy.map(|(id, _)| *id).collect();
        let thrown = (die >> 16) as usize;
        if thrown.is_multiple_of(2)
            && let Some(id) = busy.get((thrown >> 8) % busy.len().max(1))
        {
            self.run(*id, self.done(*id) + 1);
        }
        self.die = Some(die);
    }

    /// Runs the task at a stream's head and takes it away.
    fn run_one(&mut self, id: Id, task: &Task) -> Wait {
        let device = self.device_of(id).unwrap_or(0);
        let outcome = match &task.work {
            Work::Run(_) => match self.settings.fault_at("task") {
                Some(Fault::Die) => std::process::abort(),
                Some(Fault::Hang) => {
                    if let Some(stream) = self.streams.get_mut(&id) {
                        stream.hung = true;
                    }
                    return Wait::Hung;
                }
                Some(Fault::Code(code)) => Err(failure(code, "a fault was asked for")),
                None => self.compute(id, device, task),
            },
            Work::Host(host) => {
                host_function::run(*host, &mut self.violations);
                Ok(())
            }
            Work::Record(event) => {
                let (tasks, now) = (self.done(id) + 1, self.now(id).max(task.ready_at));
                self.pass(*event, id, tasks, now);
                Ok(())
            }
            Work::Reset(event) => {
                self.unmark(*event);
                Ok(())
            }
            Work::Wait { event, .. } => {
                let since = self.passed_at(*event).unwrap_or(0.0);
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.now = stream.now.max(since);
                }
                Ok(())
            }
        };
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.queue.pop_front();
            stream.done += 1;
        }
        if let Err(fail) = outcome {
            self.fail_task(id, device, task.at.call, fail);
        }
        Wait::Done
    }

    fn compute(&mut self, id: Id, device: usize, task: &Task) -> Result<(), Fail> {
        if let Some(code) = self.devices[device].broken {
            return Err(failure(code, "the device is broken"));
        }
        let Work::Run(run) = &task.work else {
            return Ok(());
        };
        let mut access = Access {
            memory: &mut self.memory,
            violations: &mut self.violations,
            reach: Reach {
                device: Some(self.devices[device].physical),
                peers: &self.peers,
            },
            at: task.at,
            clock: &task.clock,
            bad_address: ACL_ERROR_RT_AICORE_EXCEPTION,
            owners: &self.owners,
            readers: Vec::new(),
        };
        let outcome = match self.settings.computes {
            true => run(&mut access),
            false => Ok(()),
        };
        self.busy += work_time(&self.settings, task.cost);
        let time = task_time(&self.settings, task.cost);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.now = stream.now.max(task.ready_at) + time;
        }
        outcome
    }

    /// A task failed: its stream says so from now on, and a device that fails stays broken until it is reset.
    fn fail_task(&mut self, id: Id, device: usize, call: &'static str, fail: Fail) {
        if fail.mistake {
            let text = format!("{} (code {})", fail.text, fail.code);
            self.violations.report(call, &text);
        }
        if (507_000..508_000).contains(&fail.code) {
            self.devices[device].broken = Some(fail.code);
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.error.get_or_insert(fail.code);
        if stream.stops {
            let context = stream.context;
            for stream in self.streams.values_mut().filter(|s| s.context == context) {
                stream.stops = true;
                stream.drop_tasks();
                stream.error.get_or_insert(fail.code);
            }
        }
    }

    /// Waits for all tasks of a stream.
    pub fn finish_stream(&mut self, id: Id) -> Result<Wait, Fail> {
        self.check_not_capturing(id)?;
        if let Wait::Hung = self.run(id, self.tasks_of(id)) {
            return Ok(Wait::Hung);
        }
        let clock = self.stream_clock(id);
        self.host.join(&clock);
        self.wake = Some(self.now(id));
        self.check_stream(id)?;
        Ok(Wait::Done)
    }

    /// The error that a stream or its device carries.
    pub fn check_stream(&self, id: Id) -> Result<(), Fail> {
        let own = self.streams.get(&id).and_then(|stream| stream.error);
        let device = self.device_of(id).map(|number| &self.devices[number]);
        match own.or(device.and_then(|device| device.broken)) {
            Some(code) => Err(failure(code, "a task of the stream or its device failed")),
            None => Ok(()),
        }
    }

    /// Waits for all streams of a device.
    pub fn finish_device(&mut self, number: usize) -> Result<Wait, Fail> {
        let ids: Vec<Id> = self.streams.keys().copied().collect();
        for id in ids {
            if self.device_of(id) == Some(number)
                && let Wait::Hung = self.finish_stream(id)?
            {
                return Ok(Wait::Hung);
            }
        }
        Ok(Wait::Done)
    }

    /// `aclrtStreamQuery`: lets the stream do one task, and says whether all are done.
    pub fn query_stream(&mut self, id: Id) -> Result<bool, Fail> {
        self.check_not_capturing(id)?;
        let (done, enqueued) = (self.done(id), self.tasks_of(id));
        self.run(id, (done + 1).min(enqueued));
        self.check_stream(id)?;
        let complete = self.has_done(id, enqueued);
        if complete {
            let clock = self.stream_clock(id);
            self.host.join(&clock);
        }
        Ok(complete)
    }
}
