//! The same engine in real time, each device on a thread of its own: what a virtual clock cannot show.

mod world;

use actix::{Actor, AsyncContext, Context, System};
use futures_util::future::join_all;
use ropeteam_actors::{DeviceSpec, Engine, EngineParts, Isolation};
use ropeteam_engine::executor::{DeviceFault, FaultKind};
use ropeteam_engine::ids::{DeviceId, Epoch};
use ropeteam_engine::observe::Event;
use ropeteam_engine::request::FinishReason;
use ropeteam_sim::faults::{Fault, FaultPlan};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use world::{Transcript, World, assert_all_is_free, in_virtual_time, read, request, sampled};

const MS: Duration = Duration::from_millis(1);

fn undisturbed(request: ropeteam_engine::request::GenerateRequest) -> Transcript {
    in_virtual_time(async { read(World::undisturbed().start().await.generate(request)).await })
}

fn in_real_time<T>(scenario: impl Future<Output = T>) -> T {
    System::new().block_on(scenario)
}

#[test]
fn a_panic_in_a_step_restarts_the_device_and_the_stream_goes_on_token_for_token() {
    let wanted = sampled("a", "token for token", 4);
    let expected = undisturbed(wanted.clone());
    in_real_time(async {
        let world = World::new(vec![FaultPlan::new([
            (9, Fault::Panic),
            (15, Fault::Error),
        ])]);
        let engine = world.start_on_threads().await;
        let seen = read(engine.generate(wanted)).await;
        assert_eq!(seen.content(), expected.content());
        let device = &engine.devices().await[0];
        assert_eq!((device.lives.restarts, device.lives.epoch), (2, Epoch(3)));
        assert_eq!(
            device.lives.last_fault.as_ref().unwrap().kind,
            FaultKind::Operator
        );
        assert_all_is_free(&engine).await;
    });
}

#[test]
fn a_device_that_hangs_is_abandoned_and_what_it_says_later_is_not_heard() {
    let wanted = sampled("a", "hang in there", 4);
    let expected = undisturbed(wanted.clone());
    in_real_time(async {
        let faults = FaultPlan::new([(9, Fault::Hang)]);
        let mut world = World::new(vec![faults.clone()]);
        world.delay = 10 * MS;
        world.config.restart.stuck_after = 1000 * MS;
        let engine = world.start_on_threads().await;
        let mut generation = engine.generate(wanted);
        let mut seen = Transcript::default();
        while let Some(event) = generation.next_event().await {
            seen.add(event);
            if faults.steps() > 12 {
                // The second life is at work: wake the first one up.
                faults.release();
            }
        }
        assert_eq!(seen.content(), expected.content());
        let device = &engine.devices().await[0];
        assert_eq!(device.lives.restarts, 1);
        assert_eq!(
            device.lives.last_fault.as_ref().unwrap().kind,
            FaultKind::Stuck
        );
        assert_all_is_free(&engine).await;
    });
}

#[test]
fn an_operator_can_restart_a_device_that_hangs() {
    in_real_time(async {
        let faults = FaultPlan::new([(5, Fault::Hang)]);
        let mut world = World::new(vec![faults.clone()]);
        world.config.restart.retire_within = 50 * MS;
        let engine = world.start_on_threads().await;
        let generation = engine.generate(request("a", "wait for help"));
        while faults.steps() < 6 {
            tokio::time::sleep(MS).await;
        }
        assert!(engine.restart(DeviceId(0)).await);
        assert_eq!(
            read(generation).await.choices[0].reason,
            Some(FinishReason::Length)
        );
        faults.release();
    });
}

/// An actor of the host application that notes how late its ticks are.
struct Host {
    latest_us: Arc<AtomicU64>,
}

impl Actor for Host {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let mut last = Instant::now();
        ctx.run_interval(5 * MS, move |act, _| {
            let late = last.elapsed().saturating_sub(5 * MS);
            act.latest_us
                .fetch_max(late.as_micros() as u64, Ordering::Relaxed);
            last = Instant::now();
        });
    }
}

#[test]
fn a_host_actor_is_not_delayed_by_a_long_step() {
    in_real_time(async {
        let mut world = World::undisturbed();
        world.delay = 1000 * MS;
        let engine = world.start_on_threads().await;
        let latest_us = Arc::new(AtomicU64::new(0));
        Host {
            latest_us: latest_us.clone(),
        }
        .start();
        let mut short = request("a", "two long steps");
        short.max_tokens = Some(2);
        read(engine.generate(short)).await;
        let latest = Duration::from_micros(latest_us.load(Ordering::Relaxed));
        // Far below a step, far above what a busy test machine does to a timer.
        assert!(latest < 500 * MS, "{latest:?}");
    });
}

