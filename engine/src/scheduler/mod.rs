//! Everything the scheduler actor decides: whom to admit, who is next, which device gets it.
//! It spends credits (`credits.rs`) and never sees a block id; what runs in a step is the device's business (`device_core`).

mod device;
mod message;
mod report;

pub use message::{
    Action, Cancelled, DeviceProfile, Refusal, Released, SchedulerLimits, Submission,
};
pub use report::{DeviceView, SchedulerSnapshot, TenantView};

use crate::device_core::{BrokenInvariant, Load};
use crate::executor::LengthLimit;
use crate::fairness::Fairness;
use crate::ids::{DeviceId, Epoch, SeqId};
use crate::placement::{self, Affinity, Candidate};
use crate::queue::WaitingQueue;
use crate::time::Time;
use crate::work::Work;
use device::Device;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A forecast counts only when it is so many times as long as what is allowed: how long answers get is not known.
const CERTAIN: f64 = 1.5;

/// The state of the scheduler. Every call is cheap; after any of them [`tick`](Self::tick) says what to do.
///
/// A sequence is in exactly one place from `submit` to its end: waiting, or on one life of one device.
#[derive(Debug)]
pub struct SchedulerCore {
    limits: SchedulerLimits,
    queue: WaitingQueue,
    devices: BTreeMap<DeviceId, Device>,
    /// The device that holds each sequence.
    device_of: HashMap<SeqId, DeviceId>,
    affinity: Affinity,
    draining: bool,
    /// Devices that are given nothing new by an operator's wish, over all their lives.
    held_back: BTreeSet<DeviceId>,
    /// Devices that serve, start or will start again.
    hoped_for: BTreeSet<DeviceId>,
    /// There were devices, and all were given up.
    abandoned: bool,
}

impl SchedulerCore {
    /// A scheduler without devices. Sequences wait until the first one is up.
    pub fn new(limits: SchedulerLimits) -> Self {
        SchedulerCore {
            queue: WaitingQueue::new(limits.max_queue),
            limits,
            devices: BTreeMap::new(),
            device_of: HashMap::new(),
            affinity: Affinity::default(),
            draining: false,
            held_back: BTreeSet::new(),
            hoped_for: BTreeSet::new(),
            abandoned: false,
        }
    }

    /// A device is being started: as long as it may come, waiting is not in vain.
    pub fn device_expected(&mut self, device: DeviceId) {
        self.hoped_for.insert(device);
        self.abandoned = false;
    }

    /// From now on the device, in whatever life, is given nothing new; what it runs goes on. An interrupted sequence goes elsewhere.
    pub fn hold_back(&mut self, device: DeviceId) {
        self.held_back.insert(device);
    }

    /// The device is given work again.
    pub fn let_on(&mut self, device: DeviceId) {
        self.held_back.remove(&device);
    }

    /// Whether the device is given nothing new.
    pub fn is_held_back(&self, device: DeviceId) -> bool {
        self.held_back.contains(&device)
    }

    /// Changes the bounds: of the queue, and of the sequences that each device runs at once. What waits or runs already stays.
    pub fn set_limits(&mut self, limits: SchedulerLimits, max_running: u32) {
        self.queue.set_limit(limits.max_queue);
        self.limits = limits;
        for device in self.devices.values_mut() {
            device.profile.max_running = max_running;
            device.credits.set_max_running(max_running);
        }
    }

    /// Changes how tenants share the devices.
    pub fn set_fairness(&mut self, fairness: Fairness) {
        self.queue.set_fairness(fairness);
    }

    /// Refuses what would be refused later anyway, for having waited too long, while its client can still go elsewhere.
    fn check_deadline(&self, work: &Work, now: Time) -> Result<(), Refusal> {
        let Some(deadline) = work.queue_deadline else {
            return Ok(());
        };
        let forecast = self.queue.forecast(&work.tenant, work.priority, now);
        let allowed = deadline.since(now);
        match forecast {
            Some(forecast) if forecast > allowed.mul_f64(CERTAIN) => Err(Refusal::TooBusy {
                forecast,
                allowed,
                retry_after: self.queue.retry_after(now),
            }),
            _ => Ok(()),
        }
    }

    /// Takes a sequence into the queue.
    ///
    /// # Errors
    /// Refused at once; nothing was changed then.
    pub fn submit(&mut self, work: Work, how: Submission, now: Time) -> Result<(), Refusal> {
        if self.queue.contains(work.seq) || self.device_of.contains_key(&work.seq) {
            return Err(Refusal::Duplicate(work.seq));
        }
        if self.abandoned {
            return Err(Refusal::NoDevice);
        }
        self.check_length(&work)?;
        match how {
            Submission::Again => self.queue.push_again(work),
            Submission::New if self.draining => return Err(Refusal::Draining),
            Submission::New => {
                self.check_deadline(&work, now)?;
                self.queue.push(work, now)?;
            }
        }
        Ok(())
    }

