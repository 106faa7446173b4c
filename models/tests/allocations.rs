//! A warm step allocates nothing: not in the runner, nor on the device, nor in the kernels and their threads.

mod tiny_models;

use ropeteam_device::Precision;
use ropeteam_engine::executor::StepExecutor;
use ropeteam_engine::plan::{Chunk, StepOutput, StepPlan, Want};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use tiny_models::{Model, Setup, folder, load};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TOKENS: [u32; 96] = [7; 96];

/// Steps as a server mixes them: chunks of prompts, then decoding, the company coming and going.
fn plans(model: &Model) -> Vec<StepPlan> {
    let decode = |place: u32, position: usize| {
        let want = if place.is_multiple_of(2) {
            Want::Argmax
        } else {
            Want::LastLogits
        };
        model.chunk(place, position, &TOKENS[..1], want)
    };
    let steps: Vec<Vec<Chunk>> = vec![
        vec![model.chunk(0, 0, &TOKENS[..40], Want::Nothing)],
        vec![model.chunk(0, 40, &TOKENS[..56], Want::Argmax)],
        vec![
            decode(0, 96),
            model.chunk(1, 0, &TOKENS[..70], Want::LastLogits),
            model.chunk(2, 0, &TOKENS[..9], Want::Nothing),
        ],
        vec![decode(0, 97)],
        vec![decode(0, 98), decode(1, 70), decode(2, 9)],
        vec![decode(2, 10), model.chunk(3, 0, &TOKENS[..3], Want::Argmax)],
        vec![decode(1, 71)],
    ];
    steps
        .into_iter()
        .map(|chunks| StepPlan { chunks })
        .collect()
}

/// Runs all steps; returns how often they allocated.
fn round(model: &mut Model, plans: &[StepPlan], output: &mut StepOutput) -> usize {
    let region = Region::new(ALLOCATOR);
    for plan in plans {
        model.runner.step(plan, output).unwrap();
    }
    let change = region.change();
    change.allocations + change.reallocations
}

#[test]
fn a_warm_step_allocates_nothing() {
    for name in ["llama", "qwen3", "glm4"] {
        for precision in [Precision::F32, Precision::Bf16] {
            let mut model = load(&folder(name), Setup::new(precision)).unwrap();
            let plans = plans(&model);
            let mut output = StepOutput::default();
            // Threads that have only just started may still allocate for themselves: of some rounds one has to be silent.
            let rounds: Vec<usize> = (0..20)
                .map(|_| round(&mut model, &plans, &mut output))
                .collect();
            assert!(
                rounds.contains(&0),
                "{name} in {precision:?}: allocations by round: {rounds:?}"
            );
        }
    }
}
