//! Ring 1: the scheduler's and the devices' state machines in a loop, without actors. A seed drives arrivals, lengths, tenants, aborts,
//! deadlines, late masks, slow steps, losses of devices, changed limits, drained devices, and how late each message comes. After every event all
//! invariants are checked; in the end every sequence has ended once, with the tokens it has alone, and everything is free.
//!
//! `host.rs` is a device with the ways to and from it, `budget.rs` what its steps may hold, `session.rs` the truth of a sequence.

mod budget;
mod host;
mod session;
mod winding;

use crate::dice::Dice;
use host::{Host, ToScheduler};
use ropeteam_engine::batching::{BatchLimits, SelectBatch};
use ropeteam_engine::executor::Capacity;
use ropeteam_engine::fairness::{Class, Fairness};
use ropeteam_engine::ids::{DeviceId, SeqId};
use ropeteam_engine::placement::Role;
use ropeteam_engine::scheduler::{
    Action, Cancelled, DeviceProfile, Refusal, SchedulerCore, SchedulerLimits, Submission,
};
use ropeteam_engine::time::Time;
use session::Session;
use std::collections::BTreeMap;
use std::time::Duration;

/// A world that has not come to rest after so many events is stuck.
const EVENTS_MAX: u64 = 200_000;

/// What happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events that were handled.
    pub events: u64,
    /// Sequences that arrived.
    pub arrived: usize,
    /// Those that were refused at once.
    pub refused: usize,
    /// Those that waited too long.
    pub expired: usize,
    /// Those that were aborted.
    pub aborted: usize,
    /// Lives that ended.
    pub losses: u32,
    /// Devices that were given up.
    pub given_up: u32,
    /// Sequences submitted again.
    pub replays: usize,
    /// Sequences preempted.
    pub preemptions: u64,
}

/// Lives through the world of that seed.
///
/// # Errors
/// The first promise that was broken, in words.
pub fn run(seed: u64) -> Result<Summary, String> {
    let mut world = World::new(seed);
    while world.summary.events < EVENTS_MAX {
        world.summary.events += 1;
        if !world.event()? {
            return world.at_rest();
        }
    }
    Err(format!(
        "not at rest after {EVENTS_MAX} events: {:?}",
        world.scheduler.snapshot()
    ))
}

