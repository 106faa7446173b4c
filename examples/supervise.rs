//! Looks after an engine from inside another program: lists devices and requests, drains, restarts and resumes a device while
//! answers go on, changes limits between two steps, ends a request, and prints every event that tells of it. The devices are
//! simulated, so it needs no weights; [`Engine`]'s calls are the same with real ones.
//!
//! ```sh
//! cargo run --example supervise
//! ```

use anyhow::{Context as _, ensure};
use ropeteam_actors::generation::{GenerateEvent, Generation};
use ropeteam_actors::{DeviceSpec, Engine, EngineConfig, EngineParts, Isolation};
use ropeteam_engine::executor::Capacity;
use ropeteam_engine::ids::DeviceId;
use ropeteam_engine::observe::Event;
use ropeteam_engine::request::{GenerateRequest, Prompt, StopRules};
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_sim::codec::{END_OF_TEXT, SimCodec};
use ropeteam_sim::cost::CostModel;
use ropeteam_sim::executor::SimExecutor;
use ropeteam_sim::faults::DelayedExecutor;
use std::sync::Arc;
use std::time::Duration;

/// Two devices that take the time of a small model.
fn parts() -> EngineParts {
    let device = |id| DeviceSpec {
        id: DeviceId(id),
        isolation: Isolation::Thread(Arc::new(|_| {
            let capacity = Capacity {
                blocks: 1024,
                block_size: 16,
                max_model_len: 2048,
                max_step_tokens: 1024,
                max_logits_rows: 128,
                vocab: 28,
            };
            let device = Box::new(SimExecutor::new(capacity, 7));
            let timed = DelayedExecutor::new(device, CostModel::default().step_time());
            Ok(Box::new(timed) as _)
        })),
    };
    EngineParts {
        codec: Arc::new(SimCodec::default()),
        eos_ids: vec![END_OF_TEXT],
        devices: vec![device(0), device(1)],
    }
}

fn ask(engine: &Engine, id: &str, tokens: u32) -> Generation {
    engine.generate(GenerateRequest {
        id: id.to_owned(),
        prompt: Prompt::Text {
            text: "once upon a time".to_owned(),
            add_special_tokens: true,
        },
        truncate: None,
        choices: 1,
        sampling: SamplingParams::greedy(),
        constraint: None,
        stop: StopRules {
            ignore_eos: true,
            ..StopRules::default()
        },
        max_tokens: Some(tokens),
        logprobs: None,
        prompt_logprobs: None,
        pooling: None,
        skip_special_tokens: true,
        cache_salt: String::new(),
        tenant: String::new(),
        priority: 0,
        timeout: None,
    })
}

/// The whole text, or why there is none.
async fn text(mut generation: Generation) -> anyhow::Result<String> {
    let mut text = String::new();
    while let Some(event) = generation.next_event().await {
        match event {
            GenerateEvent::Started(_) => {}
            GenerateEvent::Tokens(tokens) => text.push_str(&tokens.text),
            GenerateEvent::Done(done) => text.push_str(&done.text),
            GenerateEvent::Failed(error) => return Err(error.into()),
        }
    }
    Ok(text)
}

async fn show(engine: &Engine, when: &str) {
    println!("{when}");
    for device in engine.devices().await {
        let drained = if device.held_back { ", drained" } else { "" };
        let lives = &device.lives;
        let (id, state, epoch) = (lives.device, lives.state, lives.epoch);
        println!(
            "  device {id}: {state}, life {epoch}, {} running{drained}",
            device.running
        );
    }
}

async fn run() -> anyhow::Result<()> {
    let engine = Engine::start(EngineConfig::default(), parts())?;
    ensure!(engine.ready().await, "no device came up");
    let mut events = engine.subscribe();
    actix::spawn(async move {
        while let Some(event) = events.next().await {
            // Steps and loads come many times a second.
            if matches!(
                *event,
                Event::Managed { .. }
                    | Event::DeviceDied { .. }
                    | Event::DeviceUp { .. }
                    | Event::Replayed { .. }
            ) {
                println!("  event: {event:?}");
            }
        }
    });

    let undisturbed = text(ask(&engine, "alone", 200)).await?;
    let disturbed = ask(&engine, "disturbed", 200);
    tokio::time::sleep(Duration::from_millis(300)).await;
    show(&engine, "a request runs").await;

    engine.drain_device(DeviceId(0)).await;
    engine.restart(DeviceId(0)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    show(
        &engine,
        "device 0 was drained and started anew: its request went to device 1",
    )
    .await;
    engine.resume_device(DeviceId(0)).await;

    let mut live = engine.live();
    live.batching.max_decode_batch_size = 4;
    engine.reconfigure(live);

    let unwanted = ask(&engine, "unwanted", 2000);
    tokio::time::sleep(Duration::from_millis(100)).await;
    for request in engine.requests().await {
        println!(
            "  request {}: {:?}, tokens {:?}",
            request.request, request.state, request.generated_tokens
        );
    }
    ensure!(engine.cancel(|id| id == "unwanted") == 1, "it is there");
    let ended = text(unwanted).await.err().context("it was ended")?;
    println!("the unwanted request: {ended}");

    ensure!(
        text(disturbed).await? == undisturbed,
        "a restart changed the text"
    );
    println!("the disturbed request has the very text of the undisturbed one");
    let outcome = engine.drain(Duration::from_secs(5)).await;
    println!("drained, {} cut off", outcome.cut_off);
    Ok(())
}

fn main() -> anyhow::Result<()> {
    actix::System::new().block_on(run())
}
