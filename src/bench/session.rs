//! A server that is being measured: asked what it is, warmed up, and loaded for a round at a time.

use super::api::{Api, Manner};
use super::connections::Connections;
use super::cost::{ClientCost, Meter};
use super::dataset::{DatasetPlan, PromptAs, Sample};
use super::exchange::{Client, Ready};
use super::live::Live;
use super::load::{self, Pace, Run};
use super::plan::Plan;
use super::progress;
use super::server::ServerInfo;
use super::target::Target;
use super::tokens::Tokens;
use crate::signals::Signals;
use crate::start_error::StartError;
use hyper::header::HeaderValue;
use std::path::PathBuf;
use std::sync::Arc;

/// Seeds of warm-up prompts differ by this, so that they are not found in a cache later.
const WARM_UP_SEED: u64 = 1 << 40;

/// A server and all that its requests are made from.
pub struct Session {
    /// Its address.
    pub target: Target,
    /// What it told of itself.
    pub server: ServerInfo,
    /// How it is asked.
    pub manner: Manner,
    plan: Plan,
    tokens: Option<Tokens>,
    connections: Arc<Connections>,
}

/// A round's outcome.
pub struct Round {
    /// Its requests.
    pub run: Run,
    /// What the client took.
    pub cost: ClientCost,
}

impl Session {
    /// Asks the server what it is and settles what the flags left open.
    ///
    /// # Errors
    /// When nobody answers, or the flags do not fit what does.
    pub async fn open(plan: &Plan, target: &Target) -> Result<Self, StartError> {
        let authorization = plan.api_key.as_deref().map(bearer).transpose()?;
        let connections = Connections::new(target.clone(), authorization, plan.keep_alive);
        let server = ServerInfo::ask(target, &connections).await?;
        let api = plan.api.or(server.api()).ok_or_else(|| {
            let problem =
                format!("{target} tells neither /v1/models nor /info: say what it speaks by --api");
            StartError::Usage(problem)
        })?;
        let told = server.model().map(str::to_owned);
        let model = plan.model.clone().or(told).unwrap_or_default();
        let tokens = tokenizer(plan, &server)
            .map(|path| Tokens::open(&path))
            .transpose()?;
        let mut plan = plan.clone();
        plan.dataset.prompt_as = plan.prompt_as.unwrap_or(match (&tokens, api) {
            (None, Api::Completions) => PromptAs::Ids,
            _ => PromptAs::Text,
        });
        let manner = Manner {
            api,
            task: plan.task,
            model,
            temperature: plan.temperature,
            ignore_eos: plan.ignores_eos(),
        };
        Ok(Session {
            target: target.clone(),
            server,
            manner,
            plan,
            tokens,
            connections: Arc::new(connections),
        })
    }

    /// Whether the counts of this session's rounds can be checked.
    pub fn has_tokenizer(&self) -> bool {
        self.tokens.is_some()
    }

    /// Sends requests that do not count; tells what went wrong with them.
    ///
    /// # Errors
    /// When there are no prompts to send, or a signal came.
    pub async fn warm_up(&self, signals: &mut Signals) -> Result<Option<String>, StartError> {
        if self.plan.warm_up == 0 {
            return Ok(None);
        }
        let dataset = DatasetPlan {
            requests: Some(self.plan.warm_up),
            seed: self.plan.dataset.seed ^ WARM_UP_SEED,
            ..self.plan.dataset.clone()
        };
        let concurrency = match self.plan.pace {
            Pace::Closed { concurrency } => concurrency,
            Pace::Open { limit, .. } => limit.unwrap_or(self.plan.warm_up),
        };
        let round = self
            .send(&dataset, Pace::Closed { concurrency }, signals)
            .await?;
        if round.run.stopped {
            return Err(StartError::Signal("a signal during the warm-up"));
        }
        let failures = round
            .run
            .records
            .iter()
            .filter_map(|record| record.failure.as_ref());
        let first =
            failures.map(|failure| format!("warm-up: {}: {}", failure.kind(), failure.detail()));
        Ok(first.min())
    }

    /// Sends the requests of a round. Every round has random prompts of its own: those of another would be found in the server's cache.
    ///
    /// # Errors
    /// When there are no prompts to send.
    pub async fn round(&self, number: u32, signals: &mut Signals) -> Result<Round, StartError> {
        let dataset = DatasetPlan {
            seed: self.plan.dataset.seed.wrapping_add(u64::from(number)),
            ..self.plan.dataset.clone()
        };
        self.send(&dataset, self.plan.pace, signals).await
    }

    async fn send(
        &self,
        dataset: &DatasetPlan,
        pace: Pace,
        signals: &mut Signals,
    ) -> Result<Round, StartError> {
        let samples = dataset.samples(self.tokens.as_ref())?;
        let requests = self.ready(&samples)?;
        let client = Arc::new(Client {
            connections: self.connections.clone(),
            manner: self.manner.clone(),
            timeout: self.plan.timeout,
            keep_text: self.tokens.is_some(),
            live: Live::default(),
        });
        let meter = Meter::start(&client.connections);
        let display = progress::show(&client, requests.len());
        let stop = async {
            signals.next().await;
        };
        let mut run = load::run(&client, requests, pace, stop).await;
        let cost = meter.stop(&client.connections, run.wall);
        drop(display);
        self.count(&mut run);
        Ok(Round { run, cost })
    }

    fn ready(&self, samples: &[Sample]) -> Result<Arc<[Ready]>, StartError> {
        let ready = |sample: &Sample| match self.manner.api.refusal(&sample.prompt) {
            Some(problem) => Err(StartError::Usage(problem.to_owned())),
            None => Ok(Ready {
                body: self.manner.body(sample).to_string().into(),
                asked: sample.output_len,
                // A chat's template adds tokens that only the server knows.
                prompt_counted: sample
                    .prompt_tokens
                    .filter(|_| self.manner.api != Api::Chat),
            }),
        };
        samples.iter().map(ready).collect()
    }

    /// Counts the tokens of the answers, after the run: counting takes longer than receiving.
    fn count(&self, run: &mut Run) {
        let Some(tokens) = &self.tokens else { return };
        for record in run
            .records
            .iter_mut()
            .filter(|record| record.failure.is_none())
        {
            record.output_counted = Some(tokens.count(&record.text, false));
            record.text = String::new();
        }
    }
}

fn bearer(key: &str) -> Result<HeaderValue, StartError> {
    let header = HeaderValue::try_from(format!("Bearer {key}"));
    let mut header = header
        .map_err(|_| StartError::Usage("the API key holds a line end or the like".to_owned()))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Where the tokenizer is: as told, else in the model's folder if the name given or the server's answer leads to one here.
fn tokenizer(plan: &Plan, server: &ServerInfo) -> Option<PathBuf> {
    let named = plan.model.as_ref().map(PathBuf::from);
    let named = named.filter(|folder| folder.join("tokenizer.json").is_file());
    plan.tokenizer
        .clone()
        .or(named)
        .or_else(|| server.model_folder())
}
