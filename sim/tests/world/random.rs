//! Ring 2: the real actors with simulated devices in virtual time. One seed drives arrivals, mixed requests, clients that leave, deadlines,
//! devices that fail or are slow, and what operators do. In the end every request has ended once, with the bytes it has alone, and
//! everything is free.

use crate::world::{self, Transcript, World, assert_all_is_free, in_virtual_time};
use futures_util::future::join_all;
use ropeteam_actors::Engine;
use ropeteam_actors::generation::RequestError;
use ropeteam_engine::batching::SelectBatch;
use ropeteam_engine::fairness::Class;
use ropeteam_engine::ids::DeviceId;
use ropeteam_engine::request::{FinishReason, GenerateRequest, StopRules};
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_sim::cost::CostModel;
use ropeteam_sim::dice::Dice;
use ropeteam_sim::faults::{Fault, FaultPlan};
use std::time::Duration;

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
        false => world::sampled(&format!("r{i}"), &prompt, dice.throw()),
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
    let limit = Duration::from_millis(100 + dice.below(3000));
    request.timeout = dice.one_in(8).then_some(limit);
    Client {
        request,
        arrives: Duration::from_millis(dice.below(1500)),
        leaves_after: dice.one_in(6).then(|| dice.below(12)),
    }
}

/// What operators do, and when.
struct Operation {
    at: Duration,
    device: DeviceId,
    what: u64,
    /// Of the new limits.
    dice: Dice,
}

fn operations(devices: usize, dice: &mut Dice) -> Vec<Operation> {
    let operation = |_| Operation {
        at: Duration::from_millis(dice.below(2000)),
        device: DeviceId(dice.below(devices as u64) as u16),
        what: dice.below(4),
        dice: Dice::new(dice.throw()),
    };
    (0..5).map(operation).collect()
}

async fn operate(engine: &Engine, mut operation: Operation) {
    tokio::time::sleep(operation.at).await;
    let device = operation.device;
    let known = match operation.what {
        0 => engine.restart(device).await,
        1 => engine.drain_device(device).await,
        2 => engine.resume_device(device).await,
        _ => {
            reconfigure(engine, &mut operation.dice);
            true
        }
    };
    assert!(known, "device {device} is there");
}

fn reconfigure(engine: &Engine, dice: &mut Dice) {
    let mut live = engine.live();
    live.batching.max_decode_batch_size = 1 + dice.below(12) as u32;
    live.batching.max_prefill_tokens = 8 + dice.below(60) as u32;
    live.batching.chunk_tokens = 4 + dice.below(40) as u32;
    live.batching.select = match dice.one_in(2) {
        true => SelectBatch::PrefillFirst,
        false => SelectBatch::DecodeFirst,
    };
    live.max_queue = 3 + dice.below(40) as usize;
    let class = Class {
        weight: 1 + dice.below(4) as u32,
        max_running: Some(1 + dice.below(3) as usize),
    };
    live.fairness.tenants.insert("alice".into(), class);
    engine.reconfigure(live);
}

/// After the trouble every device works again, so that nobody is to wait for ever.
async fn come_to_rest(engine: &Engine, devices: usize) {
    tokio::time::sleep(Duration::from_secs(3)).await;
    for device in 0..devices as u16 {
        engine.resume_device(DeviceId(device)).await;
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
    world.slow_one_in = if dice.one_in(3) { 20 } else { 0 };
    world.config.batching.speculate_rows = if dice.one_in(3) { 8 } else { 0 };
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
                        request: GenerateRequest {
                            timeout: None,
                            ..client.request.clone()
                        },
                        ..client.clone()
                    },
                )
                .await,
            );
        }
        seen
    })
}

/// Lives through the world of that seed; `Err` is the first promise that was broken, as is a panic.
pub fn run(seed: u64) -> Result<Vec<Transcript>, String> {
    run_with(seed, |_| ())
}

/// The same in a world that is changed first.
pub fn run_with(seed: u64, change: impl FnOnce(&mut World)) -> Result<Vec<Transcript>, String> {
    let mut dice = Dice::new(seed);
    let mut world = disturbed_world(&mut dice);
    change(&mut world);
    let clients: Vec<_> = (0..1 + dice.below(16))
        .map(|i| client(i, &mut dice))
        .collect();
    let devices = world.faults.len();
    let operations = operations(devices, &mut dice);
    let seen = in_virtual_time(async {
        let engine = world.start().await;
        let clients = join_all(clients.iter().map(|client| play(&engine, client)));
        let operators = join_all(operations.into_iter().map(|o| operate(&engine, o)));
        let (seen, _, ()) = tokio::join!(clients, operators, come_to_rest(&engine, devices));
        assert_all_is_free(&engine).await;
        let outcome = engine.drain(Duration::from_secs(1)).await;
        assert_eq!(outcome.cut_off, 0, "nothing was left");
        seen
    });
    let expected = alone(&clients);
    for ((client, seen), expected) in clients.iter().zip(&seen).zip(&expected) {
        check_one(client, seen, expected)
            .map_err(|broken| format!("{}: {broken}", client.request.id))?;
    }
    Ok(seen)
}

/// A request ends exactly once, and its content does not depend on its company nor on faults.
fn check_one(client: &Client, seen: &Transcript, expected: &Transcript) -> Result<(), String> {
    let cut = |choice: &world::Seen| choice.reason == Some(FinishReason::Timeout);
    let limited = client.request.timeout.is_some();
    for (choice, whole) in seen.choices.iter().zip(&expected.choices) {
        if !whole.text.starts_with(&choice.text) || !whole.ids.starts_with(&choice.ids) {
            return Err(format!("{choice:?} is no beginning of {whole:?}"));
        }
    }
    if client.leaves_after.is_some() {
        return Ok(());
    }
    match &seen.failed {
        None if limited && seen.choices.iter().any(cut) => Ok(()),
        None if seen.content() == expected.content() => Ok(()),
        None => Err(format!("{seen:?} is not {expected:?}")),
        Some(RequestError::QueueFull { .. }) if !seen.started => Ok(()),
        Some(RequestError::QueueTimeout { .. } | RequestError::TooBusy { .. }) if limited => Ok(()),
        Some(other) => Err(other.to_string()),
    }
}