#[test]
fn a_subscriber_that_does_not_read_loses_events_and_holds_nobody_up() {
    in_real_time(async {
        let mut world = World::undisturbed();
        world.config.bus_buffer = 4;
        let engine = world.start_on_threads().await;
        let mut sleeper = engine.subscribe();
        for i in 0..5 {
            read(engine.generate(request(&format!("r{i}"), "go on"))).await;
        }
        let mut kept = 0;
        while let Some(event) = sleeper.try_next() {
            kept += 1;
            assert!(kept <= 4, "{event:?}");
        }
        assert!(sleeper.lost() > 50, "{}", sleeper.lost());
        assert!(engine.snapshot().await.lost_events >= sleeper.lost());
    });
}

#[test]
fn sixty_four_streams_at_once_are_all_exact() {
    let requests: Vec<_> = (0..64)
        .map(|i| sampled(&format!("r{i}"), "one of many streams", i))
        .collect();
    let expected: Vec<_> = requests
        .iter()
        .map(|r| undisturbed(r.clone()).content())
        .collect();
    in_real_time(async {
        let mut world = World::new(vec![
            FaultPlan::new([]),
            FaultPlan::new([(20, Fault::Panic)]),
        ]);
        world.config.session_threads = 2;
        let engine = world.start_on_threads().await;
        let reads = requests.into_iter().map(|r| read(engine.generate(r)));
        let seen: Vec<_> = join_all(reads)
            .await
            .iter()
            .map(Transcript::content)
            .collect();
        assert_eq!(seen, expected);
        assert_all_is_free(&engine).await;
    });
}

#[test]
fn a_device_that_cannot_start_is_tried_again() {
    in_real_time(async {
        let world = World::undisturbed();
        let EngineParts {
            codec,
            eos_ids,
            devices,
        } = world.parts();
        let Isolation::Thread(build) = devices[0].isolation.clone() else {
            panic!("the world's devices are on threads");
        };
        let moody = move |epoch: Epoch| match epoch.0 {
            1 => Err(DeviceFault {
                kind: FaultKind::Start,
                detail: "no memory".into(),
            }),
            2 => panic!("the driver is in a mood"),
            _ => build(epoch),
        };
        let devices = vec![DeviceSpec {
            id: DeviceId(0),
            isolation: Isolation::Thread(Arc::new(moody)),
        }];
        let mut config = world.config.clone();
        config.restart.delay = 20 * MS;
        let engine = Engine::start(
            config,
            EngineParts {
                codec,
                eos_ids,
                devices,
            },
        )
        .unwrap();
        let mut events = engine.subscribe();
        assert!(!engine.is_ready());
        // A request that comes too early waits for the device.
        let seen = read(engine.generate(request("early", "good morning"))).await;
        assert_eq!(seen.choices[0].reason, Some(FinishReason::Length));
        let mut causes = Vec::new();
        while let Some(event) = events.try_next() {
            if let Event::DeviceDied { cause, .. } = &*event {
                causes.push(*cause);
            }
        }
        assert_eq!(causes, [FaultKind::Start, FaultKind::Start]);
    });
}

#[test]
fn the_handle_works_from_a_thread_without_a_system() {
    let (give, take) = std::sync::mpsc::channel();
    let host = std::thread::spawn(move || {
        let system = System::new();
        let engine = system.block_on(World::undisturbed().start_on_threads());
        give.send(engine).unwrap();
        system.run().unwrap();
    });
    let engine: Engine = take.recv().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let seen = runtime.block_on(read(engine.generate(request("a", "from outside"))));
    assert_eq!(seen.choices[0].reason, Some(FinishReason::Length));
    drop((engine, host));
}

#[test]
fn an_engine_begins_with_the_devices_that_start_and_fails_only_when_none_does() {
    let world = World::new(vec![FaultPlan::new([]), FaultPlan::new([])]);
    let broken = Isolation::Thread(Arc::new(|_| {
        Err(DeviceFault {
            kind: FaultKind::Start,
            detail: "no such chip".into(),
        })
    }));
    in_real_time(async {
        let mut parts = world.parts();
        parts.devices[0].isolation = broken.clone();
        let Isolation::Thread(sound) = parts.devices[1].isolation.clone() else {
            panic!("devices of these tests live in threads");
        };
        // The broken one has failed by then.
        parts.devices[1].isolation = Isolation::Thread(Arc::new(move |life| {
            std::thread::sleep(50 * MS);
            sound(life)
        }));
        let engine = Engine::start(world.config.clone(), parts).expect("valid parts");
        assert_eq!(engine.first_life().await, Ok(()));
        let seen = read(engine.generate(request("a", "one is enough"))).await;
        assert_eq!(seen.choices[0].reason, Some(FinishReason::Length));
    });
    in_real_time(async {
        let mut parts = world.parts();
        for device in &mut parts.devices {
            device.isolation = broken.clone();
        }
        let engine = Engine::start(world.config.clone(), parts).expect("valid parts");
        let fault = engine.first_life().await.expect_err("no device");
        assert_eq!(fault.detail, "no such chip");
    });
}
