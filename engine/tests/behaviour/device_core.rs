//! The device core with a toy executor, one behaviour at a time.

use crate::toy::{Outcomes, ToyDevice, capacity, solo, solo_with, work};
use ropeteam_engine::batching::{BatchLimits, SelectBatch};
use ropeteam_engine::device_core::{AssignError, SeqState};
use ropeteam_engine::executor::LimitKind;
use ropeteam_engine::ids::{SeqId, TokenId};
use ropeteam_engine::plan::{ChunkResult, StepOutput, Want};
use ropeteam_engine::request::Pooling;
use ropeteam_engine::time::Time;
use ropeteam_engine::work::{DeviceFinish, Work};

fn prompt(len: u32) -> Vec<u32> {
    (0..len).map(|i| i * 7 % crate::toy::VOCAB).collect()
}

fn device(blocks: u32, prefix_cache: bool) -> ToyDevice {
    ToyDevice::new(BatchLimits::default(), capacity(blocks, 16), prefix_cache)
}

#[test]
fn four_sequences_in_half_the_pool_they_need_are_preempted_and_end_as_alone() {
    let works: Vec<Work> = (0..4)
        .map(|seq| work(seq, &prompt(10 + seq as u32), 40))
        .collect();
    let mut device = device(8, true);
    works
        .iter()
        .for_each(|work| device.core.assign(work.clone()).unwrap());
    let outcomes = device.run().0;
    assert!(device.core.snapshot().preemptions_total > 0);
    for work in works {
        assert_eq!(outcomes[&work.seq], solo(&work));
    }
}

#[test]
fn what_can_never_fit_is_refused_with_the_numbers_and_what_just_fits_runs() {
    let mut device = device(8, true);
    let refused = device.core.assign(work(1, &prompt(128), 1)).unwrap_err();
    let expected = AssignError::TooLong {
        given: 129,
        limit: 128,
        which: LimitKind::Pool,
    };
    assert_eq!(refused, expected);
    device.core.assign(work(2, &prompt(127), 1)).unwrap();
    assert_eq!(
        device.core.assign(work(2, &prompt(3), 1)),
        Err(AssignError::Duplicate(SeqId(2)))
    );
    assert_eq!(
        device.core.assign(work(3, &[], 1)),
        Err(AssignError::EmptyPrompt)
    );
    let outcomes = device.run().0;
    assert_eq!(outcomes[&SeqId(2)].finish, Some(DeviceFinish::Length));
}

#[test]
fn a_sequence_that_fills_the_pool_ends_by_length() {
    let mut device = device(4, true);
    device.core.assign(work(1, &prompt(20), 1000)).unwrap();
    let outcome = device.run().0.remove(&SeqId(1)).unwrap();
    assert_eq!(
        (outcome.tokens.len(), outcome.finish),
        (44, Some(DeviceFinish::Length))
    );
    assert_eq!(device.core.load().blocks_available(), 4);
}

#[test]
fn a_cancelled_sequence_frees_its_blocks_at_once_wherever_it_is() {
    let mut device = device(8, false);
    device.core.assign(work(1, &prompt(40), 9)).unwrap();
    device.core.assign(work(2, &prompt(120), 1)).unwrap();
    let updates = device.step_with(
        |_| (),
        |core| {
            assert!(core.cancel(SeqId(1)), "in flight");
            assert_eq!(core.load().blocks_free, 8);
        },
    );
    assert_eq!(
        updates,
        Some(vec![]),
        "what the step brought for it is dropped"
    );
    assert!(device.core.cancel(SeqId(2)), "waiting");
    assert!(!device.core.cancel(SeqId(2)), "gone");
    assert!(device.core.is_idle());
    assert_eq!(device.step(), None);
}

#[test]
fn a_full_prefix_hit_still_computes_the_last_token() {
    for len in [15, 16, 17, 31, 32, 33, 48, 64] {
        let mut device = device(64, true);
        let works = [work(1, &prompt(len), 5), work(2, &prompt(len), 5)];
        let mut cached = Vec::new();
        for work in &works {
            device.core.assign(work.clone()).unwrap();
            let first = device.step().unwrap();
            cached.push(first[0].started.unwrap().cached_tokens);
            let mut outcomes = Outcomes::default();
            outcomes.add(first);
            while let Some(updates) = device.step() {
                outcomes.add(updates);
            }
            assert_eq!(outcomes.0[&work.seq], solo(work));
        }
        assert_eq!(cached, [0, (len - 1) / 16 * 16]);
    }
}

