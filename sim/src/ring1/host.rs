//! A device with its lives, and the ways to and from it: messages come in order, each as late as the dice want.

use super::budget;
use super::session::{MODEL_SEED, Session};
use crate::dice::Dice;
use crate::executor::SimExecutor;
use ropeteam_engine::batching::BatchLimits;
use ropeteam_engine::device_core::{DeviceCore, Load};
use ropeteam_engine::executor::{Capacity, StepExecutor};
use ropeteam_engine::ids::{DeviceId, Epoch, SeqId};
use ropeteam_engine::plan::{StepOutput, StepPlan};
use ropeteam_engine::scheduler::Released;
use ropeteam_engine::time::Time;
use ropeteam_engine::work::Work;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// What the scheduler is told.
pub(super) enum ToScheduler {
    Up(Epoch),
    Down(Epoch),
    /// It will not come back by itself.
    Gone,
    Load(Epoch, Load),
    Released(Released),
}

enum Order {
    Assign(Epoch, Work),
    Cancel(Epoch, SeqId),
}

/// A way on which nothing overtakes.
struct Way<T>(VecDeque<(Time, T)>);

impl<T> Way<T> {
    fn send(&mut self, message: T, now: Time, dice: &mut Dice) {
        let last = self.0.back().map_or(now, |(at, _)| *at);
        // Most come at once, some after several steps.
        let late = if dice.one_in(5) {
            dice.below(60)
        } else {
            dice.below(2)
        };
        self.0
            .push_back(((now + Duration::from_millis(late)).max(last), message));
    }

    fn next_at(&self) -> Option<Time> {
        self.0.front().map(|(at, _)| *at)
    }

    fn receive(&mut self, now: Time) -> Option<T> {
        let due = self.next_at().is_some_and(|at| at <= now);
        due.then(|| self.0.pop_front())
            .flatten()
            .map(|(_, message)| message)
    }
}

/// One device.
pub(super) struct Host {
    pub id: DeviceId,
    prefix_cache: bool,
    capacity: Capacity,
    limits: BatchLimits,
    epoch: Epoch,
    /// Given up: nobody starts it but an operator.
    gone: bool,
    life: Option<Life>,
    /// When the next life begins; only without one.
    starts_at: Time,
    orders: Way<Order>,
    /// From the device, and from its supervisor: either may overtake the other.
    news: [Way<ToScheduler>; 2],
    preemptions: u64,
    losses: u32,
}

struct Life {
    core: DeviceCore,
    executor: SimExecutor,
    output: StepOutput,
    /// The step under way, and when it ends.
    step: Option<(Time, StepPlan)>,
    reported: Load,
}

impl Host {
    pub fn new(id: DeviceId, capacity: Capacity, limits: BatchLimits, prefix_cache: bool) -> Self {
        let way = || Way(VecDeque::new());
        Host {
            id,
            prefix_cache,
            capacity,
            limits,
            epoch: Epoch(0),
            gone: false,
            life: None,
            starts_at: Time::default(),
            orders: Way(VecDeque::new()),
            news: [way(), way()],
            preemptions: 0,
            losses: 0,
        }
    }

    /// When it has something to do next.
    pub fn next_at(&self) -> Option<Time> {
        let news = self.news.iter().filter_map(Way::next_at);
        let step = self.life.as_ref().and_then(|life| life.step.as_ref());
        let step = step.map(|(at, _)| *at);
        let start = self.awaits_life().then_some(self.starts_at);
        news.chain(self.orders.next_at())
            .chain(step)
            .chain(start)
            .min()
    }

    fn awaits_life(&self) -> bool {
        self.life.is_none() && !self.gone
    }

    /// Whether it was given up.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Begins the next life, if it is time for one.
    pub fn start(&mut self, now: Time) {
        if !self.awaits_life() || now < self.starts_at {
            return;
        }
        self.epoch = Epoch(self.epoch.0 + 1);
        let capacity = self.capacity.clone();
        let core = DeviceCore::new(self.limits.clone(), capacity.clone(), self.prefix_cache);
        self.life = Some(Life {
            reported: core.load(),
            core,
            executor: SimExecutor::new(capacity, MODEL_SEED),
            output: StepOutput::default(),
            step: None,
        });
        let up = ToScheduler::Up(self.epoch);
        self.news[1].0.push_back((now, up));
    }

    /// Ends the life, in the middle of whatever it does.
    pub fn kill(&mut self, now: Time, dice: &mut Dice) {
        if let Some(life) = self.life.take() {
            self.losses += 1;
            self.preemptions += life.core.snapshot().preemptions_total;
            self.news[1].send(ToScheduler::Down(self.epoch), now, dice);
            // The device says so itself, too: perhaps long after its next life has begun.
            if dice.one_in(2) {
                self.news[0].send(ToScheduler::Down(self.epoch), now, dice);
            }
            self.starts_at = now + Duration::from_millis(dice.below(80));
        }
    }

    /// Gives it up: no life follows.
    pub fn give_up(&mut self, now: Time, dice: &mut Dice) {
        self.kill(now, dice);
        self.gone = true;
        self.news[1].send(ToScheduler::Gone, now, dice);
    }

    /// An operator starts it again after it was given up, as soon as the supervisor's word of that is heard.
    pub fn revive(&mut self, now: Time) {
        self.gone = false;
        self.starts_at = self.news[1].0.back().map_or(now, |(at, _)| *at);
    }

