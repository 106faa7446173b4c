//! What operators do to a running engine: devices drained and resumed, requests ended, limits changed between two steps.

mod world;

use futures_util::future::join_all;
use ropeteam_actors::generation::{RequestError, RequestState};
use ropeteam_engine::ids::DeviceId;
use ropeteam_engine::observe::Event;
use ropeteam_sim::faults::FaultPlan;
use std::time::Duration;
use world::{Transcript, World, assert_all_is_free, in_virtual_time, read, request, sampled};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_drained_device_finishes_what_it_runs_and_gets_nothing_until_it_is_resumed() {
    in_virtual_time(async {
        let world = World::new(vec![FaultPlan::new([]), FaultPlan::new([])]);
        let engine = world.start().await;
        let before = engine.generate(request("before", "runs"));
        tokio::time::sleep(20 * MS).await;
        let running = |engine: &ropeteam_actors::Engine| {
            let engine = engine.clone();
            async move {
                let devices = engine.devices().await;
                devices.iter().map(|d| d.running).collect::<Vec<_>>()
            }
        };
        assert_eq!(running(&engine).await, [1, 0]);
        assert!(engine.drain_device(DeviceId(0)).await);
        assert!(engine.devices().await[0].held_back);
        let others: Vec<_> = (0..4)
            .map(|i| engine.generate(request(&format!("o{i}"), "goes to the other")))
            .collect();
        tokio::time::sleep(5 * MS).await;
        assert_eq!(running(&engine).await, [1, 4]);
        assert!(read(before).await.failed.is_none());
        assert_eq!(running(&engine).await[0], 0);
        // Over its lives: a restart does not bring work back.
        assert!(engine.restart(DeviceId(0)).await);
        tokio::time::sleep(20 * MS).await;
        assert!(engine.is_ready());
        let last = engine.generate(request("last", "still to the other"));
        tokio::time::sleep(5 * MS).await;
        assert_eq!(running(&engine).await, [0, 5]);
        assert!(engine.resume_device(DeviceId(0)).await);
        let back = engine.generate(request("back", "new work"));
        tokio::time::sleep(5 * MS).await;
        assert_eq!(running(&engine).await, [1, 5]);
        join_all(others.into_iter().chain([last, back]).map(read)).await;
        assert!(!engine.drain_device(DeviceId(9)).await);
        assert_all_is_free(&engine).await;
    });
}

#[test]
fn with_every_device_drained_requests_wait_and_the_engine_says_it_is_not_ready() {
    in_virtual_time(async {
        let engine = World::undisturbed().start().await;
        assert!(engine.drain_device(DeviceId(0)).await);
        assert!(!engine.is_ready());
        let waiting = engine.generate(request("w", "waits"));
        tokio::time::sleep(500 * MS).await;
        let listed = engine.requests().await;
        assert_eq!(listed.len(), 1);
        assert_eq!(
            (listed[0].request.as_str(), listed[0].state),
            ("w", RequestState::Waiting)
        );
        assert!(engine.resume_device(DeviceId(0)).await);
        assert!(engine.is_ready());
        assert!(read(waiting).await.failed.is_none());
    });
}

#[test]
fn an_ended_request_is_told_so_and_frees_what_it_held() {
    in_virtual_time(async {
        let mut world = World::undisturbed();
        world.config.batching.max_decode_batch_size = 1;
        let engine = world.start().await;
        let mut events = engine.subscribe();
        let running = engine.generate(request("a", "runs"));
        let queued = engine.generate(request("b", "waits"));
        tokio::time::sleep(30 * MS).await;
        let states: Vec<_> = engine.requests().await.iter().map(|r| r.state).collect();
        assert_eq!(states, [RequestState::Running, RequestState::Waiting]);
        assert_eq!(engine.requests().await[0].device, Some(DeviceId(0)));
        assert_eq!(engine.cancel(|id| id == "nobody"), 0);
        assert_eq!(engine.cancel(|_| true), 2);
        for seen in join_all([read(running), read(queued)]).await {
            assert_eq!(seen.failed, Some(RequestError::Cancelled));
        }
        assert!(engine.requests().await.is_empty());
        assert_all_is_free(&engine).await;
        let mut told = 0;
        while let Some(event) = events.try_next() {
            told += usize::from(matches!(&*event, Event::Managed { call: "cancel", .. }));
        }
        assert_eq!(told, 2);
    });
}

/// Runs eight requests, changing the limits again and again when `disturbed`.
fn texts(disturbed: bool) -> Vec<Transcript> {
    in_virtual_time(async move {
        let engine = World::undisturbed().start().await;
        let generations: Vec<_> = (0..8)
            .map(|i| engine.generate(sampled(&format!("r{i}"), "the same beginning", i)))
            .collect();
        let reading = join_all(generations.into_iter().map(read));
        let changing = async {
            for size in [2, 8, 1, 3, 64] {
                tokio::time::sleep(30 * MS).await;
                let mut live = engine.live();
                live.batching.max_decode_batch_size = size;
                live.batching.chunk_tokens = 4 * size;
                if disturbed {
                    engine.reconfigure(live);
                }
                tokio::time::sleep(15 * MS).await;
                let view = engine.snapshot().await;
                let load = view.devices[0].1.load;
                assert!(!disturbed || load.running <= size, "{} run", load.running);
            }
        };
        let (seen, ()) = tokio::join!(reading, changing);
        assert_all_is_free(&engine).await;
        seen
    })
}

#[test]
fn limits_hold_from_the_next_step_on_and_change_no_token() {
    let content = |seen: Vec<Transcript>| seen.iter().map(Transcript::content).collect::<Vec<_>>();
    assert_eq!(content(texts(true)), content(texts(false)));
}

#[test]
fn a_smaller_queue_refuses_what_comes_and_keeps_what_waits() {
    in_virtual_time(async {
        let mut world = World::undisturbed();
        world.config.batching.max_decode_batch_size = 1;
        let engine = world.start().await;
        let waiting: Vec<_> = (0..5)
            .map(|i| engine.generate(request(&format!("w{i}"), "waits")))
            .collect();
        tokio::time::sleep(10 * MS).await;
        let mut live = engine.live();
        live.max_queue = 2;
        engine.reconfigure(live);
        let refused = read(engine.generate(request("late", "is refused"))).await;
        assert!(matches!(
            refused.failed,
            Some(RequestError::QueueFull { limit: 2, .. })
        ));
        for seen in join_all(waiting.into_iter().map(read)).await {
            assert!(seen.failed.is_none());
        }
    });
}
