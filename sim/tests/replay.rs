//! A device dies at every step of a run in which more than one thing goes on: constraints, choices, two devices, a pool that is too
//! small. Each client sees the very bytes it would have seen. Single streams: `device_loss.rs`; real processes: the server's tests.

mod world;

use ropeteam_engine::constraint::{Constraint, ConstraintFailed, ConstraintState, TokenMask};
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::observe::Event;
use ropeteam_engine::request::GenerateRequest;
use ropeteam_sim::faults::{Fault, FaultPlan};
use std::sync::Arc;
use world::{Transcript, World, assert_all_is_free, in_virtual_time, read, request, sampled};

/// What the clients saw, and what the run was like.
struct Run {
    seen: Vec<Transcript>,
    replays: usize,
    preemptions: usize,
}

/// Runs the requests, so many at once, those behind them after them.
fn run(world: &World, requests: &[GenerateRequest], at_once: usize) -> Run {
    in_virtual_time(async {
        let engine = world.start().await;
        let mut events = engine.subscribe();
        let mut seen = Vec::new();
        for part in requests.chunks(at_once) {
            let generations: Vec<_> = part.iter().map(|r| engine.generate(r.clone())).collect();
            for generation in generations {
                seen.push(read(generation).await);
            }
        }
        assert_all_is_free(&engine).await;
        let (mut replays, mut preemptions) = (0, 0);
        while let Some(event) = events.try_next() {
            match &*event {
                Event::Replayed { .. } => replays += 1,
                Event::Preempted { seqs, .. } => preemptions += seqs.len(),
                _ => {}
            }
        }
        Run {
            seen,
            replays,
            preemptions,
        }
    })
}

/// Gives each device a fault at `step` where `dies` says so.
fn faults(dies: &[bool], step: u64) -> Vec<Arc<FaultPlan>> {
    let plan = |&dies: &bool| FaultPlan::new(dies.then_some((step, Fault::Error)));
    dies.iter().map(plan).collect()
}

/// Compares every run in which the devices that `dies` marks fail at some step with the undisturbed one on one device.
fn check(
    make: impl Fn(Vec<Arc<FaultPlan>>) -> World,
    dies: &[bool],
    requests: &[GenerateRequest],
    at_once: usize,
) {
    let content = |run: &Run| run.seen.iter().map(Transcript::content).collect::<Vec<_>>();
    let alone = World::undisturbed();
    let expected: Vec<_> = requests
        .iter()
        .flat_map(|request| content(&run(&alone, std::slice::from_ref(request), 1)))
        .collect();
    let plans = faults(&vec![false; dies.len()], 0);
    assert_eq!(
        content(&run(&make(plans.clone()), requests, at_once)),
        expected
    );
    let steps = plans.iter().map(|plan| plan.steps()).max().unwrap_or(0);
    assert!(steps > 10, "the run is long enough to mean something");
    let mut replays = 0;
    for step in 0..steps {
        let found = run(&make(faults(dies, step)), requests, at_once);
        assert_eq!(content(&found), expected, "step {step}");
        replays += found.replays;
    }
    assert!(
        replays > steps as usize / 2,
        "{replays} replays in {steps} runs"
    );
}

/// Allows a token or two, which depend on all before it.
#[derive(Debug)]
struct Winding;

#[derive(Debug)]
struct WindingState(u32);

impl WindingState {
    fn after(output: &[TokenId]) -> Self {
        let mut state = WindingState(1);
        output.iter().for_each(|&id| state.push(id));
        state
    }
}

impl Constraint for Winding {
    fn begin(&self, output: &[TokenId]) -> Box<dyn ConstraintState> {
        Box::new(WindingState::after(output))
    }

    fn source(&self) -> Option<Arc<str>> {
        None
    }
}

impl ConstraintState for WindingState {
    fn push(&mut self, id: TokenId) {
        self.0 = self.0.wrapping_mul(31).wrapping_add(id.0);
    }

    fn is_ready(&mut self) -> bool {
        true
    }

    fn mask(&mut self) -> Result<TokenMask, ConstraintFailed> {
        let first = self.0 % 26 + 1;
        Ok(TokenMask::of(&[TokenId(first), TokenId(first % 26 + 1)]))
    }
}

/// Of every kind one: greedy, sampled, penalised, constrained, four choices, with log-probabilities.
fn mixed() -> Vec<GenerateRequest> {
    let mut penalised = sampled("penalised", "the rope holds and holds", 5);
    penalised.sampling.repetition_penalty = 1.3;
    penalised.sampling.presence_penalty = 0.4;
    vec![
        request("greedy", "the rope holds"),
        sampled("sampled", "a longer prompt that takes blocks", 11),
        penalised,
        GenerateRequest {
            constraint: Some(Arc::new(Winding)),
            ..sampled("constrained", "the rope holds", 3)
        },
        GenerateRequest {
            choices: 4,
            ..sampled("choices", "four of them", 7)
        },
        GenerateRequest {
            logprobs: Some(3),
            ..sampled("logprobs", "the rope", 2)
        },
    ]
}

#[test]
fn every_kind_of_request_survives_alone_at_every_step() {
    for request in mixed() {
        check(World::new, &[true], &[request], 1);
    }
}

#[test]
fn all_of_them_together_survive_at_every_step() {
    check(World::new, &[true], &mixed(), 6);
}

#[test]
fn with_two_devices_one_or_both_may_die_at_every_step() {
    check(World::new, &[true, false], &mixed(), 6);
    check(World::new, &[true, true], &mixed(), 6);
}

/// A pool for two of the requests, so that others are preempted for them and the prefix cache keeps nothing long.
fn narrow(faults: Vec<Arc<FaultPlan>>) -> World {
    let mut world = World::new(faults);
    world.capacity.blocks = 24;
    world
}

#[test]
fn preempted_sequences_survive_at_every_step() {
    let undisturbed = run(&narrow(faults(&[false], 0)), &mixed(), 6);
    assert!(undisturbed.preemptions > 0, "else the pool is too large");
    check(narrow, &[true], &mixed(), 6);
}

#[test]
fn blocks_that_the_prefix_cache_shared_and_gave_up_come_again_at_every_step() {
    let again: Vec<_> = (0..2)
        .flat_map(|_| ["the rope holds", "the rope breaks", "another rope"])
        .zip(0..)
        .map(|(prompt, n)| sampled(&format!("{n}"), prompt, n % 3))
        .collect();
    check(narrow, &[true], &again, 2);
}
