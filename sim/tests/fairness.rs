//! Tenants beside each other: weights, bounds, and requests that say how long they may wait.

mod world;

use futures_util::future::join_all;
use ropeteam_actors::generation::RequestError;
use ropeteam_engine::fairness::Class;
use ropeteam_engine::observe::Event;
use ropeteam_engine::request::GenerateRequest;
use std::time::Duration;
use world::{World, assert_all_is_free, in_virtual_time, read, request};

const MS: Duration = Duration::from_millis(1);

/// A device that runs one sequence at a time.
fn narrow() -> World {
    let mut world = World::undisturbed();
    world.config.batching.max_decode_batch_size = 1;
    world
}

/// A request of a tenant.
fn of(tenant: &str, id: &str) -> GenerateRequest {
    GenerateRequest {
        tenant: tenant.into(),
        ..request(id, "some prompt")
    }
}

/// Times to the first token of a quiet tenant's requests, one after the other, while another one has so many queued.
fn quiet_ttfts(flood: usize, max_running: Option<usize>) -> Vec<Duration> {
    in_virtual_time(async move {
        let mut world = World::undisturbed();
        world.config.batching.max_decode_batch_size = 4;
        world.config.max_queue = 2000;
        world.config.queue_timeout = None;
        world.config.fairness.others.max_running = max_running;
        let engine = world.start().await;
        let flood: Vec<_> = (0..flood)
            .map(|i| engine.generate(of("loud", &format!("l{i}"))))
            .collect();
        tokio::time::sleep(200 * MS).await;
        let mut ttfts = Vec::new();
        for i in 0..6 {
            let seen = read(engine.generate(of("quiet", &format!("q{i}")))).await;
            ttfts.push(seen.choices[0].usage.first_token_time);
            tokio::time::sleep(37 * MS).await;
        }
        drop(flood);
        assert_all_is_free(&engine).await;
        ttfts
    })
}

#[test]
fn a_thousand_queued_requests_move_anothers_first_token_by_one_step() {
    let alone = quiet_ttfts(0, Some(3));
    // What a step takes at most: four sequences, and the prompts of those that begin. The step under way ends first, and the one that
    // computes the prompt is longer for its company: so much and no more.
    let world = World::undisturbed();
    let step = world.cost.per_step + 4 * world.cost.per_sequence + 4 * 11 * world.cost.per_token;
    for (alone, crowded) in alone.iter().zip(quiet_ttfts(1000, Some(3))) {
        assert!(
            crowded <= *alone + 2 * step,
            "{crowded:?} beside {alone:?}, a step takes {step:?}"
        );
    }
    // Without a bound all places are taken, and one of them must become free first: the bound is what does it.
    let unbounded = quiet_ttfts(1000, None);
    assert!(
        unbounded.iter().any(|ttft| *ttft > alone[0] + 4 * step),
        "{unbounded:?}"
    );
}

#[test]
fn tenants_are_served_by_their_weights() {
    in_virtual_time(async {
        let mut world = narrow();
        let gold = Class {
            weight: 3,
            max_running: None,
        };
        world.config.fairness.tenants.insert("gold".into(), gold);
        let engine = world.start().await;
        let mut events = engine.subscribe();
        let all: Vec<_> = (0..80)
            .map(|i| engine.generate(of(["gold", "plain"][i % 2], &format!("r{i}"))))
            .collect();
        let mut served = [0, 0];
        while served.iter().sum::<usize>() < 40 {
            let event = events.next().await.expect("the engine lives");
            if let Event::Finished(request) = &*event {
                served[usize::from(&*request.tenant == "plain")] += 1;
            }
        }
        assert!((29..=31).contains(&served[0]), "{served:?}");
        drop(all);
        assert_all_is_free(&engine).await;
    });
}

#[test]
fn what_cannot_be_met_at_the_queues_speed_is_refused_at_once() {
    in_virtual_time(async {
        let engine = narrow().start().await;
        let queued: Vec<_> = (0..30)
            .map(|i| engine.generate(request(&format!("q{i}"), "waits")))
            .collect();
        // A request takes some 200 ms, so ten have left by now and twenty wait for about four seconds.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let late =
            |within: Duration| engine.generate_soon(request("late", "hopeless"), Some(within));
        let before = tokio::time::Instant::now();
        let refused = read(late(Duration::from_secs(1))).await;
        assert!(before.elapsed() < 5 * MS);
        match refused.failed {
            Some(RequestError::TooBusy {
                forecast,
                retry_after,
                ..
            }) => {
                assert!((2.0..8.0).contains(&forecast.as_secs_f64()), "{forecast:?}");
                assert!((2..=8).contains(&retry_after.as_secs()), "{retry_after:?}");
            }
            other => panic!("{other:?}"),
        }
        // The request's own time limit counts as well, and one that allows enough is served.
        let short = GenerateRequest {
            timeout: Some(Duration::from_secs(1)),
            ..request("short", "hopeless")
        };
        let refused = read(engine.generate(short)).await;
        assert!(matches!(refused.failed, Some(RequestError::TooBusy { .. })));
        let patient = read(late(Duration::from_secs(30))).await;
        assert!(patient.failed.is_none(), "{patient:?}");
        join_all(queued.into_iter().map(read)).await;
        assert_all_is_free(&engine).await;
    });
}
