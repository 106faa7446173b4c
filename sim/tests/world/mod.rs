//! A whole engine with simulated devices in one `System` on a paused tokio clock: hours pass in milliseconds, and the same
//! scenario is the same run each time.

// Each test binary uses its own part of this.
#![allow(dead_code)]

mod planted;

use actix::System;
use futures_util::StreamExt;
pub use planted::Planted;
use planted::PlantedExecutor;
use ropeteam_actors::generation::{GenerateEvent, Generation, RequestError, Usage};
use ropeteam_actors::{DeviceSpec, Engine, EngineConfig, EngineParts, Hosting, Isolation};
use ropeteam_engine::executor::{Capacity, StepExecutor};
use ropeteam_engine::ids::{DeviceId, TokenId};
use ropeteam_engine::request::{FinishReason, GenerateRequest, Prompt, StopRules};
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_engine::text::TextCodec;
use ropeteam_sim::codec::{END_OF_TEXT, SimCodec};
use ropeteam_sim::cost::CostModel;
use ropeteam_sim::dice::Dice;
use ropeteam_sim::executor::SimExecutor;
use ropeteam_sim::faults::{DelayedExecutor, Fault, FaultPlan, FaultyExecutor, PoisonedExecutor};
use std::sync::Arc;
use std::time::Duration;

/// A step that never ends, for a device that hangs.
const FOREVER: Duration = Duration::from_secs(1_000_000);

