//! The scheduler core: single behaviours, then random worlds of several devices that die while messages are on their way.

mod toy;

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
use toy::{ToyDevice, capacity, solo, work};

const DEVICE: DeviceId = DeviceId(0);

fn at(seconds: u64) -> Time {
    Time(Duration::from_secs(seconds))
}

fn profile(blocks: u32, max_running: u32) -> DeviceProfile {
    DeviceProfile {
        capacity: capacity(blocks, 16),
        max_running,
        role: Role::Mixed,
    }
}

/// A scheduler with one device that runs one sequence at a time.
fn one_at_a_time() -> SchedulerCore {
    let mut scheduler = SchedulerCore::new(SchedulerLimits { max_queue: 4 });
    scheduler.device_up(DEVICE, Epoch(1), profile(8, 1));
    scheduler
}

fn submit(scheduler: &mut SchedulerCore, work: Work) {
    scheduler.submit(work, Submission::New, at(0)).unwrap();
}

fn release(scheduler: &mut SchedulerCore, seq: u64, generated_tokens: u32) -> bool {
    let (device, epoch, seq) = (DEVICE, Epoch(1), SeqId(seq));
    scheduler.released(Released {
        device,
        epoch,
        seq,
        generated_tokens,
    })
}

/// Serves everything, one after the other; returns the order.
fn order(scheduler: &mut SchedulerCore, generated_tokens: u32) -> Vec<u64> {
    let mut order = Vec::new();
    loop {
        let actions = scheduler.tick(at(0));
        let Some(Action::Assign { work, .. }) = actions.first() else {
            return order;
        };
        assert_eq!(actions.len(), 1, "the device has one place");
        order.push(work.seq.0);
        assert!(release(scheduler, work.seq.0, generated_tokens));
        scheduler.check().unwrap();
    }
}

#[test]
fn priority_goes_before_arrival() {
    let mut scheduler = one_at_a_time();
    for (seq, priority) in [(1, 0), (2, 5), (3, -1), (4, 0)] {
        let mut work = work(seq, &[1], 1);
        work.priority = priority;
        submit(&mut scheduler, work);
    }
    assert_eq!(order(&mut scheduler, 1), [3, 1, 4, 2]);
}

#[test]
fn a_tenant_with_few_tokens_does_not_wait_for_one_with_many() {
    let mut scheduler = one_at_a_time();
    for (seq, tenant) in [(1, "many"), (2, "many"), (3, "many"), (4, "few")] {
        let mut work = work(seq, &[1; 10], 1);
        work.tenant = tenant.into();
        submit(&mut scheduler, work);
    }
    assert_eq!(order(&mut scheduler, 100), [1, 4, 2, 3]);
}

#[test]
fn long_prompts_are_charged_as_much_as_long_outputs() {
    let mut scheduler = one_at_a_time();
    for (seq, tenant, prompt) in [
        (1, "long", 50),
        (2, "long", 50),
        (3, "short", 5),
        (4, "short", 5),
    ] {
        let mut work = work(seq, &vec![1; prompt], 1);
        work.tenant = tenant.into();
        submit(&mut scheduler, work);
    }
    assert_eq!(order(&mut scheduler, 0), [1, 3, 4, 2]);
}

#[test]
fn a_tenant_that_comes_late_has_saved_nothing_up() {
    let mut scheduler = one_at_a_time();
    let submit_for = |scheduler: &mut SchedulerCore, seq, tenant: &str| {
        let mut work = work(seq, &[1], 1);
        work.tenant = tenant.into();
        submit(scheduler, work);
    };
    submit_for(&mut scheduler, 1, "early");
    scheduler.tick(at(0));
    submit_for(&mut scheduler, 2, "early");
    release(&mut scheduler, 1, 1000);
    submit_for(&mut scheduler, 3, "late");
    submit_for(&mut scheduler, 4, "late");
    assert_eq!(order(&mut scheduler, 10), [2, 3, 4]);
}

#[test]
fn a_full_queue_refuses_at_once_and_says_when_to_come_again() {
    let mut scheduler = one_at_a_time();
    (1..=4).for_each(|seq| submit(&mut scheduler, work(seq, &[1], 1)));
    // One sequence leaves every three seconds: four are gone after twelve.
    for now in [3, 6] {
        assert_eq!(scheduler.tick(at(now)).len(), 1);
        release(&mut scheduler, now / 3, 1);
        submit(&mut scheduler, work(10 + now, &[1], 1));
    }
    let refused = scheduler.submit(work(9, &[1], 1), Submission::New, at(6));
    let retry_after = Duration::from_secs(12);
    assert_eq!(
        refused,
        Err(Refusal::QueueFull {
            limit: 4,
            retry_after
        })
    );
    assert_eq!(
        scheduler.submit(work(8, &[1], 1), Submission::Again, at(6)),
        Ok(())
    );
}

