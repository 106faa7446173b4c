//! Ring 2 in each run of the tests: many seeds, and those that failed once. What a seed drives: `world/random.rs`.

#[path = "world/random.rs"]
mod random;
mod world;

use ropeteam_actors::generation::GenerateEvent;
use ropeteam_engine::request::FinishReason;
use std::panic::catch_unwind;
use std::time::Duration;
use world::{Planted, World, in_virtual_time};

/// Seeds in each run of the tests.
const SEEDS: u64 = 300;

/// Seeds that failed once, one a line with what broke; `cargo run -p ropeteam-sim --example ring2 -- --seed N` repeats one.
const REGRESSIONS: &str = include_str!("ring2_regressions.txt");

#[test]
fn every_seed_keeps_every_promise() {
    let regressions = REGRESSIONS.lines().filter(|line| !line.starts_with('#'));
    let regressions = regressions.filter_map(|line| line.split_whitespace().next()?.parse().ok());
    for seed in regressions.chain(0..SEEDS) {
        match catch_unwind(|| random::run(seed)) {
            Ok(Ok(_)) => {}
            Ok(Err(broken)) => panic!("seed {seed}: {broken}"),
            Err(_) => panic!("seed {seed} panicked"),
        }
    }
}

/// Seeds among which a planted mistake must show.
const SEEDS_TO_NOTICE: u64 = 40;

#[test]
fn planted_mistakes_are_noticed() {
    let notices = |what: &str, change: &(dyn Fn(&mut World) + std::panic::RefUnwindSafe)| {
        let broken = |seed: &u64| {
            let lived = catch_unwind(|| random::run_with(*seed, change));
            !matches!(lived, Ok(Ok(_)))
        };
        let seed = (0..SEEDS_TO_NOTICE).find(broken);
        assert!(seed.is_some(), "{what} is not noticed");
    };
    for planted in [
        Planted::ResultsSwapped,
        Planted::ReplayForgets,
        Planted::WrongBlocks,
        Planted::Company,
    ] {
        let change = move |world: &mut World| world.planted = Some(planted);
        notices(&format!("{planted:?}"), &change);
    }
    // Requests that do not survive the first death of their device.
    notices("a lost request", &|world| {
        world.config.max_interruptions = 1
    });
    // Devices that nobody starts again.
    notices("a lost device", &|world| {
        world.config.restart.budget = 0;
        world.config.restart.trial_after = None;
    });
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(random::run(42), random::run(42), "times included");
}

#[test]
fn a_stream_is_steady() {
    in_virtual_time(async {
        let world = World::undisturbed();
        let engine = world.start().await;
        let mut generation = engine.generate(world::request("a", "tick"));
        let mut last = tokio::time::Instant::now();
        let step = world.cost.per_step + world.cost.per_sequence + world.cost.per_token;
        let mut count = 0;
        while let Some(event) = generation.next_event().await {
            if let GenerateEvent::Tokens(_) = event {
                count += 1;
                // Tokio's clock has a grain of one millisecond.
                assert!(count == 1 || last.elapsed() <= step + Duration::from_millis(1));
                last = tokio::time::Instant::now();
            }
            if let GenerateEvent::Done(done) = event {
                assert_eq!(done.reason, FinishReason::Length);
            }
        }
        assert_eq!(count, 24);
    });
}