/// Runs a scenario in virtual time.
pub fn in_virtual_time<T>(scenario: impl Future<Output = T>) -> T {
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

/// The devices of a scenario and the engine's settings.
pub struct World {
    pub config: EngineConfig,
    pub capacity: Capacity,
    /// One device per plan.
    pub faults: Vec<Arc<FaultPlan>>,
    /// A prompt that kills every device that begins with it; empty: none does.
    pub poison: &'static str,
    /// Time of a step under the virtual clock.
    pub cost: CostModel,
    /// One step in about so many takes fifty times as long; 0: none.
    pub slow_one_in: u64,
    /// Time of a step on real threads.
    pub delay: Duration,
    /// A mistake that somebody must notice.
    pub planted: Option<Planted>,
}

impl World {
    /// One device per fault plan, with 64 blocks of 4 tokens each.
    pub fn new(faults: Vec<Arc<FaultPlan>>) -> Self {
        World {
            config: EngineConfig::default(),
            capacity: capacity(),
            faults,
            poison: "",
            cost: CostModel::default(),
            slow_one_in: 0,
            delay: Duration::ZERO,
            planted: None,
        }
    }

    /// One device that does not fail.
    pub fn undisturbed() -> Self {
        World::new(vec![FaultPlan::new([])])
    }

    /// Starts the engine; the devices are up when it returns.
    pub async fn start(&self) -> Engine {
        let (faults, cost, slow) = (self.faults.clone(), self.cost, self.slow_one_in);
        let step_time = Arc::new(move |device: DeviceId, plan: &_| {
            let faults = &faults[device.0 as usize];
            let chance = Dice::new(faults.steps()).throw();
            match faults.begin_hang() {
                true => FOREVER,
                false if slow > 0 && chance.is_multiple_of(slow) => 50 * cost.of(plan),
                false => cost.of(plan),
            }
        });
        let config = EngineConfig {
            hosting: Hosting::Simulated { step_time },
            ..self.config.clone()
        };
        let engine = Engine::start(config, self.parts()).expect("the parts are valid");
        assert!(engine.ready().await);
        engine
    }

    /// Starts the engine with each device on a thread of its own; for tests in real time.
    pub async fn start_on_threads(&self) -> Engine {
        let engine = Engine::start(self.config.clone(), self.parts()).expect("the parts are valid");
        assert!(engine.ready().await);
        engine
    }

    pub fn parts(&self) -> EngineParts {
        let (delay, planted) = (self.delay, self.planted);
        let poison = SimCodec::default().encode(self.poison, false);
        let poison = poison.expect("the alphabet takes any text");
        let device = |(i, plan): (usize, &Arc<FaultPlan>)| {
            let (capacity, plan) = (self.capacity.clone(), plan.clone());
            let poison = poison.clone();
            DeviceSpec {
                id: DeviceId(i as u16),
                isolation: Isolation::Thread(Arc::new(move |epoch| {
                    let inner = Box::new(SimExecutor::new(capacity.clone(), 7));
                    let faulty = Box::new(FaultyExecutor::new(inner, plan.clone()));
                    let deadly = PoisonedExecutor::new(faulty, poison.clone(), Fault::Panic);
                    let planted = PlantedExecutor::new(Box::new(deadly), planted, epoch);
                    let slow = DelayedExecutor::new(Box::new(planted), Arc::new(move |_| delay));
                    Ok(Box::new(slow) as Box<dyn StepExecutor>)
                })),
            }
        };
        EngineParts {
            codec: Arc::new(SimCodec::default()),
            eos_ids: vec![END_OF_TEXT],
            devices: self.faults.iter().enumerate().map(device).collect(),
        }
    }
}

pub fn capacity() -> Capacity {
    Capacity {
        blocks: 64,
        block_size: 4,
        max_model_len: 200,
        max_step_tokens: 64,
        max_logits_rows: 64,
        vocab: 28,
    }
}

/// A greedy request for 24 tokens that no end id ends.
pub fn request(id: &str, prompt: &str) -> GenerateRequest {
    GenerateRequest {
        id: id.into(),
        prompt: Prompt::Text {
            text: prompt.into(),
            add_special_tokens: false,
        },
        truncate: None,
        choices: 1,
        sampling: SamplingParams::greedy(),
        constraint: None,
        stop: StopRules {
            ignore_eos: true,
            ..StopRules::default()
        },
        max_tokens: Some(24),
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

/// The same with temperature 1 and that seed.
pub fn sampled(id: &str, prompt: &str, seed: u64) -> GenerateRequest {
    let sampling = SamplingParams {
        seed,
        ..SamplingParams::default()
    };
    GenerateRequest {
        sampling,
        ..request(id, prompt)
    }
}

/// All that a client saw of one choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    pub text: String,
    pub ids: Vec<TokenId>,
    pub reason: Option<FinishReason>,
    pub usage: Usage,
}

/// All that a client saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    pub started: bool,
    pub choices: Vec<Seen>,
    pub failed: Option<RequestError>,
}

impl Transcript {
    /// The parts that must not depend on what happens to devices.
    pub fn content(&self) -> Vec<(String, Vec<TokenId>, Option<FinishReason>)> {
        let content = |c: &Seen| (c.text.clone(), c.ids.clone(), c.reason.clone());
        self.choices.iter().map(content).collect()
    }

    /// Adds an event, checking what every client may rely on.
    pub fn add(&mut self, event: GenerateEvent) {
        assert!(
            self.failed.is_none(),
            "an event after the last one: {event:?}"
        );
        match event {
            GenerateEvent::Started(_) => {
                assert!(
                    !self.started && self.choices.is_empty(),
                    "started comes first, once"
                );
                self.started = true;
            }
            GenerateEvent::Tokens(tokens) => {
                assert!(!tokens.tokens.is_empty());
                let choice = self.open_choice(tokens.choice);
                choice.text.push_str(&tokens.text);
                choice.ids.extend(tokens.tokens.iter().map(|t| t.id));
            }
            GenerateEvent::Done(done) => {
                let choice = self.open_choice(done.choice);
                choice.text.push_str(&done.text);
                choice.reason = Some(done.reason);
                choice.usage = done.usage;
            }
            GenerateEvent::Failed(error) => self.failed = Some(error),
        }
    }

    fn open_choice(&mut self, choice: u32) -> &mut Seen {
        assert!(self.started, "tokens before the start");
        let wanted = choice as usize + 1;
        if self.choices.len() < wanted {
            self.choices.resize_with(wanted, Seen::default);
        }
        let choice = &mut self.choices[choice as usize];
        assert_eq!(choice.reason, None, "an event after the choice's last one");
        choice
    }
}

/// Reads a request to its end.
pub async fn read(mut generation: Generation) -> Transcript {
    let mut transcript = Transcript::default();
    while let Some(event) = generation.next().await {
        transcript.add(event);
    }
    transcript
}

/// Waits until the engine holds no request and then checks that every block of every living device is free.
pub async fn assert_all_is_free(engine: &Engine) {
    for _ in 0..1000 {
        let view = engine.snapshot().await;
        let scheduler = view.scheduler.as_ref().expect("the scheduler answers");
        if view.sessions == 0 && scheduler.waiting == 0 && scheduler.running == 0 {
            for (device, view) in &view.devices {
                let load = view.load;
                assert_eq!(
                    load.blocks_free + load.blocks_cached,
                    load.blocks_total,
                    "{device}"
                );
                assert!(view.sequences.is_empty(), "{device}");
            }
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("something is left: {:?}", engine.snapshot().await);
}
