//! The scheduler core in random worlds: several devices that die while messages are on their way.

use crate::toy::{ToyDevice, capacity, solo, work};
use proptest::prelude::*;
use ropeteam_engine::batching::BatchLimits;
use ropeteam_engine::device_core::Load;
use ropeteam_engine::ids::{DeviceId, Epoch, SeqId, TokenId};
use ropeteam_engine::placement::Role;
use ropeteam_engine::sampling::uniform;
use ropeteam_engine::scheduler::{
    Action, Cancelled, DeviceProfile, Refusal, Released, SchedulerCore, SchedulerLimits, Submission,
};
use ropeteam_engine::time::Time;
use ropeteam_engine::work::{DeviceFinish, Work};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

fn at(seconds: u64) -> Time {
    Time(Duration::from_secs(seconds))
}

/// What a device is sent.
enum ToDevice {
    Assign(Epoch, Work),
    Cancel(Epoch, SeqId),
}

/// What the scheduler is sent.
enum ToScheduler {
    Up(Epoch),
    Down(Epoch),
    Load(Epoch, Load),
    Released(Released),
}

/// The truth of a sequence, as a session holds it.
struct Session {
    work: Work,
    expected: crate::toy::Outcome,
    cancelled: bool,
    ended: bool,
}

struct Host {
    epoch: Epoch,
    life: Option<ToyDevice>,
    inbox: VecDeque<ToDevice>,
    /// From the device, and from its supervisor: either may overtake the other.
    outboxes: [VecDeque<ToScheduler>; 2],
}

struct World {
    scheduler: SchedulerCore,
    hosts: Vec<Host>,
    sessions: BTreeMap<SeqId, Session>,
    refused: usize,
    profile: DeviceProfile,
}

impl World {
    fn new(devices: u16, profile: DeviceProfile) -> Self {
        let host = |_| Host {
            epoch: Epoch(0),
            life: None,
            inbox: VecDeque::new(),
            outboxes: Default::default(),
        };
        World {
            scheduler: SchedulerCore::new(SchedulerLimits { max_queue: 12 }),
            hosts: (0..devices).map(host).collect(),
            sessions: BTreeMap::new(),
            refused: 0,
            profile,
        }
    }

    fn submit(&mut self, work: Work, how: Submission) {
        match self.scheduler.submit(work.clone(), how, at(0)) {
            Ok(()) if how == Submission::New => {
                let session = Session {
                    expected: solo(&work),
                    work,
                    cancelled: false,
                    ended: false,
                };
                self.sessions.insert(session.work.seq, session);
            }
            Ok(()) => {}
            Err(Refusal::QueueFull { .. }) if how == Submission::New => self.refused += 1,
            Err(why) => panic!("{how:?} was refused: {why}"),
        }
    }

    fn tick(&mut self) {
        for action in self.scheduler.tick(at(0)) {
            let Action::Assign {
                device,
                epoch,
                work,
            } = action
            else {
                panic!("nothing is to be refused here: {action:?}");
            };
            self.hosts[device.0 as usize]
                .inbox
                .push_back(ToDevice::Assign(epoch, work));
        }
    }

    fn cancel(&mut self, seq: SeqId) {
        let session = self.sessions.get_mut(&seq).expect("it was submitted");
        session.cancelled = true;
        match self.scheduler.cancel(seq) {
            Cancelled::Waiting => session.ended = true,
            Cancelled::On { device, epoch } => {
                self.hosts[device.0 as usize]
                    .inbox
                    .push_back(ToDevice::Cancel(epoch, seq));
            }
            Cancelled::Unknown => assert!(session.ended, "an unknown sequence has ended"),
        }
    }

    /// The scheduler reads one message of a device.
    fn hear(&mut self, device: u16, outbox: usize) {
        let Some(message) = self.hosts[device as usize].outboxes[outbox].pop_front() else {
            return;
        };
        let id = DeviceId(device);
        let interrupted = match message {
            ToScheduler::Up(epoch) => self.scheduler.device_up(id, epoch, self.profile.clone()),
            ToScheduler::Down(epoch) => self.scheduler.device_down(id, epoch),
            ToScheduler::Load(epoch, load) => {
                self.scheduler.load(id, epoch, load);
                Vec::new()
            }
            ToScheduler::Released(released) => {
                self.scheduler.released(released);
                Vec::new()
            }
        };
        for seq in interrupted {
            let session = self.sessions.get_mut(&seq).expect("it was submitted");
            session.ended |= session.cancelled;
            if !session.ended {
                let work = session.work.clone();
                self.submit(work, Submission::Again);
            }
        }
    }

    /// A device reads one message.
    fn receive(&mut self, device: u16) {
        let host = &mut self.hosts[device as usize];
        let Some(message) = host.inbox.pop_front() else {
            return;
        };
        let Some(life) = &mut host.life else {
            return;
        };
        match message {
            ToDevice::Assign(epoch, work) if epoch == host.epoch => {
                life.core.assign(work).expect("it fits");
                let load = life.core.load();
                assert!(load.running + load.waiting <= self.profile.max_running);
            }
            ToDevice::Cancel(epoch, seq) if epoch == host.epoch && life.core.cancel(seq) => {
                self.sessions.get_mut(&seq).expect("it was submitted").ended = true;
                // An idle device makes no step that would tell of its blocks.
                let load = life.core.load();
                host.tell_released(device, seq, 0);
                host.outboxes[0].push_back(ToScheduler::Load(host.epoch, load));
            }
            _ => {}
        }
    }

