//! A device dies at every step of a short run: the client sees the very bytes it would have seen.

mod world;

use ropeteam_actors::generation::GenerateEvent;
use ropeteam_engine::ids::DeviceId;
use ropeteam_engine::request::{FinishReason, GenerateRequest, Pooling, StopRules};
use ropeteam_sim::faults::{Fault, FaultPlan};
use std::time::Duration;
use world::{Transcript, World, assert_all_is_free, in_virtual_time, read, request, sampled};

/// Runs the requests together and returns what their clients saw.
fn run(world: World, requests: &[GenerateRequest]) -> Vec<Transcript> {
    in_virtual_time(async {
        let engine = world.start().await;
        let generations: Vec<_> = requests
            .iter()
            .map(|r| engine.generate(r.clone()))
            .collect();
        let mut seen = Vec::new();
        for generation in generations {
            seen.push(read(generation).await);
        }
        assert_all_is_free(&engine).await;
        seen
    })
}

fn contents(seen: &[Transcript]) -> Vec<impl PartialEq + std::fmt::Debug + use<>> {
    seen.iter().map(Transcript::content).collect()
}

/// The requests give the same bytes whatever goes wrong with the only device at whatever step.
fn check_every_step(requests: &[GenerateRequest]) {
    let undisturbed = FaultPlan::new([]);
    let expected = run(World::new(vec![undisturbed.clone()]), requests);
    assert!(
        expected
            .iter()
            .all(|t| t.failed.is_none() && !t.choices.is_empty())
    );
    let steps = undisturbed.steps();
    assert!(steps > 10, "the run is long enough to mean something");
    for step in 0..steps {
        for fault in [Fault::Error, Fault::Panic, Fault::Hang] {
            let faults = FaultPlan::new([(step, fault)]);
            let seen = run(World::new(vec![faults.clone()]), requests);
            assert_eq!(
                contents(&seen),
                contents(&expected),
                "{fault:?} at step {step}"
            );
            assert!(faults.steps() > step, "the fault did happen");
        }
    }
}

#[test]
fn a_greedy_stream_survives_its_device_at_every_step() {
    check_every_step(&[request("a", "the rope holds")]);
}

#[test]
fn a_sampled_stream_survives_its_device_at_every_step() {
    check_every_step(&[sampled("a", "the rope holds", 11)]);
}

#[test]
fn penalties_are_rebuilt_from_the_output() {
    let mut penalised = sampled("a", "the rope holds", 5);
    penalised.sampling.repetition_penalty = 1.3;
    penalised.sampling.frequency_penalty = 0.4;
    check_every_step(&[penalised]);
}

#[test]
fn guessing_ahead_changes_nothing_whatever_step_the_device_dies_at() {
    let requests = [sampled("a", "rope rope rope rope ro", 11)];
    let expected = contents(&run(World::undisturbed(), &requests));
    for step in 0..24 {
        let mut world = World::new(vec![FaultPlan::new([(step, Fault::Error)])]);
        world.config.batching.speculate_rows = 16;
        assert_eq!(contents(&run(world, &requests)), expected, "step {step}");
    }
}

#[test]
fn three_choices_survive_their_device_at_every_step() {
    let three = GenerateRequest {
        choices: 3,
        ..sampled("a", "the rope holds", 3)
    };
    check_every_step(&[three]);
}

#[test]
fn a_stop_string_that_is_half_held_back_survives() {
    let free = run(World::undisturbed(), &[sampled("a", "stop here", 21)]);
    let text = &free[0].choices[0].text;
    let strings = vec![text[12..16].to_owned()];
    let stop = StopRules {
        strings,
        ignore_eos: true,
        ..StopRules::default()
    };
    let stopped = GenerateRequest {
        stop,
        ..sampled("a", "stop here", 21)
    };
    let seen = run(World::undisturbed(), std::slice::from_ref(&stopped));
    assert!(matches!(
        seen[0].choices[0].reason,
        Some(FinishReason::StopString(_))
    ));
    check_every_step(&[stopped]);
}

#[test]
fn requests_in_company_survive_at_every_step() {
    let prompts = [
        "one",
        "a longer prompt that takes several blocks",
        "two",
        "the same words",
    ];
    let requests: Vec<_> = (0..)
        .zip(prompts)
        .map(|(i, prompt)| sampled(prompt, prompt, i))
        .collect();
    check_every_step(&requests);
}

#[test]
fn log_probabilities_of_the_prompt_are_told_once() {
    let wanted = GenerateRequest {
        prompt_logprobs: Some(2),
        ..request("a", "the rope")
    };
    for step in 0..6 {
        in_virtual_time(async {
            let engine = World::new(vec![FaultPlan::new([(step, Fault::Panic)])])
                .start()
                .await;
            let mut generation = engine.generate(wanted.clone());
            let Some(GenerateEvent::Started(started)) = generation.next_event().await else {
                panic!("started comes first");
            };
            let logprobs = started.prompt_logprobs.expect("they were asked for");
            assert_eq!(logprobs.len(), started.prompt_ids.len());
        });
    }
}

