//! A session and a scheduler with a scripted device: what happens when messages come late.

use super::context::SessionContext;
use super::outlet::Outlet;
use super::{Session, SessionParts};
use crate::bus::Bus;
use crate::clock::Clock;
use crate::config::{EngineConfig, Hosting};
use crate::generation::{GenerateEvent, Generation};
use crate::messages::{Assign, Cancel, DeviceDown, DeviceUp, Progress};
use crate::scheduler::{Scheduler, SchedulerParts};
use crate::state::EngineState;
use actix::{Actor, Addr, Context, Handler, Recipient, System};
use ropeteam_engine::device_core::SeqUpdate;
use ropeteam_engine::executor::{Capacity, DeviceFault, FaultKind};
use ropeteam_engine::ids::{DeviceId, Epoch, SeqId, TokenId};
use ropeteam_engine::request::{FinishReason, GenerateRequest, Prompt, StopRules};
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_engine::scheduler::SchedulerLimits;
use ropeteam_engine::text::{OffsetToken, TextCodec, TextError, TokenDecoder};
use ropeteam_engine::work::{DeviceFinish, SampledToken, Work};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};

/// Writes each token as its number and a space.
struct Numbers;

impl TextCodec for Numbers {
    fn encode(&self, _: &str, _: bool) -> Result<Vec<TokenId>, TextError> {
        Ok(vec![TokenId(1)])
    }

    fn encode_with_offsets(&self, text: &str, _: bool) -> Result<Vec<OffsetToken>, TextError> {
        Ok(vec![OffsetToken {
            id: TokenId(1),
            bytes: 0..text.len(),
        }])
    }

    fn decoder(&self, _: &[TokenId], _: bool) -> Box<dyn TokenDecoder> {
        Box::new(Numbers)
    }

    fn token_text(&self, id: TokenId) -> Option<String> {
        Some(format!("{id} "))
    }

    fn is_special(&self, _: TokenId) -> bool {
        false
    }

    fn vocab_size(&self) -> u32 {
        100
    }
}

impl TokenDecoder for Numbers {
    fn push(&mut self, id: TokenId) -> String {
        format!("{id} ")
    }

    fn finish(&mut self) -> String {
        String::new()
    }
}

/// A device that does nothing but pass on what it gets.
struct Scripted {
    assigned: mpsc::UnboundedSender<(Work, Recipient<Progress>)>,
    cancelled: mpsc::UnboundedSender<SeqId>,
}

impl Actor for Scripted {
    type Context = Context<Self>;
}

impl Handler<Assign> for Scripted {
    type Result = ();

    fn handle(&mut self, assign: Assign, _: &mut Context<Self>) {
        self.assigned
            .send((assign.work, assign.session))
            .expect("the test listens");
    }
}

impl Handler<Cancel> for Scripted {
    type Result = ();

    fn handle(&mut self, cancel: Cancel, _: &mut Context<Self>) {
        self.cancelled.send(cancel.seq).expect("the test listens");
    }
}

/// One request on the scripted device.
struct Stage {
    scheduler: Addr<Scheduler>,
    device: Addr<Scripted>,
    assigned: mpsc::UnboundedReceiver<(Work, Recipient<Progress>)>,
    cancelled: mpsc::UnboundedReceiver<SeqId>,
    client: Generation,
}

const DEVICE: DeviceId = DeviceId(0);

impl Stage {
    /// The request is submitted and the device's first life is up.
    fn new(request: GenerateRequest) -> Self {
        let (clock, bus) = (Clock::start(), Bus::new(64));
        let (state_writer, state) = watch::channel(EngineState {
            devices: 1,
            ..Default::default()
        });
        let scheduler = Scheduler::new(SchedulerParts {
            limits: SchedulerLimits { max_queue: 10 },
            fairness: Default::default(),
            devices: vec![DEVICE],
            max_sessions: 10,
            max_running: 10,
            codec_vocab: 100,
            clock,
            bus: bus.clone(),
            state: state_writer,
        });
        let scheduler = scheduler.start();
        let (assigned_tx, assigned) = mpsc::unbounded_channel();
        let (cancelled_tx, cancelled) = mpsc::unbounded_channel();
        let device = Scripted {
            assigned: assigned_tx,
            cancelled: cancelled_tx,
        }
        .start();
        let shared = Arc::new(SessionContext {
            config: EngineConfig {
                hosting: Hosting::Simulated {
                    step_time: Arc::new(|_, _| Duration::ZERO),
                },
                ..EngineConfig::default()
            },
            codec: Arc::new(Numbers),
            eos_ids: vec![TokenId(0)],
            clock,
            bus,
            scheduler: scheduler.clone(),
            state,
            tokenising: Arc::new(Semaphore::new(1)),
            suspects: Arc::new(Semaphore::new(1)),
            sessions: Arc::default(),
            live: RwLock::new(EngineConfig::default().live()),
            requests: Default::default(),
            next_seq: Default::default(),
        });
        let (outlet, events) = Outlet::new(100, request.choices);
        let place = shared.take_place().expect("it is the first");
        let arrived = clock.now();
        let session = Session::new(SessionParts {
            shared,
            request,
            outlet,
            arrived,
            start_within: None,
            place,
        })
        .start();
        let client = Generation::new(events, Some(session.recipient()));
        let stage = Stage {
            scheduler,
            device,
            assigned,
            cancelled,
            client,
        };
        stage.life_begins(1);
        stage
    }

