//! The device core under random workloads: every sequence gets the tokens of its solo run.

use crate::constraints::Rising;
use crate::toy::{Ledger, Outcome, Outcomes, ToyDevice, capacity, solo_with, work};
use proptest::prelude::*;
use ropeteam_engine::batching::{BatchLimits, SelectBatch};
use ropeteam_engine::device_core::DeviceCore;
use ropeteam_engine::executor::Capacity;
use ropeteam_engine::ids::{SeqId, TokenId};
use ropeteam_engine::plan::{Chunk, StepPlan, Want};
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_engine::work::Work;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// One sequence of a random workload.
#[derive(Clone, Debug)]
struct Guest {
    work: Work,
    arrives_at: usize,
    cancel_at: Option<usize>,
}

/// A random workload with the limits of its device.
#[derive(Clone, Debug)]
struct Workload {
    guests: Vec<Guest>,
    limits: BatchLimits,
    capacity: Capacity,
    prefix_cache: bool,
    /// See `ToyExecutor`.
    habit: f32,
    /// Steps after which the device is lost and all begins again on a new one.
    faults: HashSet<usize>,
    /// The new device finds the memory of the lost one.
    keeps: bool,
}

fn guest(seq: u64) -> impl Strategy<Value = Guest> {
    let prompt = (0u32..3, 1usize..70, 0u32..3);
    let sampling = (0u32..4, any::<u64>(), prop::bool::weighted(0.3));
    let asked = (
        prop::option::weighted(0.2, 0u32..4),
        prop::option::weighted(0.2, 0u32..3),
        0u32..4,
        prop::option::weighted(0.3, 0u32..4),
    );
    let times = (0usize..30, prop::option::weighted(0.2, 0usize..60));
    (prompt, sampling, asked, times, 1u32..40, -1i32..2).prop_map(
        move |(prompt, sampling, asked, times, max_tokens, priority)| {
            // Prompts of few families, so that they share prefixes.
            let (family, len, tail) = prompt;
            let tokens: Vec<u32> = (0..len as u32)
                .map(|i| (i * (family + 3) + if i > 40 { tail } else { 0 }) % crate::toy::VOCAB)
                .collect();
            let mut work = work(seq, &tokens, max_tokens);
            let (kind, seed, penalised) = sampling;
            work.sampling = SamplingParams {
                temperature: [0.0, 0.7, 1.0, 1.5][kind as usize],
                top_p: if kind == 1 { 0.8 } else { 1.0 },
                top_k: if kind == 2 { 5 } else { 0 },
                frequency_penalty: if penalised { 0.5 } else { 0.0 },
                repetition_penalty: if penalised { 1.2 } else { 1.0 },
                seed,
                ..SamplingParams::default()
            }
            .into();
            let lag;
            (work.logprobs, work.prompt_logprobs, work.min_tokens, lag) = asked;
            work.constraint = lag.map(|lag| Arc::new(Rising::late_by(lag)) as _);
            work.end_ids = [TokenId(2), TokenId(11)].into();
            work.priority = priority;
            let (arrives_at, cancel_at) = times;
            Guest {
                work,
                arrives_at,
                cancel_at,
            }
        },
    )
}

fn workload() -> impl Strategy<Value = Workload> {
    let guests = (1u64..14).prop_flat_map(|n| (0..n).map(guest).collect::<Vec<_>>());
    let batch = (1u32..6, 1u32..100, 1u32..10, 1u32..40);
    let switches = (
        any::<bool>(),
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.8),
    );
    let device = (
        0u32..20,
        prop::sample::select(vec![1u32, 4, 16]),
        1u32..100,
        1u32..40,
    );
    let faults = prop::collection::hash_set(0usize..80, 0..3);
    let guesses = (
        0u32..40,
        prop::sample::select(vec![0.0f32, 3.0, 9.0]),
        any::<bool>(),
    );
    (guests, batch, switches, device, faults, guesses).prop_map(
        |(guests, batch, switches, device, faults, (speculate_rows, habit, keeps))| {
            let (decode_first, continuous_batching, prefix_cache) = switches;
            let (spare, block_size, max_step_tokens, max_logits_rows) = device;
            Workload {
                guests,
                limits: BatchLimits {
                    max_prefill_batch_size: batch.0,
                    max_prefill_tokens: batch.1,
                    max_decode_batch_size: batch.2,
                    chunk_tokens: batch.3,
                    select: match decode_first {
                        true => SelectBatch::DecodeFirst,
                        false => SelectBatch::PrefillFirst,
                    },
                    continuous_batching,
                    speculate_rows,
                },
                capacity: Capacity {
                    // The longest sequence has 109 tokens.
                    blocks: 110u32.div_ceil(block_size) + spare,
                    max_step_tokens,
                    max_logits_rows,
                    ..capacity(0, block_size)
                },
                prefix_cache,
                habit,
                faults,
                keeps: keeps && prefix_cache,
            }
        },
    )
}

