//! A device with its lives, and the ways to and from it: messages come in order, each as late as the dice want.

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
    epoch: Epoch,
    life: Option<Life>,
    /// When the next life begins; only without one.
    starts_at: Time,
    orders: Way<Order>,
    /// From the device, and from its supervisor: either may overtake the other.
    news: [Way<ToScheduler>; 2],
    preemptions: u64,
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
    pub fn new(id: DeviceId, prefix_cache: bool) -> Self {
        let way = || Way(VecDeque::new());
        Host {
            id,
            prefix_cache,
            epoch: Epoch(0),
            life: None,
            starts_at: Time::default(),
            orders: Way(VecDeque::new()),
            news: [way(), way()],
            preemptions: 0,
        }
    }

    /// When it has something to do next.
    pub fn next_at(&self) -> Option<Time> {
        let news = self.news.iter().filter_map(Way::next_at);
        let step = self.life.as_ref().and_then(|life| life.step.as_ref());
        let step = step.map(|(at, _)| *at);
        let start = self.life.is_none().then_some(self.starts_at);
        news.chain(self.orders.next_at())
            .chain(step)
            .chain(start)
            .min()
    }

    pub fn is_down(&self) -> bool {
        self.life.is_none()
    }

    /// Begins the next life.
    pub fn start(&mut self, capacity: &Capacity, limits: &BatchLimits, now: Time) {
        if now < self.starts_at {
            return;
        }
        self.epoch = Epoch(self.epoch.0 + 1);
        let core = DeviceCore::new(limits.clone(), capacity.clone(), self.prefix_cache);
        self.life = Some(Life {
            reported: core.load(),
            core,
            executor: SimExecutor::new(capacity.clone(), MODEL_SEED),
            output: StepOutput::default(),
            step: None,
        });
        let up = ToScheduler::Up(self.epoch);
        self.news[1].0.push_back((now, up));
    }

    /// Ends the life, in the middle of whatever it does.
    pub fn kill(&mut self, now: Time, dice: &mut Dice) {
        if let Some(life) = self.life.take() {
            self.preemptions += life.core.snapshot().preemptions_total;
            self.news[1].send(ToScheduler::Down(self.epoch), now, dice);
            self.starts_at = now + Duration::from_millis(dice.below(80));
        }
    }

    pub fn reconfigure(&mut self, limits: &BatchLimits) {
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
    pub fn take_orders(&mut self, now: Time, dice: &mut Dice) {
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
        self.begin_step(now, dice);
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

    fn begin_step(&mut self, now: Time, dice: &mut Dice) {
        let Some(life) = &mut self.life else {
            return;
        };
        if life.step.is_none()
            && let Some(plan) = life.core.plan(now).cloned()
        {
            let slow = if dice.one_in(20) { 100 } else { 1 };
            let time = Duration::from_millis(slow * (1 + dice.below(8)));
            life.step = Some((now + time, plan));
        }
        let load = life.core.load();
        if load != life.reported {
            life.reported = load;
            self.news[0].send(ToScheduler::Load(self.epoch, load), now, dice);
        }
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
        self.begin_step(now, dice);
        Ok(())
    }

    pub fn check(&self) -> Result<(), String> {
        let Some(life) = &self.life else {
            return Ok(());
        };
        life.core
            .check()
            .map_err(|broken| format!("device {}: {broken}", self.id))
    }

    pub fn preemptions(&self) -> u64 {
        let living = self
            .life
            .as_ref()
            .map(|life| life.core.snapshot().preemptions_total);
        self.preemptions + living.unwrap_or(0)
    }

    /// Whether nothing is held any more.
    pub fn is_free(&self) -> Result<(), String> {
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
