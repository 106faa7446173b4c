//! Nothing waits for ever and nothing leaks: refusals, deadlines, clients that leave, drains.

mod world;

use futures_util::future::join_all;
use ropeteam_actors::generation::{GenerateEvent, RequestError};
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::request::{
    FinishReason, GenerateRequest, Prompt, StopRules, Truncation, TruncationSide,
};
use ropeteam_sim::faults::{Fault, FaultPlan};
use std::time::Duration;
use world::{World, assert_all_is_free, in_virtual_time, read, request, sampled};

const MS: Duration = Duration::from_millis(1);

/// The last tokens of a prompt.
fn kept(keep: u32) -> Truncation {
    Truncation {
        keep,
        side: TruncationSide::Left,
    }
}

/// A device that runs one sequence at a time.
fn narrow() -> World {
    let mut world = World::undisturbed();
    world.config.batching.max_decode_batch_size = 1;
    world
}

#[test]
fn a_full_queue_answers_at_once() {
    in_virtual_time(async {
        let mut world = narrow();
        world.config.max_queue = 4;
        let engine = world.start().await;
        let running = engine.generate(request("first", "runs"));
        tokio::time::sleep(20 * MS).await;
        let waiting: Vec<_> = (0..4)
            .map(|i| engine.generate(request(&format!("w{i}"), "waits")))
            .collect();
        tokio::time::sleep(MS).await;
        let before = tokio::time::Instant::now();
        let refused = read(engine.generate(request("late", "is refused"))).await;
        assert!(before.elapsed() < 5 * MS, "{:?}", before.elapsed());
        match refused.failed {
            Some(RequestError::QueueFull {
                limit: 4,
                retry_after,
            }) => {
                assert!(retry_after > Duration::ZERO);
            }
            other => panic!("{other:?}"),
        }
        assert!(!refused.started);
        assert!(read(running).await.failed.is_none());
        for seen in join_all(waiting.into_iter().map(read)).await {
            assert_eq!(seen.choices[0].reason, Some(FinishReason::Length));
        }
        assert_all_is_free(&engine).await;
    });
}

#[test]
fn a_request_whose_choices_do_not_all_fit_in_the_queue_leaves_none_behind() {
    in_virtual_time(async {
        let mut world = narrow();
        world.config.max_queue = 4;
        let engine = world.start().await;
        let running = engine.generate(request("first", "runs"));
        tokio::time::sleep(20 * MS).await;
        let many = GenerateRequest {
            choices: 5,
            ..sampled("many", "too many", 1)
        };
        let refused = read(engine.generate(many)).await;
        assert!(matches!(
            refused.failed,
            Some(RequestError::QueueFull { .. })
        ));
        let view = engine.snapshot().await.scheduler.unwrap();
        assert_eq!((view.waiting, view.running), (0, 1));
        read(running).await;
        assert_all_is_free(&engine).await;
    });
}

#[test]
fn too_many_requests_at_once_are_refused_before_they_are_tokenised() {
    in_virtual_time(async {
        let mut world = narrow();
        world.config.max_requests = 3;
        let engine = world.start().await;
        let generations: Vec<_> = (0..5)
            .map(|i| engine.generate(request(&format!("r{i}"), "many")))
            .collect();
        let seen = join_all(generations.into_iter().map(read)).await;
        let refused = seen
            .iter()
            .filter(|t| matches!(t.failed, Some(RequestError::QueueFull { .. })));
        assert_eq!(refused.count(), 2);
        assert_all_is_free(&engine).await;
    });
}