#[test]
fn a_vector_is_the_same_after_a_death_and_a_cancelled_one_leaves_nothing() {
    let wanted = GenerateRequest {
        pooling: Some(Pooling::Mean),
        max_tokens: Some(1),
        ..request("a", &"the rope that holds ".repeat(9))
    };
    let vector = |faults: Vec<(u64, Fault)>| {
        in_virtual_time(async {
            let engine = World::new(vec![FaultPlan::new(faults)]).start().await;
            drop(engine.generate(wanted.clone()));
            let mut generation = engine.generate(wanted.clone());
            while let Some(event) = generation.next_event().await {
                if let GenerateEvent::Done(done) = event {
                    assert_eq!(done.reason, FinishReason::Pooled);
                    assert_all_is_free(&engine).await;
                    return done.embedding;
                }
            }
            None
        })
    };
    let expected = vector(vec![]);
    assert!(expected.as_ref().is_some_and(|vector| vector.len() == 16));
    for step in 0..4 {
        assert_eq!(
            vector(vec![(step, Fault::Panic)]),
            expected,
            "at step {step}"
        );
    }
}

#[test]
fn the_other_device_takes_over_at_once() {
    let without_restart = |faults| {
        let mut world = World::new(faults);
        world.config.restart.budget = 0;
        world.config.restart.trial_after = None;
        world
    };
    let requests: Vec<_> = (0..6)
        .map(|i| sampled(&format!("r{i}"), "who goes on", i))
        .collect();
    let expected = run(World::undisturbed(), &requests);
    for step in 0..12 {
        let faults = vec![FaultPlan::new([(step, Fault::Panic)]), FaultPlan::new([])];
        let seen = run(without_restart(faults), &requests);
        assert_eq!(contents(&seen), contents(&expected), "at step {step}");
        let slowest = seen.iter().map(|t| t.choices[0].usage.total_time).max();
        assert!(slowest < Some(Duration::from_secs(5)), "{slowest:?}");
    }
}

#[test]
fn a_sequence_that_kills_its_device_again_and_again_is_given_up() {
    let deadly = FaultPlan::new((0..100).map(|step| (step, Fault::Panic)));
    let mut world = World::new(vec![deadly.clone()]);
    world.config.restart.budget = 50;
    let seen = run(world, &[request("a", "poison")]);
    assert_eq!(seen[0].choices[0].reason, Some(FinishReason::DeviceError));
    assert_eq!(deadly.steps(), 3, "three deaths, then no more tries");
}

#[test]
fn a_deadly_request_is_given_up_and_its_company_lives() {
    let company: Vec<_> = (0..6)
        .map(|n| sampled(&format!("{n}"), "in good faith", n))
        .collect();
    let expected = contents(&run(World::undisturbed(), &company));
    let mut world = World::undisturbed();
    world.poison = "poison";
    world.config.restart.budget = 50;
    let mut requests = company;
    requests.insert(3, request("deadly", "poison in the rope"));
    let mut seen = run(world, &requests);
    let deadly = seen.remove(3);
    assert_eq!(deadly.choices[0].reason, Some(FinishReason::DeviceError));
    assert_eq!(contents(&seen), expected);
}

#[test]
fn a_stream_that_goes_on_after_every_death_is_never_given_up() {
    // Each life brings two tokens, which is more deaths than a deadly sequence is granted.
    let deaths: Vec<_> = (1..9).map(|life| (life * 3 - 1, Fault::Error)).collect();
    let expected = contents(&run(World::undisturbed(), &[request("a", "tenacious")]));
    let mut world = World::new(vec![FaultPlan::new(deaths)]);
    world.config.restart.budget = 50;
    assert_eq!(
        contents(&run(world, &[request("a", "tenacious")])),
        expected
    );
}

#[test]
fn a_device_that_was_given_up_is_tried_again_and_what_waits_for_it_is_served() {
    let expected = contents(&run(World::undisturbed(), &[request("a", "patience")]));
    let deadly = FaultPlan::new((0..3).map(|step| (step, Fault::Error)));
    let mut world = World::new(vec![deadly]);
    world.config.restart.budget = 2;
    world.config.restart.trial_after = Some(Duration::from_secs(60));
    world.config.max_interruptions = 100;
    in_virtual_time(async {
        let engine = world.start().await;
        let waiting = engine.generate(request("a", "patience"));
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(!engine.is_ready() && engine.state().is_hopeless());
        let impatient = GenerateRequest {
            timeout: Some(Duration::from_secs(10)),
            ..request("b", "no patience")
        };
        // Refused with the truth when its time is up, not before and not later.
        let refused = read(engine.generate(impatient)).await;
        assert!(
            refused.failed.is_some() || refused.choices[0].reason == Some(FinishReason::Timeout)
        );
        assert_eq!(contents(&[read(waiting).await]), expected);
        assert!(engine.is_ready());
    });
}

