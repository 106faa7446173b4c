//! What is asked: prompts made up at random, or read from a local file of one of the known formats.

mod file;
mod gsm8k;
mod humaneval;
mod jsonl;
mod random;
mod sharegpt;

use super::lengths::Lengths;
use super::tokens::Tokens;
use crate::start_error::StartError;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;
use std::path::PathBuf;

pub use random::{IdRange, PromptAs};

/// Tokens asked for where neither a flag nor the dataset says how many.
const DEFAULT_OUTPUT: u32 = 128;
/// Requests of a random dataset where the flags leave it open.
const DEFAULT_REQUESTS: usize = 64;

/// A kind of dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DatasetKind {
    /// Made-up prompts of a given length
    #[value(alias = "synthetic")]
    Random,
    /// One object a line, with prompt or messages
    Jsonl,
    /// Conversations in ShareGPT's JSON format
    #[value(name = "sharegpt")]
    ShareGpt,
    /// HumanEval.jsonl: Python functions to complete
    #[value(name = "humaneval")]
    HumanEval,
    /// GSM8K's JSON lines: word problems
    #[value(name = "gsm8k")]
    Gsm8k,
}

impl DatasetKind {
    /// Name as the flag has it.
    pub fn name(self) -> &'static str {
        match self {
            DatasetKind::Random => "random",
            DatasetKind::Jsonl => "jsonl",
            DatasetKind::ShareGpt => "sharegpt",
            DatasetKind::HumanEval => "humaneval",
            DatasetKind::Gsm8k => "gsm8k",
        }
    }
}

/// A prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// As text; a chat gets it as the user's turn.
    Text(String),
    /// As token ids.
    Ids(Vec<u32>),
    /// As the turns of a chat.
    Messages(Value),
}

/// One request's worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What to ask.
    pub prompt: Prompt,
    /// Tokens that the answer may have.
    pub output_len: u32,
    /// Tokens of the prompt by our own tokenizer, as far as known.
    pub prompt_tokens: Option<u32>,
}

/// A prompt of a file, with the length of its answer where the file knows it.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    prompt: Prompt,
    output_len: Option<u32>,
}

/// What samples to make.
#[derive(Clone, Debug)]
pub struct DatasetPlan {
    /// The kind.
    pub kind: DatasetKind,
    /// The file; random has none.
    pub path: Option<PathBuf>,
    /// Samples; `None`: all that the file holds.
    pub requests: Option<usize>,
    /// Length of random prompts.
    pub input_len: Lengths,
    /// Tokens that all random prompts begin with.
    pub shared_prefix: u32,
    /// How random prompts are sent.
    pub prompt_as: PromptAs,
    /// Where random ids are drawn from when there is no tokenizer.
    pub ids: IdRange,
    /// Length of answers; `None`: what the file says, else the bound below.
    pub output_len: Option<Lengths>,
    /// Bound on it.
    pub max_output_len: Option<u32>,
    /// Of everything random.
    pub seed: u64,
}

impl DatasetPlan {
    /// Makes the samples, in the order in which they are sent.
    ///
    /// # Errors
    /// When the file cannot be read or prompts of these lengths cannot be made.
    pub fn samples(&self, tokens: Option<&Tokens>) -> Result<Vec<Sample>, StartError> {
        let mut rng = StdRng::seed_from_u64(self.seed);
        let entries = match self.kind {
            DatasetKind::Random => {
                let count = self.requests.unwrap_or(DEFAULT_REQUESTS);
                return self.random_samples(count, tokens, &mut rng);
            }
            kind => self.read(kind, tokens)?,
        };
        let count = self.requests.unwrap_or(entries.len());
        let repeated = entries.iter().cycle().take(count);
        let sample = |entry: &Entry| Sample {
            prompt: entry.prompt.clone(),
            output_len: self.output_len(entry.output_len, &mut rng),
            prompt_tokens: match &entry.prompt {
                Prompt::Text(text) => tokens.map(|tokens| tokens.count(text, true)),
                Prompt::Ids(ids) => Some(ids.len() as u32),
                Prompt::Messages(_) => None,
            },
        };
        Ok(repeated.map(sample).collect())
    }

    fn read(&self, kind: DatasetKind, tokens: Option<&Tokens>) -> Result<Vec<Entry>, StartError> {
        if self.shared_prefix > 0 {
            let problem = "--shared-prefix belongs to --dataset random";
            return Err(StartError::Usage(problem.to_owned()));
        }
        let Some(path) = &self.path else {
            let problem = format!("--dataset {} needs --dataset-path", kind.name());
            return Err(StartError::Usage(problem));
        };
        let file = file::read(path)?;
        let entries = match kind {
            DatasetKind::ShareGpt => sharegpt::entries(&file.text, tokens),
            DatasetKind::HumanEval => file.by_line(humaneval::entry),
            DatasetKind::Gsm8k => file.by_line(gsm8k::entry),
            DatasetKind::Jsonl | DatasetKind::Random => file.by_line(jsonl::entry),
        };
        let entries = entries.map_err(|problem| file.wrong(&problem))?;
        match entries.is_empty() {
            true => Err(file.wrong("it holds no prompt")),
            false => Ok(entries),
        }
    }

    fn random_samples(
        &self,
        count: usize,
        tokens: Option<&Tokens>,
        rng: &mut StdRng,
    ) -> Result<Vec<Sample>, StartError> {
        if self.path.is_some() {
            let problem = "--dataset-path needs --dataset jsonl, sharegpt, humaneval or gsm8k";
            return Err(StartError::Usage(problem.to_owned()));
        }
        let mut maker = random::Maker::new(self, tokens)?;
        let mut sample = || {
            let length = self.input_len.draw(rng);
            let (prompt, prompt_tokens) = maker.prompt(length, rng)?;
            Ok(Sample {
                prompt,
                output_len: self.output_len(None, rng),
                prompt_tokens,
            })
        };
        (0..count).map(|_| sample()).collect()
    }

    fn output_len(&self, own: Option<u32>, rng: &mut StdRng) -> u32 {
        let bound = self.max_output_len.unwrap_or(u32::MAX);
        let drawn = self.output_len.map(|lengths| lengths.draw(rng));
        let open = self.max_output_len.unwrap_or(DEFAULT_OUTPUT);
        drawn.or(own).unwrap_or(open).clamp(1, bound.max(1))
    }
}

#[cfg(test)]
mod tests;