fn check_limits(plan: &StepPlan, limits: &BatchLimits, capacity: &Capacity) {
    // A chunk of one token may be a decode, one that wants all of several rows may hold guesses; other long ones are prompts.
    let lens = plan.chunks.iter().filter(|c| c.tokens.len() > 1);
    let guesses = |c: &&Chunk| matches!(c.want, Want::AllArgmax | Want::AllLogits);
    let (guessing, prompts): (Vec<_>, Vec<_>) = lens.partition(guesses);
    assert!(guessing.iter().all(|c| c.want == Want::AllLogits) || prompts.is_empty());
    let prompts = prompts.iter().map(|c| c.tokens.len());
    let rows = |want: Want, tokens: usize| match want {
        Want::Nothing | Want::Hidden => 0,
        Want::Argmax | Want::LastLogits | Want::BestLogits(_) => 1,
        Want::AllArgmax | Want::AllLogits => tokens,
    };
    assert!(plan.tokens() <= capacity.max_step_tokens as usize);
    assert!(plan.chunks.len() <= limits.max_running(capacity) as usize);
    assert!(prompts.clone().count() <= limits.max_prefill_batch_size as usize);
    assert!(prompts.clone().sum::<usize>() <= limits.max_prefill_tokens as usize);
    assert!(prompts.max().unwrap_or(0) <= limits.chunk_tokens as usize);
    let wanted: usize = plan
        .chunks
        .iter()
        .map(|c| rows(c.want, c.tokens.len()))
        .sum();
    assert!(wanted <= capacity.max_logits_rows as usize);
    let sequences: HashSet<SeqId> = plan.chunks.iter().map(|c| c.seq).collect();
    assert_eq!(
        sequences.len(),
        plan.chunks.len(),
        "a sequence has one chunk"
    );
    for chunk in &plan.chunks {
        let end = chunk.start as usize + chunk.tokens.len();
        assert_eq!(
            chunk.blocks.len(),
            end.div_ceil(capacity.block_size as usize)
        );
    }
}

/// The sequences of a lost device with what they have produced, as their sessions submit them again.
fn lost(core: &DeviceCore, guests: &[Guest], outcomes: &Outcomes) -> Vec<Work> {
    let living: HashSet<SeqId> = core.snapshot().sequences.iter().map(|s| s.seq).collect();
    let again = |guest: &Guest| {
        let mut work = guest.work.clone();
        if let Some(outcome) = outcomes.0.get(&work.seq) {
            work.output = outcome.tokens.iter().map(|token| token.id).collect();
        }
        work
    };
    let living = guests.iter().filter(|g| living.contains(&g.work.seq));
    living.map(again).collect()
}

fn run(workload: &Workload) -> HashMap<SeqId, Outcome> {
    let Workload {
        limits, capacity, ..
    } = workload;
    let new = || {
        let mut device = ToyDevice::new(limits.clone(), capacity.clone(), workload.prefix_cache);
        device.executor.habit = workload.habit;
        device
    };
    let (mut device, mut outcomes) = (new(), Outcomes::default());
    let ledger = Ledger::default();
    if workload.keeps {
        ledger.hand_to(&mut device.core);
    }
    for at in 0.. {
        // Each sequence has fewer than 110 tokens, is alone at worst, and may be preempted by each earlier one.
        assert!(
            at < 40_000,
            "somebody waits for ever: {:?}",
            device.core.snapshot()
        );
        let mut late = false;
        for guest in &workload.guests {
            if guest.arrives_at == at {
                device.core.assign(guest.work.clone()).expect("it fits");
            }
            late |= guest.arrives_at > at;
        }
        let cancelled = workload
            .guests
            .iter()
            .filter(|guest| guest.cancel_at == Some(at));
        let cancelled = cancelled.map(|guest| guest.work.seq);
        let (in_flight, before): (Vec<_>, Vec<_>) = cancelled.partition(|seq| seq.0 % 2 == 0);
        before.into_iter().for_each(|seq| {
            device.core.cancel(seq);
        });
        let cancel_in_flight = |core: &mut DeviceCore| {
            in_flight.iter().for_each(|&seq| {
                core.cancel(seq);
            });
        };
        let check = |plan: &StepPlan| check_limits(plan, limits, capacity);
        let updates = device.step_with(check, cancel_in_flight);
        device.core.check().expect("the invariants hold");
        match updates {
            Some(updates) => outcomes.add(updates),
            None => assert!(device.core.is_idle(), "there is work but no step"),
        }
        if workload.faults.contains(&at) {
            let works = lost(&device.core, &workload.guests, &outcomes);
            device = match workload.keeps {
                true => device.cut_off(limits.clone(), capacity.clone(), &ledger).0,
                false => new(),
            };
            works
                .into_iter()
                .for_each(|work| device.core.assign(work).expect("it fits still"));
        }
        if !late && device.core.is_idle() {
            break;
        }
    }
    let load = device.core.load();
    assert_eq!(
        load.blocks_available(),
        load.blocks_total,
        "all blocks came back"
    );
    outcomes.0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn tokens_do_not_depend_on_company_chunks_cache_preemption_guesses_or_faults(workload in workload()) {
        let outcomes = run(&workload);
        for guest in &workload.guests {
            let expected = solo_with(&guest.work, workload.habit);
            let outcome = outcomes.get(&guest.work.seq).cloned().unwrap_or_default();
            if outcome.finish.is_some() {
                prop_assert_eq!(&outcome, &expected);
            } else {
                prop_assert!(guest.cancel_at.is_some(), "only a cancelled sequence has no end");
                prop_assert_eq!(&outcome.tokens[..], &expected.tokens[..outcome.tokens.len()]);
            }
        }
    }
}