#[test]
fn a_device_that_fails_too_often_is_given_up_and_its_requests_end() {
    let deadly = FaultPlan::new((0..100).map(|step| (step, Fault::Error)));
    let mut world = World::new(vec![deadly]);
    world.config.restart.budget = 2;
    world.config.restart.trial_after = None;
    world.config.max_interruptions = 100;
    in_virtual_time(async {
        let engine = world.start().await;
        let seen = read(engine.generate(request("a", "no hope"))).await;
        assert_eq!(seen.choices[0].reason, Some(FinishReason::DeviceError));
        assert!(!engine.is_ready() && engine.state().is_hopeless());
        let refused = read(engine.generate(request("b", "still none"))).await;
        assert_eq!(
            refused.failed,
            Some(ropeteam_actors::generation::RequestError::NoDevice)
        );
    });
}

#[test]
fn an_operator_revives_a_device_that_was_given_up() {
    let deadly = FaultPlan::new((0..3).map(|step| (step, Fault::Error)));
    let mut world = World::new(vec![deadly]);
    world.config.restart.budget = 2;
    world.config.restart.trial_after = None;
    world.config.max_interruptions = 100;
    in_virtual_time(async {
        let engine = world.start().await;
        read(engine.generate(request("a", "no hope"))).await;
        assert!(engine.restart(DeviceId(0)).await);
        assert!(engine.ready().await);
        let seen = read(engine.generate(request("b", "hope"))).await;
        assert_eq!(seen.choices[0].reason, Some(FinishReason::Length));
        assert!(
            !engine.restart(DeviceId(9)).await,
            "there is no such device"
        );
    });
}

#[test]
fn a_requested_restart_in_the_middle_of_a_stream_is_not_seen() {
    let wanted = sampled("a", "carry on", 8);
    let expected = run(World::undisturbed(), std::slice::from_ref(&wanted));
    let seen = in_virtual_time(async {
        let engine = World::undisturbed().start().await;
        let mut generation = engine.generate(wanted);
        let mut transcript = Transcript::default();
        let mut count = 0;
        while let Some(event) = generation.next_event().await {
            transcript.add(event);
            count += 1;
            if count % 5 == 0 {
                assert!(engine.restart(DeviceId(0)).await);
            }
        }
        let restarts = engine.devices().await[0].lives.restarts;
        assert!(restarts >= 3, "{restarts}");
        transcript
    });
    assert_eq!(seen.content(), expected[0].content());
}

#[test]
fn faults_are_told_on_the_bus() {
    in_virtual_time(async {
        let world = World::new(vec![FaultPlan::new([(3, Fault::Panic)])]);
        let engine = world.start().await;
        let mut events = engine.subscribe();
        read(engine.generate(request("a", "listen"))).await;
        let mut names = Vec::new();
        while let Some(event) = events.try_next() {
            use ropeteam_engine::observe::Event;
            match &*event {
                Event::DeviceDied { interrupted, .. } => {
                    names.push(format!("died {}", interrupted.len()));
                }
                Event::Restarting { .. } => names.push("restarting".into()),
                Event::DeviceUp { epoch, .. } => names.push(format!("up {epoch}")),
                Event::Replayed { .. } => names.push("replayed".into()),
                Event::Finished(request) => names.push(format!("finished {}", request.replays)),
                _ => {}
            }
        }
        names.sort();
        assert_eq!(
            names,
            ["died 1", "finished 1", "replayed", "restarting", "up 2"]
        );
    });
}

#[test]
fn a_drain_waits_for_sequences_that_their_dying_device_gave_back() {
    for step in 1..12 {
        in_virtual_time(async {
            let world = World::new(vec![FaultPlan::new([(step, Fault::Panic)])]);
            let engine = world.start().await;
            let mut generation = engine.generate(request("a", "who goes on"));
            let client = async {
                let mut reason = None;
                while let Some(event) = generation.next_event().await {
                    if let GenerateEvent::Done(done) = event {
                        reason = Some(done.reason);
                    }
                }
                (reason, tokio::time::Instant::now())
            };
            let operator = async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let outcome = engine.drain(Duration::from_secs(60)).await;
                (outcome.cut_off, tokio::time::Instant::now())
            };
            let ((reason, ended), (cut_off, drained)) = tokio::join!(client, operator);
            assert_eq!((reason, cut_off), (Some(FinishReason::Length), 0));
            let early = ended.saturating_duration_since(drained);
            assert!(early < Duration::from_millis(5), "step {step}: {early:?}");
        });
    }
}