    pub fn reconfigure(&mut self, limits: &BatchLimits) {
        self.limits = limits.clone();
        if let Some(life) = &mut self.life {
            life.core.set_limits(limits.clone());
        }
    }

    pub fn order_assign(&mut self, epoch: Epoch, work: Work, now: Time, dice: &mut Dice) {
        self.orders.send(Order::Assign(epoch, work), now, dice);
    }

    pub fn order_cancel(&mut self, epoch: Epoch, seq: SeqId, now: Time, dice: &mut Dice) {
        self.orders.send(Order::Cancel(epoch, seq), now, dice);
    }

    /// What the scheduler hears next.
    pub fn heard_by_scheduler(&mut self, now: Time) -> Option<ToScheduler> {
        self.news.iter_mut().find_map(|way| way.receive(now))
    }

    /// Carries out what has come.
    pub fn take_orders(&mut self, now: Time, dice: &mut Dice) -> Result<(), String> {
        while let Some(order) = self.orders.receive(now) {
            let Some(life) = &mut self.life else {
                continue;
            };
            match order {
                Order::Assign(epoch, work) if epoch == self.epoch => {
                    let seq = work.seq;
                    if life.core.assign(work).is_err() {
                        self.release(seq, 0, now, dice);
                    }
                }
                Order::Cancel(epoch, seq) if epoch == self.epoch && life.core.cancel(seq) => {
                    self.release(seq, 0, now, dice);
                }
                // For a life that is over.
                _ => {}
            }
        }
        self.begin_step(now, dice)
    }

    fn release(&mut self, seq: SeqId, generated_tokens: u32, now: Time, dice: &mut Dice) {
        let released = Released {
            device: self.id,
            epoch: self.epoch,
            seq,
            generated_tokens,
        };
        self.news[0].send(ToScheduler::Released(released), now, dice);
    }

    fn begin_step(&mut self, now: Time, dice: &mut Dice) -> Result<(), String> {
        let Some(life) = &mut self.life else {
            return Ok(());
        };
        if life.step.is_none()
            && let Some(plan) = life.core.plan(now).cloned()
        {
            let counts = life.core.step_stats().counts;
            budget::check(&plan, &counts, &self.limits, &self.capacity)
                .map_err(|broken| format!("device {}: {broken}", self.id))?;
            let slow = if dice.one_in(20) { 100 } else { 1 };
            let time = Duration::from_millis(slow * (1 + dice.below(8)));
            life.step = Some((now + time, plan));
        }
        let load = life.core.load();
        if load != life.reported {
            life.reported = load;
            self.news[0].send(ToScheduler::Load(self.epoch, load), now, dice);
        }
        Ok(())
    }

    /// Ends the step whose time has come, tells the sessions, and begins the next one.
    pub fn end_step(
        &mut self,
        now: Time,
        dice: &mut Dice,
        sessions: &mut BTreeMap<SeqId, Session>,
    ) -> Result<(), String> {
        let Some(life) = &mut self.life else {
            return Ok(());
        };
        let Some((_, plan)) = life.step.take_if(|(at, _)| *at <= now) else {
            return Ok(());
        };
        life.executor
            .step(&plan, &mut life.output)
            .map_err(|fault| format!("device {}: {fault}", self.id))?;
        let updates = life.core.apply(&life.output, now, None);
        let updates = updates.map_err(|fault| format!("device {}: {fault}", self.id))?;
        for update in updates {
            let session = sessions.get_mut(&update.seq).ok_or("an unknown sequence")?;
            if !session.ended {
                session.take(self.epoch, &update)?;
            }
            if update.finish.is_some() {
                if let Some(life) = &mut self.life {
                    life.core.cancel(update.seq);
                }
                self.release(update.seq, update.tokens.len() as u32, now, dice);
            }
        }
        self.begin_step(now, dice)
    }

    pub fn check(&self) -> Result<(), String> {
        let Some(life) = &self.life else {
            return Ok(());
        };
        life.core
            .check()
            .map_err(|broken| format!("device {}: {broken}", self.id))
    }

    /// Its life and load, if the scheduler has heard all that it was told and the other way round.
    pub fn settled(&self) -> Option<(Epoch, Load)> {
        let quiet = self.orders.0.is_empty() && self.news.iter().all(|way| way.0.is_empty());
        let life = self.life.as_ref().filter(|_| quiet)?;
        Some((self.epoch, life.core.load()))
    }

    pub fn preemptions(&self) -> u64 {
        let living = self
            .life
            .as_ref()
            .map(|life| life.core.snapshot().preemptions_total);
        self.preemptions + living.unwrap_or(0)
    }

    /// Lives that ended.
    pub fn losses(&self) -> u32 {
        self.losses
    }

    /// Whether nothing is held any more.
    pub fn is_free(&self) -> Result<(), String> {
        if self.gone {
            return Ok(());
        }
        let Some(life) = &self.life else {
            return Err(format!("device {} did not come back", self.id));
        };
        let load = life.core.load();
        match load.blocks_free + load.blocks_cached == load.blocks_total && life.core.is_idle() {
            true => Ok(()),
            false => Err(format!("device {} holds something: {load:?}", self.id)),
        }
    }
}