    /// Refuses what fits none of the known devices. Before the first one is up nothing is known.
    fn check_length(&self, work: &Work) -> Result<(), Refusal> {
        let given = work.len_tokens();
        match self.length_limit() {
            Some(limit) if given >= limit.tokens as usize => Err(Refusal::TooLong {
                given,
                limit: limit.tokens.saturating_sub(1) as usize,
                which: limit.which.as_str(),
            }),
            _ => Ok(()),
        }
    }

    fn length_limit(&self) -> Option<LengthLimit> {
        let devices = self
            .devices
            .values()
            .filter(|device| device.profile.role.takes_new());
        devices
            .map(Device::length_limit)
            .max_by_key(|limit| limit.tokens)
    }

    /// Ends a sequence's claim. Idempotent.
    pub fn cancel(&mut self, seq: SeqId) -> Cancelled {
        if self.queue.remove(seq).is_some() {
            return Cancelled::Waiting;
        }
        match self.device_of.get(&seq) {
            Some(&device) => Cancelled::On {
                device,
                epoch: self.devices[&device].epoch,
            },
            None => Cancelled::Unknown,
        }
    }

    /// A device begins a life. Returns the sequences that an earlier life still held: they were interrupted.
    /// News of a life that is not later than the known one is ignored.
    pub fn device_up(
        &mut self,
        device: DeviceId,
        epoch: Epoch,
        profile: DeviceProfile,
    ) -> Vec<SeqId> {
        if self
            .devices
            .get(&device)
            .is_some_and(|known| epoch <= known.epoch)
        {
            return Vec::new();
        }
        let interrupted = self.interrupt(device);
        self.devices.insert(device, Device::new(epoch, profile));
        self.device_expected(device);
        interrupted
    }

    /// A life of a device ended; it may come back. Returns the sequences it held: they were interrupted and may be
    /// submitted again. News of an earlier life than the known one is ignored.
    pub fn device_down(&mut self, device: DeviceId, epoch: Epoch) -> Vec<SeqId> {
        match self.devices.get_mut(&device) {
            Some(known) if epoch >= known.epoch => {
                known.epoch = epoch;
                known.up = false;
                self.interrupt(device)
            }
            _ => Vec::new(),
        }
    }

    /// A device will not come back. Returns the sequences it held.
    pub fn device_gone(&mut self, device: DeviceId) -> Vec<SeqId> {
        let interrupted = self.interrupt(device);
        self.devices.remove(&device);
        if self.hoped_for.remove(&device) {
            self.abandoned = self.hoped_for.is_empty();
        }
        interrupted
    }

    /// Takes all sequences, and the memory of its cache, from a device.
    fn interrupt(&mut self, device: DeviceId) -> Vec<SeqId> {
        let Some(known) = self.devices.get_mut(&device) else {
            return Vec::new();
        };
        self.affinity.forget(device);
        let held = std::mem::take(&mut known.held);
        for (seq, tenant) in &held {
            self.device_of.remove(seq);
            self.queue.left_service(tenant, 0);
        }
        held.into_keys().collect()
    }

    /// A device's report. It must come whenever the device's load changed, also when a cancellation left it idle: credits are
    /// what was last reported. Ignored for any life but the present one.
    pub fn load(&mut self, device: DeviceId, epoch: Epoch, load: Load) {
        if let Some(known) = self.present_life(device, epoch) {
            known.credits.report(load);
        }
    }

    /// A sequence left a device. Returns false (and changes nothing) for stale news.
    pub fn released(&mut self, released: Released) -> bool {
        let Released {
            device,
            epoch,
            seq,
            generated_tokens,
        } = released;
        let Some(known) = self.present_life(device, epoch) else {
            return false;
        };
        let Some(tenant) = known.held.remove(&seq) else {
            return false;
        };
        known.credits.release(seq);
        self.device_of.remove(&seq);
        self.queue.left_service(&tenant, generated_tokens);
        true
    }

    fn present_life(&mut self, device: DeviceId, epoch: Epoch) -> Option<&mut Device> {
        self.devices
            .get_mut(&device)
            .filter(|known| known.up && known.epoch == epoch)
    }

