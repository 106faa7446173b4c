//! The scheduler core, one behaviour at a time.

use crate::toy::{capacity, work};
use ropeteam_engine::device_core::Load;
use ropeteam_engine::ids::{DeviceId, Epoch, SeqId};
use ropeteam_engine::placement::Role;
use ropeteam_engine::scheduler::{
    Action, Cancelled, DeviceProfile, Refusal, Released, SchedulerCore, SchedulerLimits, Submission,
};
use ropeteam_engine::time::Time;
use ropeteam_engine::work::Work;
use std::time::Duration;

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