#[test]
fn equal_prompts_that_come_together_are_computed_once() {
    let mut device = device(64, true);
    let works: Vec<Work> = (1..5).map(|seq| work(seq, &prompt(70), 5)).collect();
    works
        .iter()
        .for_each(|work| device.core.assign(work.clone()).unwrap());
    let (mut outcomes, mut computed) = (Outcomes::default(), 0);
    while let Some(updates) = device.step() {
        outcomes.add(updates);
        computed += device.core.step_stats().counts.prefill_tokens;
    }
    assert_eq!(computed, 70 + 3 * (70 - 64));
    for work in works {
        assert_eq!(outcomes.0[&work.seq], solo(&work));
    }
}

#[test]
fn a_preempted_sequence_goes_before_those_that_have_not_begun() {
    let mut device = device(8, false);
    for seq in [1, 2] {
        device
            .core
            .assign(work(seq, &prompt(40 + seq as u32), 60))
            .unwrap();
    }
    while device.core.snapshot().preemptions_total == 0 {
        device.step().unwrap();
    }
    let mut urgent = work(3, &prompt(30), 1);
    urgent.priority = -1;
    device.core.assign(urgent).unwrap();
    let states: Vec<_> = device
        .core
        .snapshot()
        .sequences
        .iter()
        .map(|s| (s.seq.0, s.state))
        .collect();
    let expected = [
        (1, SeqState::Decode),
        (2, SeqState::Preempted),
        (3, SeqState::Waiting),
    ];
    assert_eq!(states, expected);
}

#[test]
fn a_sequence_begins_only_while_blocks_are_left_for_those_that_run() {
    let mut device = device(8, false);
    device.core.assign(work(1, &prompt(10), 60)).unwrap();
    device.step().unwrap();
    // One block is held and one must stay free for the sequence that runs.
    device.core.assign(work(2, &prompt(100), 1)).unwrap();
    device.step().unwrap();
    assert_eq!(device.core.load().running, 1);
    device.core.assign(work(3, &prompt(90), 5)).unwrap();
    device.core.cancel(SeqId(2));
    device.step().unwrap();
    assert_eq!(device.core.load().running, 2);
}

#[test]
fn sequences_with_different_salts_share_nothing() {
    let mut device = device(64, true);
    device.core.assign(work(1, &prompt(50), 1)).unwrap();
    device.run();
    let mut other = work(2, &prompt(50), 1);
    other.cache_salt = 1;
    device.core.assign(other).unwrap();
    assert_eq!(device.step().unwrap()[0].started.unwrap().cached_tokens, 0);
}

#[test]
fn prompt_logprobs_are_computed_though_the_prefix_is_cached() {
    let mut device = device(64, true);
    device.core.assign(work(1, &prompt(100), 1)).unwrap();
    device.run();
    let mut asking = work(2, &prompt(100), 2);
    asking.prompt_logprobs = Some(2);
    device.core.assign(asking.clone()).unwrap();
    let outcome = device.run().0.remove(&SeqId(2)).unwrap();
    let values = outcome.prompt_logprobs.clone().unwrap();
    assert_eq!(values.len(), 100);
    assert_eq!(values[0].logprob, None);
    assert!(
        values[1..]
            .iter()
            .all(|v| v.logprob.is_some_and(|p| p <= 0.0) && v.top.len() == 2)
    );
    assert_eq!(outcome, solo(&asking));
}

#[test]
fn a_vector_of_a_prompt_depends_on_neither_chunks_nor_cache_nor_company() {
    for how in [Pooling::Mean, Pooling::Last] {
        let pooling = |seq: u64| Work {
            pooling: Some(how),
            ..work(seq, &prompt(100), 1)
        };
        let alone = solo(&pooling(1));
        let vector = alone.pooled.as_ref().expect("a vector");
        assert_eq!(
            (vector.len(), alone.finish),
            (4, Some(DeviceFinish::Pooled))
        );
        assert!(alone.tokens.is_empty(), "nothing is generated");
        let mut device = device(64, true);
        device.core.assign(work(2, &prompt(90), 40)).unwrap();
        device.step().unwrap();
        device.core.assign(pooling(1)).unwrap();
        device.core.assign(pooling(3)).unwrap();
        let mut outcomes = device.run();
        assert_eq!(outcomes.0.remove(&SeqId(1)), Some(alone.clone()));
        assert_eq!(outcomes.0.remove(&SeqId(3)), Some(alone));
    }
}

#[test]
fn end_ids_are_not_produced_before_min_tokens() {
    let free = solo(&work(1, &prompt(9), 30));
    let mut ending = work(1, &prompt(9), 30);
    ending.end_ids = [free.tokens[0].id, free.tokens[1].id].into();
    let short = solo(&ending);
    assert_eq!(
        (short.tokens.len(), short.finish),
        (1, Some(DeviceFinish::EndId))
    );
    ending.min_tokens = 6;
    let held = solo(&ending);
    assert!(held.tokens.len() > 6);
    let first_six = &held.tokens[..6];
    assert!(
        first_six
            .iter()
            .all(|token| !ending.end_ids.contains(&token.id))
    );
}