    /// What is to be done now: refusals of what waited too long, assignments within the credits.
    pub fn tick(&mut self, now: Time) -> Vec<Action> {
        let mut actions = Vec::new();
        let refuse = |work: Work, why| Action::Refuse { seq: work.seq, why };
        for work in self.queue.remove_expired(now) {
            let waited = now.since(work.arrived);
            actions.push(refuse(work, Refusal::QueueTimeout { waited }));
        }
        if self.abandoned {
            let rest = self.queue.remove_all();
            actions.extend(rest.into_iter().map(|work| refuse(work, Refusal::NoDevice)));
        }
        while let Some(first) = self.queue.first() {
            let seq = first.seq;
            if let Err(why) = self.check_length(first) {
                self.queue.remove(seq);
                actions.push(Action::Refuse { seq, why });
                continue;
            }
            let Some(device) = self.place(first) else {
                break;
            };
            actions.extend(self.assign_first(device, now));
        }
        actions
    }

    /// The device for the work, `None` if it has to wait. Nothing behind it is looked at: whoever is first is served first.
    fn place(&self, work: &Work) -> Option<DeviceId> {
        let able = self
            .devices
            .iter()
            .filter(|(id, device)| !self.held_back.contains(id) && device.takes(work));
        let candidates: Vec<Candidate> = able
            .map(|(&device, known)| Candidate {
                device,
                sequences: known.credits.sequences(),
                blocks: known.credits.blocks(),
            })
            .collect();
        let cached = match candidates.len() {
            0 | 1 => None,
            _ => self.affinity.find(&work.prompt, work.cache_salt),
        };
        placement::choose(&candidates, cached)
    }

    fn assign_first(&mut self, device: DeviceId, now: Time) -> Option<Action> {
        let work = self.queue.pop_first(now)?;
        if self.devices.len() > 1 {
            self.affinity.note(&work.prompt, work.cache_salt, device);
        }
        let known = self.devices.get_mut(&device)?;
        known.credits.promise(work.seq, work.len_tokens());
        known.held.insert(work.seq, Arc::clone(&work.tenant));
        self.device_of.insert(work.seq, device);
        let epoch = known.epoch;
        Some(Action::Assign {
            device,
            epoch,
            work,
        })
    }

    /// When [`tick`](Self::tick) must be called at the latest, though nothing else happens.
    pub fn next_deadline(&self) -> Option<Time> {
        self.queue.next_deadline()
    }

    /// Takes no new sequences from now on; what was admitted goes on.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether [`drain`](Self::drain) was called.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether no sequence waits or runs.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.device_of.is_empty()
    }

    /// Sequences in the queue.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Sequences on devices.
    pub fn running(&self) -> usize {
        self.device_of.len()
    }

    /// Longest sequence, prompt and output together, that some device can hold; `None` before the first device was up.
    pub fn longest_sequence(&self) -> Option<u32> {
        self.length_limit().map(|limit| limit.tokens)
    }

    /// A view for people.
    pub fn snapshot(&self) -> SchedulerSnapshot {
        let tenants = self
            .queue
            .tenants()
            .map(|(tenant, waiting, running, served_tokens)| TenantView {
                tenant: tenant.to_owned(),
                waiting,
                running,
                served_tokens,
            });
        let devices = self.devices.iter().map(|(&device, known)| DeviceView {
            device,
            epoch: known.epoch,
            up: known.up,
            held_back: self.held_back.contains(&device),
            role: known.profile.role,
            running: known.held.len(),
            credit_blocks: known.credits.blocks(),
            load: *known.credits.load(),
        });
        SchedulerSnapshot {
            draining: self.draining,
            waiting: self.waiting(),
            max_queue: self.limits.max_queue,
            running: self.running(),
            tenants: tenants.collect(),
            devices: devices.collect(),
        }
    }

    /// Checks every invariant.
    ///
    /// # Errors
    /// The first one that does not hold.
    pub fn check(&self) -> Result<(), BrokenInvariant> {
        let broken = |what: String| Err(BrokenInvariant(what));
        let held: usize = self.devices.values().map(|device| device.held.len()).sum();
        if held != self.running() {
            return broken(format!(
                "devices hold {held} sequences, not {}",
                self.running()
            ));
        }
        for (seq, device) in &self.device_of {
            if self.queue.contains(*seq) {
                return broken(format!("sequence {seq} waits and runs"));
            }
            if !self
                .devices
                .get(device)
                .is_some_and(|known| known.up && known.held.contains_key(seq))
            {
                return broken(format!("device {device} does not hold sequence {seq}"));
            }
        }
        let in_service: usize = self.queue.tenants().map(|(_, _, running, _)| running).sum();
        if in_service != held {
            return broken(format!(
                "tenants have {in_service} sequences in service, not {held}"
            ));
        }
        Ok(())
    }
}