struct World {
    dice: Dice,
    now: Time,
    scheduler: SchedulerCore,
    hosts: Vec<Host>,
    sessions: BTreeMap<SeqId, Session>,
    capacity: Capacity,
    limits: BatchLimits,
    /// Arrivals, latest first.
    arrivals: Vec<Time>,
    /// Operators act and devices fail until then.
    troubled_until: Time,
    summary: Summary,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let capacity = Capacity {
            // The longest sequence just fits.
            blocks: 14 + dice.below(30) as u32,
            block_size: 4,
            max_model_len: 64,
            max_step_tokens: 16 + dice.below(64) as u32,
            max_logits_rows: 16,
            vocab: 28,
        };
        let limits = limits(&mut dice);
        let prefix_cache = !dice.one_in(4);
        let devices = 1 + dice.below(3) as u16;
        let hosts = (0..devices)
            .map(|id| {
                let (capacity, limits) = (capacity.clone(), limits.clone());
                Host::new(DeviceId(id), capacity, limits, prefix_cache)
            })
            .collect();
        let mut arrivals: Vec<Time> = (0..1 + dice.below(30))
            .map(|_| Time(Duration::from_millis(dice.below(800))))
            .collect();
        arrivals.sort_by(|a, b| b.cmp(a));
        let max_queue = if dice.one_in(4) { 3 } else { 1000 };
        let mut world = World {
            now: Time::default(),
            scheduler: SchedulerCore::new(SchedulerLimits { max_queue }),
            hosts,
            sessions: BTreeMap::new(),
            capacity,
            limits,
            arrivals,
            troubled_until: Time(Duration::from_millis(1000)),
            summary: Summary::default(),
            dice,
        };
        for host in &mut world.hosts {
            world.scheduler.device_expected(host.id);
            host.start(world.now);
        }
        world
    }

    /// Handles the next event; false when there is none.
    fn event(&mut self) -> Result<bool, String> {
        let arrival = self.arrivals.last().copied();
        let next = self
            .hosts
            .iter()
            .filter_map(Host::next_at)
            .chain(arrival)
            .chain(self.scheduler.next_deadline())
            .min();
        let Some(next) = next else {
            // What an operator held back goes on when the trouble is over.
            let quiet = self.now >= self.troubled_until;
            self.now = self.now.max(self.troubled_until);
            self.settle()?;
            return Ok(!quiet);
        };
        self.now = self.now.max(next);
        if arrival.is_some_and(|at| at <= self.now) {
            self.arrivals.pop();
            self.arrive()?;
        } else {
            self.hosts_act()?;
        }
        if self.now < self.troubled_until && self.dice.one_in(12) {
            self.trouble()?;
        }
        self.settle()?;
        self.check()?;
        Ok(true)
    }

    fn arrive(&mut self) -> Result<(), String> {
        let seq = SeqId(self.summary.arrived as u64);
        self.summary.arrived += 1;
        let session = Session::new(seq, &mut self.dice, self.now);
        let work = session.work.clone();
        self.sessions.insert(seq, session);
        match self.scheduler.submit(work, Submission::New, self.now) {
            Ok(()) => Ok(()),
            Err(why) => self.refuse(seq, why),
        }
    }

    /// Ends a sequence that will not be served, if there is a good reason.
    fn refuse(&mut self, seq: SeqId, why: Refusal) -> Result<(), String> {
        let session = self.sessions.get(&seq).ok_or("an unknown sequence")?;
        let deadline = session.work.queue_deadline;
        let (counted, right) = match why {
            Refusal::QueueFull { .. } | Refusal::TooLong { .. } => {
                (&mut self.summary.refused, true)
            }
            Refusal::Draining => (&mut self.summary.refused, self.scheduler.is_draining()),
            Refusal::NoDevice => (&mut self.summary.refused, self.summary.given_up > 0),
            Refusal::TooBusy { .. } => (&mut self.summary.expired, deadline.is_some()),
            Refusal::QueueTimeout { .. } => {
                let passed = deadline.is_some_and(|deadline| deadline <= self.now);
                (&mut self.summary.expired, passed)
            }
            Refusal::Duplicate(_) => (&mut self.summary.refused, false),
        };
        *counted += 1;
        match right {
            true => self.end(seq),
            false => Err(format!("sequence {seq} was refused: {why}")),
        }
    }

    fn end(&mut self, seq: SeqId) -> Result<(), String> {
        self.sessions
            .get_mut(&seq)
            .ok_or("an unknown sequence")?
            .end()
    }

    /// One host whose time has come does its part: a message is heard, or a step ends.
    fn hosts_act(&mut self) -> Result<(), String> {
        for i in 0..self.hosts.len() {
            if self.hosts[i].next_at().is_none_or(|at| at > self.now) {
                continue;
            }
            if let Some(message) = self.hosts[i].heard_by_scheduler(self.now) {
                return self.hear(self.hosts[i].id, message);
            }
            let host = &mut self.hosts[i];
            host.take_orders(self.now, &mut self.dice)?;
            host.end_step(self.now, &mut self.dice, &mut self.sessions)?;
            host.start(self.now);
            return Ok(());
        }
        Ok(())
    }

    fn hear(&mut self, device: DeviceId, message: ToScheduler) -> Result<(), String> {
        let lost = match message {
            ToScheduler::Up(epoch) => {
                let profile = DeviceProfile {
                    capacity: self.capacity.clone(),
                    max_running: self.limits.max_decode_batch_size,
                    role: Role::Mixed,
                };
                self.scheduler.device_up(device, epoch, profile)
            }
            ToScheduler::Down(epoch) => self.scheduler.device_down(device, epoch),
            ToScheduler::Gone => self.scheduler.device_gone(device),
            ToScheduler::Load(epoch, load) => {
                self.scheduler.load(device, epoch, load);
                return Ok(());
            }
            ToScheduler::Released(released) => {
                self.scheduler.released(released);
                return Ok(());
            }
        };
        for seq in lost {
            let session = self
                .sessions
                .get(&seq)
                .ok_or("an unknown sequence was lost")?;
            if session.ended {
                continue;
            }
            let work = session.work.clone();
            self.summary.replays += 1;
            match self.scheduler.submit(work, Submission::Again, self.now) {
                Ok(()) => {}
                Err(Refusal::NoDevice) => self.refuse(seq, Refusal::NoDevice)?,
                Err(why) => return Err(format!("sequence {seq}, again, was refused: {why}")),
            }
        }
        Ok(())
    }

    /// A client leaves, a device fails, an operator changes something.
    fn trouble(&mut self) -> Result<(), String> {
        let host = self.dice.below(self.hosts.len() as u64) as usize;
        match self.dice.below(10) {
            0..3 => return self.abort(),
            3 => self.hosts[host].kill(self.now, &mut self.dice),
            4 => {
                self.limits = limits(&mut self.dice);
                let bounds = SchedulerLimits {
                    max_queue: 3 + self.dice.below(40) as usize,
                };
                let max_running = self.limits.max_decode_batch_size;
                self.scheduler.set_limits(bounds, max_running);
                for host in &mut self.hosts {
                    host.reconfigure(&self.limits);
                }
            }
            5 => {
                let class = Class {
                    weight: 1 + self.dice.below(4) as u32,
                    max_running: Some(1 + self.dice.below(3) as usize),
                };
                let tenants = BTreeMap::from([("alice".to_owned(), class)]);
                self.scheduler.set_fairness(Fairness {
                    tenants,
                    ..Fairness::default()
                });
            }
            6 => self.scheduler.hold_back(self.hosts[host].id),
            7 => self.give_up_or_revive(host),
            8 if self.dice.one_in(20) => self.scheduler.drain(),
            _ => self.scheduler.let_on(self.hosts[host].id),
        }
        Ok(())
    }

    /// A device has failed too often, or an operator has mended one. The last one is rarely given up.
    fn give_up_or_revive(&mut self, host: usize) {
        if self.hosts[host].is_gone() {
            self.scheduler.device_expected(self.hosts[host].id);
            self.hosts[host].revive(self.now);
        } else if self.hosts.iter().filter(|host| !host.is_gone()).count() > 1
            || self.dice.one_in(8)
        {
            self.summary.given_up += 1;
            self.hosts[host].give_up(self.now, &mut self.dice);
        }
    }

    fn abort(&mut self) -> Result<(), String> {
        let open: Vec<SeqId> = self
            .sessions
            .values()
            .filter(|s| !s.ended)
            .map(|s| s.work.seq)
            .collect();
        if open.is_empty() {
            return Ok(());
        }
        let seq = open[self.dice.below(open.len() as u64) as usize];
        self.summary.aborted += 1;
        if let Cancelled::On { device, epoch } = self.scheduler.cancel(seq) {
            self.hosts[device.0 as usize].order_cancel(epoch, seq, self.now, &mut self.dice);
        }
        self.end(seq)
    }

    fn settle(&mut self) -> Result<(), String> {
        // Trouble over, nobody is to wait for ever.
        if self.now >= self.troubled_until {
            for host in &self.hosts {
                self.scheduler.let_on(host.id);
            }
        }
        for action in self.scheduler.tick(self.now) {
            match action {
                Action::Assign {
                    device,
                    epoch,
                    work,
                } => {
                    self.hosts[device.0 as usize].order_assign(
                        epoch,
                        work,
                        self.now,
                        &mut self.dice,
                    );
                }
                Action::Refuse { seq, why } => self.refuse(seq, why)?,
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        self.scheduler
            .check()
            .map_err(|broken| broken.to_string())?;
        self.hosts.iter().try_for_each(Host::check)?;
        self.check_credits()
    }

    /// Where nothing is on its way, the scheduler knows exactly what a device has left.
    fn check_credits(&self) -> Result<(), String> {
        let views = self.scheduler.snapshot().devices;
        for host in &self.hosts {
            let Some((epoch, load)) = host.settled() else {
                continue;
            };
            let view = views.iter().find(|view| view.device == host.id);
            let view = view.ok_or("an unknown device")?;
            let exact = view.load == load && view.credit_blocks == load.blocks_available();
            if view.epoch != epoch || !exact {
                return Err(format!("{load:?} in life {epoch} is taken for {view:?}"));
            }
        }
        Ok(())
    }

    /// Nothing moves any more: everything must have ended, and everything be free.
    fn at_rest(mut self) -> Result<Summary, String> {
        if let Some(open) = self.sessions.values().find(|s| !s.ended) {
            return Err(format!("sequence {} waits for ever", open.work.seq));
        }
        if !self.scheduler.is_idle() {
            return Err(format!(
                "the scheduler is not idle: {:?}",
                self.scheduler.snapshot()
            ));
        }
        for host in &self.hosts {
            self.summary.preemptions += host.preemptions();
            self.summary.losses += host.losses();
            host.is_free()?;
        }
        for view in self.scheduler.snapshot().devices {
            if view.credit_blocks != self.capacity.blocks {
                return Err(format!("credits did not come back: {view:?}"));
            }
        }
        Ok(self.summary)
    }
}

fn limits(dice: &mut Dice) -> BatchLimits {
    BatchLimits {
        max_prefill_batch_size: 1 + dice.below(4) as u32,
        max_prefill_tokens: 8 + dice.below(60) as u32,
        max_decode_batch_size: 1 + dice.below(6) as u32,
        select: match dice.one_in(2) {
            true => SelectBatch::PrefillFirst,
            false => SelectBatch::DecodeFirst,
        },
        continuous_batching: !dice.one_in(5),
        chunk_tokens: 4 + dice.below(20) as u32,
        speculate_rows: if dice.one_in(3) { 8 } else { 0 },
    }
}