#[test]
fn a_row_without_a_sound_token_ends_its_own_sequence_only() {
    let mut device = device(64, true);
    let mut suspicious = work(1, &prompt(9), 5);
    suspicious.logprobs = Some(0);
    device.core.assign(suspicious).unwrap();
    device.core.assign(work(2, &prompt(5), 5)).unwrap();
    device.core.assign(work(3, &prompt(6), 5)).unwrap();
    let plan = device.core.plan(Time::default()).unwrap();
    assert_eq!(plan.chunks[0].want, Want::LastLogits);
    assert_eq!(plan.chunks[2].want, Want::Argmax);
    let output = StepOutput {
        results: vec![
            ChunkResult::Logits { first: 0, count: 1 },
            ChunkResult::Best(TokenId(3)),
            ChunkResult::Nothing,
        ],
        logits: vec![f32::NAN; crate::toy::VOCAB as usize],
        vocab: crate::toy::VOCAB as usize,
        ..StepOutput::default()
    };
    let updates = device.core.apply(&output, Time::default(), None).unwrap();
    assert_eq!(updates[0].finish, Some(DeviceFinish::BadLogits));
    assert!(updates[0].tokens.is_empty());
    assert_eq!(
        (updates[1].finish, updates[1].tokens[0].id),
        (None, TokenId(3))
    );
    assert_eq!(updates[2].finish, Some(DeviceFinish::BadLogits));
    device.core.check().unwrap();
}

#[test]
fn an_output_that_does_not_fit_the_plan_is_a_fault() {
    let mut device = device(64, true);
    device.core.assign(work(1, &prompt(9), 5)).unwrap();
    device.core.plan(Time::default()).unwrap();
    let fault = device
        .core
        .apply(&StepOutput::default(), Time::default(), None)
        .unwrap_err();
    assert!(fault.detail.contains("0 results for 1 chunks"), "{fault}");
}

#[test]
fn a_static_batch_runs_until_all_its_members_are_done() {
    let limits = BatchLimits {
        continuous_batching: false,
        max_prefill_batch_size: 2,
        chunk_tokens: 8,
        ..BatchLimits::default()
    };
    let mut device = ToyDevice::new(limits, capacity(64, 16), false);
    for (seq, max_tokens) in [(1, 2), (2, 5), (3, 1)] {
        device
            .core
            .assign(work(seq, &prompt(4 * seq as u32), max_tokens))
            .unwrap();
    }
    let mut seen = Vec::new();
    while let Some(updates) = device.step_with(
        |plan| seen.push(plan.chunks.iter().map(|c| c.seq.0).collect::<Vec<_>>()),
        |_| (),
    ) {
        drop(updates);
    }
    let batches: [&[u64]; 7] = [&[1, 2], &[1, 2], &[2], &[2], &[2], &[3], &[3]];
    assert_eq!(seen, batches);
}

#[test]
fn a_decoding_sequence_goes_on_while_a_long_prompt_is_computed() {
    for select in [SelectBatch::PrefillFirst, SelectBatch::DecodeFirst] {
        let limits = BatchLimits {
            select,
            chunk_tokens: 32,
            ..BatchLimits::default()
        };
        let mut device = ToyDevice::new(limits, capacity(64, 16), false);
        device.core.assign(work(1, &prompt(5), 50)).unwrap();
        device.step();
        device.core.assign(work(2, &prompt(200), 1)).unwrap();
        while device
            .core
            .snapshot()
            .sequences
            .iter()
            .any(|s| s.state != SeqState::Decode)
        {
            let updates = device
                .step_with(|plan| assert!(plan.tokens() <= 33), |_| ())
                .unwrap();
            assert!(
                updates
                    .iter()
                    .any(|u| u.seq == SeqId(1) && u.tokens.len() == 1)
            );
            if updates
                .iter()
                .any(|u| u.seq == SeqId(2) && u.finish.is_some())
            {
                break;
            }
        }
    }
}

#[test]
fn right_guesses_save_steps_and_change_no_token() {
    let limits = BatchLimits {
        speculate_rows: 16,
        ..BatchLimits::default()
    };
    let work = work(1, &[1, 2, 3], 60);
    let habit = 9.0;
    let mut device = ToyDevice::new(limits, capacity(64, 16), true);
    device.executor.habit = habit;
    device.core.assign(work.clone()).unwrap();
    let (mut outcomes, mut steps, mut drafted, mut accepted) = (Outcomes::default(), 0, 0, 0);
    while let Some(updates) = device.step() {
        outcomes.add(updates);
        device.core.check().unwrap();
        let stats = device.core.step_stats().counts;
        (drafted, accepted) = (
            drafted + stats.draft_tokens,
            accepted + stats.accepted_tokens,
        );
        steps += 1;
    }
    assert_eq!(outcomes.0[&SeqId(1)], solo_with(&work, habit));
    assert_eq!(steps + accepted, 60, "a right guess saves one step");
    assert!(
        accepted > 40 && drafted >= accepted,
        "{accepted} of {drafted}"
    );
}

