//! What a run is to do: all that the flags say, checked as far as it can be without the server.

use super::api::{Api, Task};
use super::dataset::{DatasetKind, DatasetPlan, PromptAs};
use super::load::Pace;
use super::target::Target;
use std::path::PathBuf;
use std::time::Duration;

/// A run, or several.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub target: Target,
    /// Another one, measured in turn with it.
    pub against: Option<Target>,
    /// How often each is measured.
    pub rounds: u32,
    /// How to ask; `None`: what the server speaks.
    pub api: Option<Api>,
    /// Streamed or not.
    pub task: Task,
    /// The model's name; `None`: the server's first.
    pub model: Option<String>,
    /// The model's tokenizer; `None`: that of the model's folder, if there is one here.
    pub tokenizer: Option<PathBuf>,
    /// What to ask. `prompt_as` is settled below.
    pub dataset: DatasetPlan,
    /// How random prompts are sent; `None`: as text with a tokenizer, else as ids where the API takes them.
    pub prompt_as: Option<PromptAs>,
    /// When.
    pub pace: Pace,
    /// Requests sent before, which do not count.
    pub warm_up: usize,
    /// Sampling temperature.
    pub temperature: f64,
    /// Go on after the token that ends an answer; `None`: for random prompts only, whose answers mean nothing.
    pub ignore_eos: Option<bool>,
    /// Sent as a bearer token.
    pub api_key: Option<String>,
    /// The longest that a request may take.
    pub timeout: Duration,
    /// Use connections again.
    pub keep_alive: bool,
}

impl Plan {
    /// Whether answers go on after the token that ends them.
    pub fn ignores_eos(&self) -> bool {
        let random = self.dataset.kind == DatasetKind::Random;
        self.ignore_eos.unwrap_or(random)
    }

    /// The settings by name, for a report.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let dataset = &self.dataset;
        let mut all = vec![("dataset", dataset.kind.name().to_owned())];
        match &dataset.path {
            Some(path) => all.push(("dataset path", path.display().to_string())),
            None => {
                all.push(("input length", dataset.input_len.to_string()));
                all.push(("shared prefix", dataset.shared_prefix.to_string()));
            }
        }
        if let Some(lengths) = dataset.output_len {
            all.push(("output length", lengths.to_string()));
        }
        if let Some(bound) = dataset.max_output_len {
            all.push(("max output length", bound.to_string()));
        }
        match self.pace {
            Pace::Closed { concurrency } => all.push(("concurrency", concurrency.to_string())),
            Pace::Open { rate, limit, .. } => {
                all.push(("request rate", rate.to_string()));
                all.extend(limit.map(|limit| ("concurrency", limit.to_string())));
            }
        }
        all.extend([
            ("warm-up", self.warm_up.to_string()),
            ("temperature", self.temperature.to_string()),
            ("ignore eos", self.ignores_eos().to_string()),
            ("seed", dataset.seed.to_string()),
            ("timeout s", self.timeout.as_secs_f64().to_string()),
            ("keep-alive", self.keep_alive.to_string()),
        ]);
        all
    }
}
