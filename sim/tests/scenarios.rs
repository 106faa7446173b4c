//! Random scenarios with invariants: mixed requests, clients that leave, devices that fail, all from one seed. A failure prints
//! the seed; put it into `REGRESSIONS` to keep it.

mod world;

use futures_util::future::join_all;
use ropeteam_actors::Engine;
use ropeteam_actors::generation::{GenerateEvent, RequestError};
use ropeteam_engine::request::{FinishReason, GenerateRequest, StopRules};
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_sim::cost::CostModel;
use ropeteam_sim::faults::{Fault, FaultPlan};
use std::time::Duration;
use world::{Transcript, World, assert_all_is_free, in_virtual_time};

/// Seeds in each run of the tests.
const SEEDS: u64 = 300;

/// Seeds that failed once.
const REGRESSIONS: &[u64] = &[];

/// SplitMix64; enough to vary scenarios.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What one client does.
#[derive(Clone)]
struct Client {
    request: GenerateRequest,
    arrives: Duration,
    /// Leaves after so many events.
    leaves_after: Option<u64>,
}

fn client(i: u64, dice: &mut Dice) -> Client {
    // A few common beginnings, so that the prefix cache has work.
    let beginnings = [
        "",
        "the same beginning of every prompt ",
        "the same beginning with another end ",
    ];
    let mut prompt = beginnings[dice.below(3) as usize].to_owned();
    for _ in 0..1 + dice.below(40) {
        prompt.push((b'a' + dice.below(26) as u8) as char);
    }
    let mut request = match dice.one_in(3) {
        true => world::request(&format!("r{i}"), &prompt),
        false => world::sampled(&format!("r{i}"), &prompt, dice.next()),
    };
    if dice.one_in(4) {
        let sampling = SamplingParams {
            repetition_penalty: 1.2,
            presence_penalty: 0.5,
            top_k: 9,
            ..request.sampling
        };
        request.sampling = sampling;
    }
    request.choices = 1 + if dice.one_in(5) {
        dice.below(3) as u32
    } else {
        0
    };
    request.max_tokens = Some(1 + dice.below(40) as u32);
    if dice.one_in(3) {
        let letter = (b'a' + dice.below(26) as u8) as char;
        request.stop = StopRules {
            strings: vec![letter.into(), format!("{letter}e")],
            ..StopRules::default()
        };
    }
    request.logprobs = dice.one_in(4).then_some(2);
    request.prompt_logprobs = dice.one_in(8).then_some(1);
    request.tenant = ["", "alice", "bob"][dice.below(3) as usize].into();
    request.priority = dice.below(3) as i32;
    Client {
        request,
        arrives: Duration::from_millis(dice.below(1500)),
        leaves_after: dice.one_in(6).then(|| dice.below(12)),
    }
}

async fn play(engine: &Engine, client: &Client) -> Transcript {
    tokio::time::sleep(client.arrives).await;
    let mut generation = engine.generate(client.request.clone());
    let mut transcript = Transcript::default();
    for _ in 0..client.leaves_after.unwrap_or(u64::MAX) {
        match generation.next_event().await {
            Some(event) => transcript.add(event),
            None => break,
        }
    }
    transcript
}

fn disturbed_world(dice: &mut Dice) -> World {
    let devices = 1 + dice.below(3);
    let plan = |dice: &mut Dice| {
        let faults = (0..dice.below(5)).map(|_| {
            let kinds = [Fault::Error, Fault::Panic, Fault::Hang];
            (dice.below(120), kinds[dice.below(3) as usize])
        });
        FaultPlan::new(faults.collect::<Vec<_>>())
    };
    let mut world = World::new((0..devices).map(|_| plan(dice)).collect());
    // Small pools preempt.
    world.capacity.blocks = 50 + dice.below(60) as u32;
    world.capacity.max_step_tokens = 16 + dice.below(64) as u32;
    world.cost = CostModel {
        per_step: Duration::from_millis(1 + dice.below(20)),
        ..CostModel::default()
    };
    world.config.prefix_cache = !dice.one_in(4);
    world.config.batching.continuous_batching = !dice.one_in(6);
    world.config.batching.chunk_tokens = 4 + dice.below(40) as u32;
    world.config.max_queue = if dice.one_in(4) { 3 } else { 1000 };
    world.config.max_interruptions = 100;
    world.config.restart.budget = 100;
    // A hang is noticed after a minute; nobody is to be refused for it.
    world.config.queue_timeout = None;
    world
}

/// Content of each request alone on an undisturbed device.
fn alone(clients: &[Client]) -> Vec<Transcript> {
    in_virtual_time(async {
        let engine = World::undisturbed().start().await;
        let mut seen = Vec::new();
        for client in clients {
            seen.push(
                play(
                    &engine,
                    &Client {
                        leaves_after: None,
                        ..client.clone()
                    },
                )
                .await,
            );
        }
        seen
    })
}

fn check(seed: u64) {
    let mut dice = Dice(seed);
    let world = disturbed_world(&mut dice);
    let clients: Vec<_> = (0..1 + dice.below(16))
        .map(|i| client(i, &mut dice))
        .collect();
    let expected = alone(&clients);
    let seen = in_virtual_time(async {
        let engine = world.start().await;
        let seen = join_all(clients.iter().map(|client| play(&engine, client))).await;
        assert_all_is_free(&engine).await;
        seen
    });
    for ((client, seen), expected) in clients.iter().zip(&seen).zip(&expected) {
        check_one(
            client,
            seen,
            expected,
            &format!("seed {seed}, {}", client.request.id),
        );
    }
}

/// A request ends exactly once, and its content does not depend on its company nor on faults.
fn check_one(client: &Client, seen: &Transcript, expected: &Transcript, context: &str) {
    if client.leaves_after.is_some() {
        for (choice, whole) in seen.choices.iter().zip(&expected.choices) {
            assert!(whole.text.starts_with(&choice.text), "{context}");
            assert!(whole.ids.starts_with(&choice.ids), "{context}");
        }
        return;
    }
    match &seen.failed {
        None => assert_eq!(seen.content(), expected.content(), "{context}"),
        Some(RequestError::QueueFull { .. }) => assert!(!seen.started, "{context}"),
        Some(other) => panic!("{context}: {other}"),
    }
}

#[test]
fn random_scenarios_keep_every_promise() {
    for &seed in REGRESSIONS {
        check(seed);
    }
    let first =
        std::env::var("ROPETEAM_SIM_FIRST_SEED").map_or(0, |s| s.parse().expect("a number"));
    for seed in first..first + SEEDS {
        if std::panic::catch_unwind(|| check(seed)).is_err() {
            panic!("seed {seed} failed");
        }
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = || {
        let mut dice = Dice(42);
        let world = disturbed_world(&mut dice);
        let clients: Vec<_> = (0..12).map(|i| client(i, &mut dice)).collect();
        in_virtual_time(async {
            let engine = world.start().await;
            join_all(clients.iter().map(|client| play(&engine, client))).await
        })
    };
    assert_eq!(run(), run(), "times included");
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
