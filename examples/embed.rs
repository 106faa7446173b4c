//! The engine inside another actix application: no HTTP, no other process. The application has an actor of its own, which answers
//! its own message `Ask` through an [`Engine`], and a heartbeat on the same arbiter, which shows that generating does not hold
//! it up.
//!
//! ```sh
//! cargo run --release --example embed                      # the default model, downloaded once
//! cargo run --release --example embed -- MODEL "Question?" # a folder, a GGUF file or a name on the hub
//! ```

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, ResponseFuture};
use anyhow::{Context as _, anyhow};
use futures_util::StreamExt;
use ropeteam::config::{Inputs, resolve};
use ropeteam::wiring::{self, Started};
use ropeteam_actors::generation::GenerateEvent;
use ropeteam_engine::observe::Event;
use ropeteam_engine::request::{GenerateRequest, Prompt, StopRules};
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_models::text::RenderInput;
use serde_json::json;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// An actor of the application.
struct Librarian {
    started: Arc<Started>,
    asked: u64,
    heartbeats: u64,
}

/// The application's own message: answers with the whole text, and prints it as it comes.
#[derive(Message)]
#[rtype(result = "anyhow::Result<String>")]
struct Ask(String);

/// Another one: how often the arbiter came round meanwhile.
#[derive(Message)]
#[rtype(result = "u64")]
struct Heartbeats;

impl Actor for Librarian {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.run_interval(Duration::from_millis(10), |act, _| act.heartbeats += 1);
    }
}

impl Handler<Ask> for Librarian {
    type Result = ResponseFuture<anyhow::Result<String>>;

    fn handle(&mut self, Ask(question): Ask, _: &mut Context<Self>) -> Self::Result {
        self.asked += 1;
        let (started, id) = (self.started.clone(), format!("ask-{}", self.asked));
        Box::pin(async move {
            let request = request(&started, id, &question)?;
            // Dropping the generation would cancel the request; reading it to its end is all there is to do.
            let mut events = started.engine.generate(request);
            let mut answer = String::new();
            while let Some(event) = events.next().await {
                let text = match event {
                    GenerateEvent::Started(_) => continue,
                    GenerateEvent::Tokens(tokens) => tokens.text,
                    GenerateEvent::Done(done) => done.text,
                    GenerateEvent::Failed(error) => return Err(error.into()),
                };
                print!("{text}");
                std::io::stdout().flush()?;
                answer.push_str(&text);
            }
            println!();
            Ok(answer)
        })
    }
}

impl Handler<Heartbeats> for Librarian {
    type Result = u64;

    fn handle(&mut self, _: Heartbeats, _: &mut Context<Self>) -> u64 {
        self.heartbeats
    }
}

/// A question as the model's chat template writes it; without a template the plain text is continued.
fn request(started: &Started, id: String, question: &str) -> anyhow::Result<GenerateRequest> {
    let turns = [json!({ "role": "user", "content": question })];
    let prompt = match &started.chat {
        Ok(template) => {
            let text = template.render(&RenderInput::new(&turns))?;
            // A rendered chat holds its begin token already.
            Prompt::Text {
                text,
                add_special_tokens: false,
            }
        }
        Err(_) => Prompt::Text {
            text: question.to_owned(),
            add_special_tokens: true,
        },
    };
    Ok(GenerateRequest {
        id,
        prompt,
        truncate: None,
        choices: 1,
        sampling: SamplingParams::greedy(),
        constraint: None,
        stop: StopRules::default(),
        max_tokens: Some(60),
        logprobs: None,
        prompt_logprobs: None,
        pooling: None,
        skip_special_tokens: true,
        cache_salt: String::new(),
        tenant: String::new(),
        priority: 0,
        timeout: Some(Duration::from_secs(60)),
    })
}

/// Another listener of the bus, beside the engine's own metrics.
fn watch(started: &Started) {
    let mut events = started.engine.subscribe();
    actix::spawn(async move {
        while let Some(event) = events.next().await {
            if let Event::Finished(request) = &*event {
                let (tokens, time) = (request.generated_tokens, request.total_time);
                eprintln!("[{}: {tokens} tokens in {time:.1?}]", request.request);
            }
        }
    });
}

#[actix::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut inputs = Inputs::default();
    inputs
        .flags
        .extend(arguments.next().map(|model| ("model", model)));
    let question = arguments
        .next()
        .unwrap_or_else(|| "What is a rope team?".to_owned());

    let config = resolve(inputs)?.config;
    let started = Arc::new(wiring::start(&config).await?);
    watch(&started);
    let librarian: Addr<Librarian> = Librarian {
        started: started.clone(),
        asked: 0,
        heartbeats: 0,
    }
    .start();

    librarian
        .send(Ask(question))
        .await
        .context("the librarian lives")??;
    let heartbeats = librarian.send(Heartbeats).await?;
    println!("{heartbeats} heartbeats on this arbiter meanwhile");

    let drained = started.engine.drain(Duration::from_secs(5)).await;
    match drained.cut_off {
        0 => Ok(()),
        left => Err(anyhow!("{left} sequences did not finish in time")),
    }
}