    fn life_begins(&self, epoch: u32) {
        self.scheduler.do_send(DeviceUp {
            device: DEVICE,
            epoch: Epoch(epoch),
            capacity: Capacity {
                blocks: 64,
                block_size: 4,
                max_model_len: 64,
                max_step_tokens: 64,
                max_logits_rows: 8,
                vocab: 100,
            },
            assign: self.device.clone().recipient(),
            cancel: self.device.clone().recipient(),
        });
    }

    fn life_ends(&self, epoch: u32) {
        self.life_ends_by(epoch, FaultKind::Panic);
    }

    fn life_ends_by(&self, epoch: u32, kind: FaultKind) {
        let fault = DeviceFault {
            kind,
            detail: "test".into(),
        };
        self.scheduler.do_send(DeviceDown {
            device: DEVICE,
            epoch: Epoch(epoch),
            fault,
        });
    }

    async fn assigned(&mut self) -> (Work, Recipient<Progress>) {
        self.assigned.recv().await.expect("the device lives")
    }

    /// Text of the next event with text.
    async fn text(&mut self) -> String {
        loop {
            match self.client.next_event().await {
                Some(GenerateEvent::Tokens(tokens)) => return tokens.text,
                Some(GenerateEvent::Started(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

fn tokens(seq: SeqId, epoch: u32, ids: &[u32], finish: Option<DeviceFinish>) -> Progress {
    let token = |&id: &u32| SampledToken {
        id: TokenId(id),
        logprob: None,
        top: vec![],
    };
    let update = SeqUpdate {
        seq,
        started: None,
        prompt_logprobs: None,
        pooled: None,
        tokens: ids.iter().map(token).collect(),
        finish,
    };
    Progress::Step {
        device: DEVICE,
        epoch: Epoch(epoch),
        updates: vec![update],
    }
}

fn request() -> GenerateRequest {
    GenerateRequest {
        id: "a".into(),
        prompt: Prompt::Ids(vec![TokenId(7)]),
        truncate: None,
        choices: 1,
        sampling: SamplingParams::greedy(),
        constraint: None,
        stop: StopRules::default(),
        max_tokens: Some(10),
        logprobs: None,
        prompt_logprobs: None,
        pooling: None,
        skip_special_tokens: true,
        cache_salt: String::new(),
        tenant: String::new(),
        priority: 0,
        timeout: None,
    }
}

fn in_virtual_time<T>(scenario: impl Future<Output = T>) -> T {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O")
    };
    System::with_tokio_rt(runtime).block_on(scenario)
}

#[test]
fn tokens_of_a_life_that_is_over_are_dropped() {
    in_virtual_time(async {
        let mut stage = Stage::new(request());
        let (work, session) = stage.assigned().await;
        session.do_send(tokens(work.seq, 1, &[3], None));
        assert_eq!(stage.text().await, "3 ");
        stage.life_ends(1);
        stage.life_begins(2);
        let (again, session) = stage.assigned().await;
        assert_eq!(
            (again.seq, again.output.as_slice()),
            (work.seq, &[TokenId(3)][..])
        );
        session.do_send(tokens(work.seq, 1, &[4], None));
        session.do_send(tokens(work.seq, 2, &[5], None));
        assert_eq!(stage.text().await, "5 ", "the late 4 is not heard");
    });
}

#[test]
fn news_of_unknown_and_ended_sequences_is_dropped() {
    in_virtual_time(async {
        let mut stage = Stage::new(GenerateRequest {
            choices: 2,
            ..request()
        });
        let (first, session) = stage.assigned().await;
        let (second, _) = stage.assigned().await;
        session.do_send(tokens(SeqId(999), 1, &[9], None));
        session.do_send(tokens(first.seq, 1, &[3], Some(DeviceFinish::Length)));
        session.do_send(tokens(first.seq, 1, &[4], None));
        session.do_send(tokens(second.seq, 1, &[6], None));
        assert_eq!(stage.text().await, "3 ");
        let done = stage.client.next_event().await;
        assert!(matches!(done, Some(GenerateEvent::Done(d)) if d.reason == FinishReason::Length));
        assert_eq!(stage.text().await, "6 ");
    });
}

#[test]
fn an_old_death_told_late_interrupts_nobody() {
    in_virtual_time(async {
        let mut stage = Stage::new(request());
        let (work, session) = stage.assigned().await;
        stage.life_ends(1);
        stage.life_begins(2);
        stage.assigned().await;
        stage.life_ends(1);
        session.do_send(tokens(work.seq, 2, &[5], None));
        assert_eq!(stage.text().await, "5 ");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(
            stage.assigned.try_recv().is_err(),
            "it was not submitted again"
        );
    });
}

#[test]
fn kills_from_outside_end_a_sequence_much_later_than_deaths_of_a_device() {
    let lives = |kind| {
        in_virtual_time(async {
            let mut stage = Stage::new(request());
            for epoch in 1.. {
                stage.assigned().await;
                stage.life_ends_by(epoch, kind);
                stage.life_begins(epoch + 1);
                let patience = tokio::time::sleep(Duration::from_secs(2));
                tokio::select! {
                    event = stage.client.next_event() => match event {
                        Some(GenerateEvent::Done(done)) => {
                            assert_eq!(done.reason, FinishReason::DeviceError);
                            return epoch;
                        }
                        Some(GenerateEvent::Started(_)) => {}
                        other => panic!("{other:?}"),
                    },
                    () = patience => {}
                }
            }
            unreachable!("it is given up some time")
        })
    };
    assert_eq!(lives(FaultKind::Process), 3);
    assert_eq!(lives(FaultKind::Killed), 12);
}

#[test]
fn a_stop_string_cancels_the_sequence_on_its_device() {
    in_virtual_time(async {
        let strings = vec!["5 6".to_owned()];
        let stop = StopRules {
            strings,
            ..StopRules::default()
        };
        let mut stage = Stage::new(GenerateRequest { stop, ..request() });
        let (work, session) = stage.assigned().await;
        session.do_send(tokens(work.seq, 1, &[4, 5], None));
        assert_eq!(stage.text().await, "4 ", "the 5 may begin the stop string");
        session.do_send(tokens(work.seq, 1, &[6, 7], None));
        assert_eq!(stage.cancelled.recv().await, Some(work.seq));
        assert_eq!(stage.text().await, "");
        let Some(GenerateEvent::Done(done)) = stage.client.next_event().await else {
            panic!("the choice has ended");
        };
        assert_eq!(done.reason, FinishReason::StopString("5 6".into()));
        assert_eq!(
            done.usage.completion_tokens, 3,
            "what follows the stop string is dropped"
        );
        assert!(stage.client.next_event().await.is_none());
    });
}

#[test]
fn end_ids_are_told_apart_and_their_text_is_not_shown() {
    let reason = |stop: StopRules, id: u32| {
        in_virtual_time(async {
            let mut stage = Stage::new(GenerateRequest { stop, ..request() });
            let (work, session) = stage.assigned().await;
            assert!(work.end_ids.contains(&TokenId(id)));
            session.do_send(tokens(work.seq, 1, &[8, id], Some(DeviceFinish::EndId)));
            assert_eq!(stage.text().await, "8 ");
            match stage.client.next_event().await {
                Some(GenerateEvent::Done(done)) => (done.reason, done.text),
                other => panic!("{other:?}"),
            }
        })
    };
    let stops_at_9 = StopRules {
        token_ids: vec![TokenId(9)],
        ..StopRules::default()
    };
    let end = (FinishReason::EndOfText(TokenId(0)), String::new());
    assert_eq!(reason(stops_at_9.clone(), 0), end);
    assert_eq!(
        reason(stops_at_9, 9),
        (FinishReason::StopToken(TokenId(9)), String::new())
    );
}
