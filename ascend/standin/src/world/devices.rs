//! Start and end of the process, and devices with the references that threads hold on them.

use super::{Process, World};
use crate::caller::Caller;
use crate::fail::{Fail, failure, mistake};
use crate::task::Id;
use crate::visible::visible;
use ropeteam_acl_sys::code::*;

/// A device that the process sees.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its number in the machine.
    pub physical: u32,
    /// `aclrtSetDevice` less `aclrtResetDevice`.
    pub references: u32,
    /// Its default context, while there are references.
    pub default_context: Option<Id>,
    /// The code that everything on it answers since it broke.
    pub broken: Option<i32>,
}

impl World {
    /// `aclInit`.
    pub fn init(&mut self) -> Result<(), Fail> {
        if self.process == Process::Running {
            return Err(failure(ACL_ERROR_REPEAT_INITIALIZE, "it runs already"));
        }
        self.process = Process::Running;
        let list = std::env::var("ASCEND_RT_VISIBLE_DEVICES").ok();
        let physical = visible(self.settings.devices, list.as_deref());
        let device = |physical| Device {
            physical,
            references: 0,
            default_context: None,
            broken: None,
        };
        self.devices = physical.into_iter().map(device).collect();
        Ok(())
    }

    /// `aclFinalize`: everything must have been given back.
    pub fn finalize(&mut self) -> Result<(), Fail> {
        for number in 0..self.devices.len() {
            if self.devices[number].references > 0 {
                let text = format!("device {number} was not reset");
                self.violations.report("aclFinalize", &text);
                self.end_device(number);
            }
        }
        let pinned = self.memory.pinned();
        if pinned > 0 {
            let text = format!("{pinned} pinned allocations were not freed");
            self.violations.report("aclFinalize", &text);
        }
        let executors = [("executors", self.executors.len())];
        for (what, count) in self.objects.alive().into_iter().chain(executors) {
            if count > 0 {
                let text = format!("{count} {what} were not destroyed");
                self.violations.report("aclFinalize", &text);
            }
        }
        self.process = Process::Ended;
        Ok(())
    }

    /// A visible device's number as an index.
    pub fn device_number(&self, device: i32) -> Result<usize, Fail> {
        let number = usize::try_from(device).ok();
        let number = number.filter(|number| *number < self.devices.len());
        number.ok_or_else(|| {
            let count = self.devices.len();
            let text = format!("there is no device {device}; {count} are visible");
            match count {
                0 => failure(ACL_ERROR_RT_NO_DEVICE, text),
                _ => mistake(ACL_ERROR_RT_INVALID_DEVICEID, text),
            }
        })
    }

    /// `aclrtSetDevice`.
    pub fn set_device(&mut self, caller: &mut Caller, device: i32) -> Result<(), Fail> {
        let number = self.device_number(device)?;
        if self.devices[number].default_context.is_none() {
            let context = self.new_context(number, true);
            self.devices[number].default_context = Some(context);
        }
        self.devices[number].references += 1;
        caller.context = self.devices[number].default_context;
        Ok(())
    }

    /// `aclrtResetDevice`, and with `force` `aclrtResetDeviceForce`.
    pub fn reset_device(&mut self, device: i32, force: bool) -> Result<(), Fail> {
        let number = self.device_number(device)?;
        if self.devices[number].references == 0 {
            return Err(mistake(
                ACL_ERROR_RT_PARAM_INVALID,
                format!("device {device} is not set"),
            ));
        }
        self.devices[number].references -= 1;
        if force {
            self.devices[number].references = 0;
        }
        if self.devices[number].references == 0 {
            if !force {
                self.report_leaks(number);
            }
            self.end_device(number);
        }
        Ok(())
    }

    /// What is still alive on a device that is given back.
    fn report_leaks(&mut self, number: usize) {
        let contexts = self.contexts_of(number);
        let explicit = contexts
            .iter()
            .filter(|id| !self.contexts[*id].is_default)
            .count();
        let on_it = |context: &Id| contexts.contains(context);
        let streams = self.streams.values();
        let streams = streams.filter(|s| on_it(&s.context) && !s.is_default);
        let events = self.events.values().filter(|e| on_it(&e.context));
        let (streams, events) = (streams.count(), events.count());
        let memory = self.memory.of_device(self.devices[number].physical).len();
        let counts = [
            ("contexts", explicit),
            ("streams", streams),
            ("events", events),
            ("allocations", memory),
        ];
        for (what, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            let text = format!("{count} {what} of device {number} are still alive");
            self.violations.report("aclrtResetDevice", &text);
        }
    }

    fn contexts_of(&self, number: usize) -> Vec<Id> {
        let contexts = self.contexts.iter();
        let own = contexts.filter(|(_, context)| context.device == number);
        own.map(|(id, _)| *id).collect()
    }

    /// Drops everything on a device; it is whole again.
    fn end_device(&mut self, number: usize) {
        let contexts = self.contexts_of(number);
        self.streams
            .retain(|_, stream| !contexts.contains(&stream.context));
        self.events
            .retain(|_, event| !contexts.contains(&event.context));
        self.contexts.retain(|id, _| !contexts.contains(id));
        for address in self.memory.of_device(self.devices[number].physical) {
            self.memory.free(address);
        }
        self.devices[number].default_context = None;
        self.devices[number].references = 0;
        self.devices[number].broken = None;
    }
}