    fn step(&mut self, device: u16) {
        let host = &mut self.hosts[device as usize];
        let Some(life) = &mut host.life else {
            return;
        };
        let Some(updates) = life.step() else {
            return;
        };
        life.core.check().expect("the device's invariants hold");
        let load = life.core.load();
        for update in updates {
            let session = self
                .sessions
                .get_mut(&update.seq)
                .expect("it was submitted");
            assert!(!session.ended, "{} goes on after its end", update.seq);
            session
                .work
                .output
                .extend(update.tokens.iter().map(|token| token.id));
            if let Some(finish) = update.finish {
                session.end(finish);
                host.tell_released(device, update.seq, 1);
            }
        }
        host.outboxes[0].push_back(ToScheduler::Load(host.epoch, load));
    }

    fn kill_or_start(&mut self, device: u16) {
        let host = &mut self.hosts[device as usize];
        match host.life.take() {
            Some(_) => host.outboxes[1].push_back(ToScheduler::Down(host.epoch)),
            None => {
                host.epoch = Epoch(host.epoch.0 + 1);
                let limits = BatchLimits {
                    max_decode_batch_size: self.profile.max_running,
                    chunk_tokens: 16,
                    ..BatchLimits::default()
                };
                host.life = Some(ToyDevice::new(limits, self.profile.capacity.clone(), true));
                host.outboxes[0].push_back(ToScheduler::Up(host.epoch));
            }
        }
    }
}

impl Host {
    fn tell_released(&mut self, device: u16, seq: SeqId, generated_tokens: u32) {
        let (device, epoch) = (DeviceId(device), self.epoch);
        self.outboxes[0].push_back(ToScheduler::Released(Released {
            device,
            epoch,
            seq,
            generated_tokens,
        }));
    }
}

impl Session {
    fn end(&mut self, finish: DeviceFinish) {
        let expected: Vec<TokenId> = self.expected.tokens.iter().map(|token| token.id).collect();
        assert_eq!(self.work.output, expected, "as alone");
        assert_eq!(Some(finish), self.expected.finish);
        self.ended = true;
    }
}

/// Lets a world of `devices` devices live through random events, then lets it come to rest.
fn profile(blocks: u32, max_running: u32) -> DeviceProfile {
    DeviceProfile {
        capacity: capacity(blocks, 16),
        max_running,
        role: Role::Mixed,
    }
}

fn live(seed: u64, devices: u16, blocks: u32, events: u64) {
    let mut world = World::new(devices, profile(blocks, 4));
    let mut drawn = 0;
    let mut below = |bound: u64| {
        drawn += 1;
        (uniform(seed, drawn) * bound as f64) as u64
    };
    let mut next_seq = 0;
    for _ in 0..events {
        let device = below(u64::from(devices)) as u16;
        match below(40) {
            0 => world.kill_or_start(device),
            1..4 => {
                next_seq += 1;
                let prompt = vec![below(3) as u32; 1 + below(60) as usize];
                let mut work = work(next_seq, &prompt, 1 + below(20) as u32);
                work.tenant = ["a", "b"][below(2) as usize].into();
                work.priority = below(2) as i32;
                world.submit(work, Submission::New);
            }
            4 if next_seq > 0 => {
                let seq = SeqId(1 + below(next_seq));
                if world.sessions.contains_key(&seq) {
                    world.cancel(seq);
                }
            }
            5..15 => world.hear(device, 0),
            15..18 => world.hear(device, 1),
            18..25 => world.receive(device),
            25..35 => world.step(device),
            _ => world.tick(),
        }
        world
            .scheduler
            .check()
            .expect("the scheduler's invariants hold");
    }
    rest(&mut world, devices);
}

/// All devices live, all messages arrive: everything must end.
fn rest(world: &mut World, devices: u16) {
    for device in 0..devices {
        if world.hosts[device as usize].life.is_none() {
            world.kill_or_start(device);
        }
    }
    for _ in 0..5_000 {
        world.tick();
        for device in 0..devices {
            (0..20).for_each(|_| world.receive(device));
            world.step(device);
            (0..20).for_each(|_| {
                world.hear(device, 0);
                world.hear(device, 1);
            });
        }
        world
            .scheduler
            .check()
            .expect("the scheduler's invariants hold");
        if world.scheduler.is_idle() {
            break;
        }
    }
    assert!(world.scheduler.is_idle(), "somebody waits for ever");
    assert!(
        world.sessions.values().all(|session| session.ended),
        "every sequence ended"
    );
    for view in world.scheduler.snapshot().devices {
        let total = world.profile.capacity.blocks;
        assert_eq!(view.credit_blocks, total, "all credits came back: {view:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn every_sequence_ends_once_as_alone_whatever_dies_and_whatever_comes_late(
        seed in any::<u64>(),
        devices in 1u16..4,
        blocks in 6u32..20,
        events in 0u64..1500,
    ) {
        live(seed, devices, blocks, events);
    }
}