#[test]
fn what_fits_no_device_is_refused_with_the_numbers() {
    let mut scheduler = SchedulerCore::new(SchedulerLimits { max_queue: 4 });
    let too_long = Refusal::TooLong {
        given: 128,
        limit: 127,
        which: "the KV pool",
    };
    submit(&mut scheduler, work(1, &[1; 128], 1));
    submit(&mut scheduler, work(2, &[1; 127], 1));
    assert!(scheduler.tick(at(0)).is_empty(), "no device is known yet");
    scheduler.device_up(DEVICE, Epoch(1), profile(8, 4));
    let actions = scheduler.tick(at(0));
    assert!(matches!(&actions[0], Action::Refuse { seq: SeqId(1), why } if *why == too_long));
    assert!(matches!(&actions[1], Action::Assign { work, .. } if work.seq == SeqId(2)));
    let refused = scheduler.submit(work(3, &[1; 128], 1), Submission::New, at(0));
    assert_eq!(refused, Err(too_long));
    assert_eq!(scheduler.longest_sequence(), Some(128));
}

#[test]
fn what_waits_too_long_is_refused_but_not_what_lost_its_device() {
    let mut scheduler = one_at_a_time();
    let waiting = |seq| {
        let mut work = work(seq, &[1; 9], 1);
        work.queue_deadline = Some(at(20));
        work
    };
    submit(&mut scheduler, waiting(1));
    assert_eq!(scheduler.tick(at(5)).len(), 1);
    submit(&mut scheduler, waiting(2));
    assert_eq!(scheduler.next_deadline(), Some(at(20)));
    assert_eq!(scheduler.device_down(DEVICE, Epoch(1)), [SeqId(1)]);
    scheduler
        .submit(waiting(1), Submission::Again, at(19))
        .unwrap();
    let actions = scheduler.tick(at(20));
    let waited = Duration::from_secs(18);
    assert!(
        matches!(&actions[..], [Action::Refuse { seq: SeqId(2), why }]
            if *why == Refusal::QueueTimeout { waited })
    );
    scheduler.device_up(DEVICE, Epoch(2), profile(8, 1));
    let actions = scheduler.tick(at(30));
    assert!(matches!(
        &actions[..],
        [Action::Assign {
            epoch: Epoch(2),
            ..
        }]
    ));
}

#[test]
fn a_draining_scheduler_takes_nothing_new_but_finishes_what_it_has() {
    let mut scheduler = one_at_a_time();
    submit(&mut scheduler, work(1, &[1], 1));
    submit(&mut scheduler, work(2, &[1], 1));
    scheduler.drain();
    let refused = scheduler.submit(work(3, &[1], 1), Submission::New, at(0));
    assert_eq!(refused, Err(Refusal::Draining));
    assert_eq!(order(&mut scheduler, 1), [1, 2]);
    assert!(scheduler.is_idle());
}

#[test]
fn without_any_device_left_everything_is_refused_until_one_comes_back() {
    let mut scheduler = one_at_a_time();
    submit(&mut scheduler, work(1, &[1], 1));
    scheduler.tick(at(0));
    submit(&mut scheduler, work(2, &[1], 1));
    assert_eq!(scheduler.device_gone(DEVICE), [SeqId(1)]);
    let actions = scheduler.tick(at(0));
    assert!(matches!(
        &actions[..],
        [Action::Refuse {
            seq: SeqId(2),
            why: Refusal::NoDevice
        }]
    ));
    let again = |scheduler: &mut SchedulerCore| {
        scheduler.submit(work(1, &[1], 1), Submission::Again, at(0))
    };
    assert_eq!(again(&mut scheduler), Err(Refusal::NoDevice));
    scheduler.device_up(DEVICE, Epoch(7), profile(8, 1));
    assert_eq!(again(&mut scheduler), Ok(()));
}

#[test]
fn while_another_device_may_still_come_nobody_is_refused() {
    let mut scheduler = one_at_a_time();
    let late = DeviceId(1);
    scheduler.device_expected(late);
    submit(&mut scheduler, work(1, &[1], 1));
    scheduler.device_gone(DEVICE);
    assert!(
        scheduler.tick(at(0)).is_empty(),
        "it waits for the late one"
    );
    scheduler.device_gone(late);
    assert!(matches!(
        &scheduler.tick(at(0))[..],
        [Action::Refuse {
            why: Refusal::NoDevice,
            ..
        }]
    ));
}

#[test]
fn news_of_an_earlier_life_changes_nothing() {
    let mut scheduler = one_at_a_time();
    submit(&mut scheduler, work(1, &[1; 40], 1));
    scheduler.tick(at(0));
    assert_eq!(
        scheduler.device_up(DEVICE, Epoch(2), profile(8, 1)),
        [SeqId(1)]
    );
    assert_eq!(scheduler.device_down(DEVICE, Epoch(1)), []);
    assert_eq!(scheduler.device_up(DEVICE, Epoch(1), profile(99, 9)), []);
    scheduler
        .submit(work(1, &[1; 40], 1), Submission::Again, at(0))
        .unwrap();
    scheduler.tick(at(0));
    assert!(!release(&mut scheduler, 1, 1));
    scheduler.load(DEVICE, Epoch(1), Load::default());
    assert_eq!(scheduler.snapshot().devices[0].credit_blocks, 5);
    let epoch = Epoch(2);
    assert_eq!(
        scheduler.cancel(SeqId(1)),
        Cancelled::On {
            device: DEVICE,
            epoch
        }
    );
    assert_eq!(scheduler.cancel(SeqId(5)), Cancelled::Unknown);
    scheduler.check().unwrap();
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
    expected: toy::Outcome,
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