#[test]
fn a_full_batch_and_a_prompt_leave_no_room_for_guesses() {
    let limits = BatchLimits {
        speculate_rows: 4,
        ..BatchLimits::default()
    };
    let mut device = ToyDevice::new(limits, capacity(64, 16), true);
    device.executor.habit = 9.0;
    let assign = |device: &mut ToyDevice, seq| {
        device.core.assign(work(seq, &[1, 2, 3], 400)).unwrap();
    };
    let drafts_in_steps = |device: &mut ToyDevice, steps: u32| {
        let drafts = (0..steps).map(|_| {
            device.step();
            device.core.step_stats().counts.draft_tokens
        });
        drafts.sum::<u32>()
    };
    assign(&mut device, 1);
    assert!(drafts_in_steps(&mut device, 40) > 0);
    assign(&mut device, 2);
    assert_eq!(drafts_in_steps(&mut device, 1), 0, "its prompt is computed");
    assign(&mut device, 3);
    drafts_in_steps(&mut device, 1);
    assert_eq!(drafts_in_steps(&mut device, 20), 0, "3 of 4 rows are taken");
}

/// Runs steps on a device that takes 8 ms a step with decodes and 0.5 ms a prompt token, as long as `go_on`; returns the times in ms.
fn timed(device: &mut ToyDevice, clock: &mut f64, go_on: impl Fn(&ToyDevice) -> bool) -> Vec<f64> {
    let mut times = Vec::new();
    while go_on(device)
        && device.step_at(*clock, |stats| {
            let decode = if stats.decode_seqs > 0 { 8.0 } else { 0.0 };
            let took = decode + 0.5 * f64::from(stats.prefill_tokens);
            times.push(took);
            *clock += took * 1e-3;
            *clock
        })
    {}
    times
}

#[test]
fn a_prompt_beside_decodes_stretches_their_steps_within_bounds_and_alone_fills_its_chunks() {
    let mut device = device(512, false);
    let mut clock = 0.0;
    for seq in 0..4 {
        device.core.assign(work(seq, &prompt(100), 1000)).unwrap();
    }
    let starting = timed(&mut device, &mut clock, |d| {
        d.core.load().assigned_total < 5
            && d.core
                .snapshot()
                .sequences
                .iter()
                .any(|s| s.output_len_tokens < 20)
    });
    assert_eq!(starting[0], 200.0, "four prompts at once");
    device.core.assign(work(9, &prompt(1024), 5)).unwrap();
    let prefilling = |d: &ToyDevice| {
        d.core
            .snapshot()
            .sequences
            .iter()
            .any(|s| s.seq == SeqId(9) && s.output_len_tokens == 0)
    };
    let mixed = timed(&mut device, &mut clock, prefilling);
    let longest = mixed.iter().copied().fold(0.0, f64::max);
    assert!(longest <= 2.5 * 8.0, "{longest} ms");
    assert!(mixed.len() <= 1024 / 20, "{} steps", mixed.len());
}

#[test]
fn blocks_come_early_where_an_executor_looks_ahead_and_some_are_free() {
    let blocks = |lookahead: u32, pool: u32| {
        let mut device = ToyDevice::new(BatchLimits::default(), capacity(pool, 4), false);
        device.core.look_ahead(lookahead);
        device.core.assign(work(1, &[1, 2], 8)).expect("it fits");
        let mut held = Vec::new();
        while device
            .step_with(|plan| held.push(plan.chunks[0].blocks.len()), |_| ())
            .is_some()
        {
            device.core.check().expect("the invariants hold");
        }
        held
    };
    // Two prompt tokens, then positions 2 to 8.
    assert_eq!(blocks(0, 8), [1, 1, 1, 2, 2, 2, 2, 3]);
    assert_eq!(blocks(1, 8), [1, 1, 2, 2, 2, 2, 3, 3]);
    assert_eq!(blocks(1, 3), [1, 1, 2, 2, 2, 2, 3, 3]);
    let outcome = |lookahead| {
        let mut device = ToyDevice::new(BatchLimits::default(), capacity(5, 4), true);
        device.core.look_ahead(lookahead);
        for seq in 1..4 {
            device
                .core
                .assign(work(seq, &[seq as u32, 2, 3], 8))
                .expect("it fits");
        }
        device.run()
    };
    // A full pool takes nothing from anybody.
    assert_eq!(outcome(1).0, outcome(0).0);
}