#[test]
fn who_waits_too_long_in_the_queue_fails_with_the_time() {
    in_virtual_time(async {
        let mut world = narrow();
        world.config.queue_timeout = Some(100 * MS);
        let engine = world.start().await;
        let running = engine.generate(request("first", "runs for a while"));
        tokio::time::sleep(20 * MS).await;
        let seen = read(engine.generate(request("second", "waits"))).await;
        match seen.failed {
            Some(RequestError::QueueTimeout { waited }) => {
                assert!(waited >= 100 * MS && waited < 120 * MS, "{waited:?}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(
            read(running).await.choices[0].reason,
            Some(FinishReason::Length)
        );
        assert_all_is_free(&engine).await;
    });
}

#[test]
fn a_deadline_ends_a_stream_with_what_it_has() {
    in_virtual_time(async {
        let engine = World::undisturbed().start().await;
        let timeout = Some(150 * MS);
        let limited = GenerateRequest {
            timeout,
            ..request("a", "is cut short")
        };
        let before = tokio::time::Instant::now();
        let seen = read(engine.generate(limited)).await;
        assert!(before.elapsed() < 155 * MS, "{:?}", before.elapsed());
        let choice = &seen.choices[0];
        assert_eq!(choice.reason, Some(FinishReason::Timeout));
        assert!(!choice.ids.is_empty() && choice.ids.len() < 24);
        assert_all_is_free(&engine).await;
    });
}

#[test]
fn a_deadline_also_ends_a_request_on_a_device_that_hangs() {
    in_virtual_time(async {
        let world = World::new(vec![FaultPlan::new([(4, Fault::Hang)])]);
        let engine = world.start().await;
        let limited = GenerateRequest {
            timeout: Some(500 * MS),
            ..request("a", "hangs")
        };
        let seen = read(engine.generate(limited)).await;
        assert_eq!(seen.choices[0].reason, Some(FinishReason::Timeout));
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_all_is_free(&engine).await;
    });
}

#[test]
fn a_client_that_leaves_frees_its_blocks_within_one_step() {
    for events_read in 0..8 {
        in_virtual_time(async {
            let engine = World::undisturbed().start().await;
            let mut generation = engine.generate(request("a", "nobody reads this to its end"));
            for _ in 0..events_read {
                generation.next_event().await;
            }
            drop(generation);
            tokio::time::sleep(60 * MS).await;
            let view = engine.snapshot().await;
            let load = view.devices[0].1.load;
            assert_eq!(load.blocks_free + load.blocks_cached, load.blocks_total);
            assert_eq!(view.sessions, 0);
            assert_all_is_free(&engine).await;
        });
    }
}

#[test]
fn a_client_that_leaves_the_queue_is_forgotten() {
    in_virtual_time(async {
        let engine = narrow().start().await;
        let running = engine.generate(request("first", "runs"));
        tokio::time::sleep(20 * MS).await;
        let waiting = engine.generate(request("second", "waits"));
        tokio::time::sleep(MS).await;
        assert_eq!(engine.snapshot().await.scheduler.unwrap().waiting, 1);
        drop(waiting);
        tokio::time::sleep(MS).await;
        assert_eq!(engine.snapshot().await.scheduler.unwrap().waiting, 0);
        read(running).await;
        assert_all_is_free(&engine).await;
    });
}

#[test]
fn a_client_that_does_not_read_is_cancelled_without_a_hole_in_its_text() {
    in_virtual_time(async {
        let mut world = World::undisturbed();
        world.config.client_buffer = 6;
        let engine = world.start().await;
        let whole = read(engine.generate(request("a", "read me"))).await;
        let slow = engine.generate(request("b", "read me"));
        tokio::time::sleep(Duration::from_secs(2)).await;
        let seen = read(slow).await;
        assert_eq!(seen.choices[0].reason, Some(FinishReason::Cancelled));
        let text = &seen.choices[0].text;
        assert!(
            text.len() > 3 && whole.choices[0].text.starts_with(text),
            "{text}"
        );
        assert_all_is_free(&engine).await;
    });
}

#[test]
fn what_can_never_fit_is_refused_with_the_numbers() {
    in_virtual_time(async {
        let engine = World::undisturbed().start().await;
        let long = "x".repeat(200);
        let seen = read(engine.generate(request("a", &long))).await;
        let error = seen.failed.expect("it is refused");
        let expected = RequestError::TooLong {
            what: "prompt",
            given: 200,
            limit: 199,
            which: "the model's length limit",
        };
        assert_eq!(error, expected);
        let greedy = GenerateRequest {
            max_tokens: Some(198),
            ..request("b", "abc")
        };
        let seen = read(engine.generate(greedy)).await;
        assert!(matches!(
            seen.failed,
            Some(RequestError::TooLong {
                given: 201,
                limit: 200,
                ..
            })
        ));
        let cut = GenerateRequest {
            truncate: Some(kept(10)),
            ..request("c", &long)
        };
        assert_eq!(
            read(engine.generate(cut)).await.choices[0]
                .usage
                .prompt_tokens,
            10
        );
    });
}

#[test]
fn a_pool_smaller_than_the_model_ends_a_sequence_with_length() {
    in_virtual_time(async {
        let mut world = World::undisturbed();
        world.capacity.blocks = 8;
        let engine = world.start().await;
        let long = GenerateRequest {
            max_tokens: Some(100),
            ..request("a", "eight blocks")
        };
        let seen = read(engine.generate(long)).await;
        assert_eq!(seen.choices[0].reason, Some(FinishReason::Length));
        assert_eq!(
            seen.choices[0].ids.len() + 12,
            32,
            "the whole pool was used"
        );
        let too_long = read(engine.generate(request("b", &"x".repeat(32)))).await;
        let which = "the KV pool";
        let expected = RequestError::TooLong {
            what: "prompt",
            given: 32,
            limit: 31,
            which,
        };
        assert_eq!(too_long.failed, Some(expected));
        assert_all_is_free(&engine).await;
    });
}

#[test]
fn wrong_requests_are_told_which_field() {
    let field = |request: GenerateRequest| {
        in_virtual_time(async {
            let engine = World::undisturbed().start().await;
            match read(engine.generate(request)).await.failed {
                Some(RequestError::Invalid { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        })
    };
    let base = || request("a", "abc");
    let ids = |ids: &[u32]| Prompt::Ids(ids.iter().map(|&id| TokenId(id)).collect());
    for choices in [0, u32::MAX] {
        assert_eq!(field(GenerateRequest { choices, ..base() }), "choices");
    }
    assert_eq!(
        field(GenerateRequest {
            max_tokens: Some(0),
            ..base()
        }),
        "max_tokens"
    );
    assert_eq!(
        field(GenerateRequest {
            truncate: Some(kept(0)),
            ..base()
        }),
        "truncate"
    );
    assert_eq!(field(request("a", "")), "prompt");
    assert_eq!(
        field(GenerateRequest {
            prompt: ids(&[3, 28]),
            ..base()
        }),
        "prompt"
    );
    let stop = StopRules {
        strings: vec![String::new()],
        ..StopRules::default()
    };
    assert_eq!(field(GenerateRequest { stop, ..base() }), "stop");
    let mut biased = base();
    biased.sampling.logit_bias.push((TokenId(4000), 1.0));
    assert_eq!(field(biased), "logit_bias");
}

#[test]
fn a_drain_finishes_what_was_admitted_and_refuses_the_rest() {
    in_virtual_time(async {
        let engine = narrow().start().await;
        let admitted: Vec<_> = (0..3)
            .map(|i| engine.generate(request(&format!("r{i}"), "admitted")))
            .collect();
        tokio::time::sleep(5 * MS).await;
        let draining = actix::spawn({
            let engine = engine.clone();
            async move { engine.drain(Duration::from_secs(60)).await }
        });
        tokio::time::sleep(MS).await;
        assert!(!engine.is_ready());
        let late = read(engine.generate(request("late", "refused"))).await;
        assert_eq!(late.failed, Some(RequestError::Draining));
        for seen in join_all(admitted.into_iter().map(read)).await {
            assert_eq!(seen.choices[0].reason, Some(FinishReason::Length));
        }
        assert_eq!(draining.await.unwrap().cut_off, 0);
        assert_all_is_free(&engine).await;
    });
}

#[test]
fn a_drain_whose_time_is_up_ends_the_rest_with_an_error() {
    in_virtual_time(async {
        let engine = narrow().start().await;
        let mut running = engine.generate(request("a", "runs"));
        let waiting = engine.generate(request("b", "waits"));
        assert!(matches!(
            running.next_event().await,
            Some(GenerateEvent::Started(_))
        ));
        tokio::time::sleep(5 * MS).await;
        let outcome = engine.drain(100 * MS).await;
        assert_eq!(outcome.cut_off, 2);
        assert_eq!(read(waiting).await.failed, Some(RequestError::Draining));
        let mut last = None;
        while let Some(event) = running.next_event().await {
            last = Some(event);
        }
        assert_eq!(last, Some(GenerateEvent::Failed(RequestError::Draining)));
        assert_all_is_free(&engine).await;
    });
}

#[test]
fn a_sequence_is_replayed_while_the_engine_drains() {
    in_virtual_time(async {
        let world = World::new(vec![FaultPlan::new([(6, Fault::Panic)])]);
        let engine = world.start().await;
        let generation = engine.generate(request("a", "goes on"));
        tokio::time::sleep(30 * MS).await;
        let outcome = engine.drain(Duration::from_secs(60)).await;
        assert_eq!(outcome.cut_off, 0);
        assert_eq!(
            read(generation).await.choices[0].reason,
            Some(FinishReason::Length)
        );
    });
}
