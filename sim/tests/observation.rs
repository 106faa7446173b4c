//! What listeners learn: events and totals agree with what the clients saw.

mod world;

use futures_util::future::join_all;
use ropeteam_actors::bus::Subscription;
use ropeteam_engine::observe::{CancelStage, Event, FinishedRequest, Outcome, RefusedReason};
use ropeteam_engine::request::GenerateRequest;
use ropeteam_sim::faults::{Fault, FaultPlan};
use std::time::Duration;
use world::{World, assert_all_is_free, in_virtual_time, read, request, sampled};

const MS: Duration = Duration::from_millis(1);

fn finished(events: &mut Subscription) -> Vec<FinishedRequest> {
    let mut all = Vec::new();
    while let Some(event) = events.try_next() {
        if let Event::Finished(request) = &*event {
            all.push(request.clone());
        }
    }
    all
}

#[test]
fn totals_are_the_sums_of_what_clients_were_told() {
    in_virtual_time(async {
        // The loss of a device must not count tokens twice.
        let engine = World::new(vec![FaultPlan::new([(8, Fault::Panic)])])
            .start()
            .await;
        let requests = (0..6).map(|i| {
            let choices = 1 + i as u32 % 2;
            GenerateRequest {
                choices,
                ..sampled(&format!("r{i}"), "count me", i)
            }
        });
        let seen = join_all(requests.map(|r| read(engine.generate(r)))).await;
        assert_all_is_free(&engine).await;
        let told: u32 = seen
            .iter()
            .flat_map(|t| &t.choices)
            .map(|c| c.usage.completion_tokens)
            .sum();
        let metrics = engine.snapshot().await.metrics.unwrap();
        assert_eq!(metrics.generated_tokens, u64::from(told));
        assert_eq!(metrics.prompt_tokens, 6 * 8, "counted once per request");
        assert_eq!(
            (metrics.received, metrics.finished, metrics.refused),
            (6, 6, 0)
        );
        assert!(metrics.generated_tokens_per_second > 0.0);
    });
}

#[test]
fn the_times_of_a_request_are_in_order() {
    in_virtual_time(async {
        let mut world = World::undisturbed();
        world.config.batching.max_decode_batch_size = 1;
        let engine = world.start().await;
        let mut events = engine.subscribe();
        let requests = ["first", "second"].map(|id| read(engine.generate(request(id, "in order"))));
        join_all(requests).await;
        for request in finished(&mut events) {
            let (queue, first) = (
                request.queue_time.unwrap(),
                request.first_token_time.unwrap(),
            );
            let last = request.last_token_time.unwrap();
            assert!(
                queue < first && first < last && last <= request.total_time,
                "{request:?}"
            );
            assert_eq!(
                request.queue_time > Some(100 * MS),
                &*request.request == "second"
            );
            assert_eq!(request.outcome, Outcome::Length);
        }
    });
}

#[test]
fn a_cancelled_request_says_where_it_was() {
    in_virtual_time(async {
        let mut world = World::undisturbed();
        world.config.batching.max_decode_batch_size = 1;
        world.cost.per_step = 100 * MS;
        let engine = world.start().await;
        let mut events = engine.subscribe();
        let decoding = engine.generate(request("decode", "has tokens"));
        tokio::time::sleep(350 * MS).await;
        let waiting = engine.generate(request("queue", "waits"));
        tokio::time::sleep(10 * MS).await;
        drop((decoding, waiting));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let stages: Vec<_> = finished(&mut events)
            .into_iter()
            .map(|r| (r.request.to_string(), r.outcome, r.cancelled_in))
            .collect();
        let cancelled = |id: &str, stage| (id.to_owned(), Outcome::Cancelled, Some(stage));
        assert!(
            stages.contains(&cancelled("decode", CancelStage::Decode)),
            "{stages:?}"
        );
        assert!(
            stages.contains(&cancelled("queue", CancelStage::Queue)),
            "{stages:?}"
        );
    });
}

#[test]
fn the_queue_is_told_empty_at_the_end() {
    in_virtual_time(async {
        let engine = World::undisturbed().start().await;
        let mut events = engine.subscribe();
        join_all((0..5).map(|i| read(engine.generate(request(&i.to_string(), "queue"))))).await;
        assert_all_is_free(&engine).await;
        let (mut last_queue, mut last_load) = (None, None);
        while let Some(event) = events.try_next() {
            match &*event {
                Event::Queue { waiting, running } => last_queue = Some((*waiting, *running)),
                Event::Load { load, .. } => last_load = Some(*load),
                _ => {}
            }
        }
        assert_eq!(last_queue, Some((0, 0)));
        assert_eq!(last_load.unwrap().running, 0);
    });
}

#[test]
fn refusals_are_told_with_their_reason() {
    in_virtual_time(async {
        let mut world = World::undisturbed();
        world.config.max_queue = 1;
        let engine = world.start().await;
        let mut events = engine.subscribe();
        read(engine.generate(request("long", &"x".repeat(300)))).await;
        read(engine.generate(request("empty", ""))).await;
        read(engine.generate(GenerateRequest {
            choices: 9,
            ..request("many", "many")
        }))
        .await;
        engine.drain(MS).await;
        read(engine.generate(request("late", "late"))).await;
        let mut reasons = Vec::new();
        while let Some(event) = events.try_next() {
            if let Event::Refused { request, reason } = &*event {
                reasons.push((request.to_string(), *reason));
            }
        }
        let expected = [
            ("long", RefusedReason::TooLong),
            ("empty", RefusedReason::Invalid),
            ("many", RefusedReason::QueueFull),
            ("late", RefusedReason::Draining),
        ];
        assert_eq!(
            reasons,
            expected.map(|(id, reason)| (id.to_owned(), reason))
        );
    });
}

#[test]
fn a_view_of_a_request_shows_how_far_it_has_come() {
    in_virtual_time(async {
        let engine = World::undisturbed().start().await;
        let mut generation = engine.generate(request("a", "look at me"));
        for _ in 0..5 {
            generation.next_event().await;
        }
        let view = generation.view().await.expect("it runs");
        assert_eq!((view.prompt_tokens, view.open_choices), (Some(10), 1));
        assert!(view.generated_tokens[0] >= 4, "{view:?}");
        while generation.next_event().await.is_some() {}
        assert_eq!(generation.view().await, None);
    });
}
