//! One record: what was asked, with what, and what came of it.

use crate::http::answer::finish_word;
use crate::http::wall_clock;
use ropeteam_actors::generation::{DoneEvent, GenerateEvent};
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::request::{GenerateRequest, Pooling, Prompt, StopRules};
use ropeteam_engine::sampling::SamplingParams;
use serde::{Deserialize, Serialize};

/// The form of records that this version writes and reads.
pub const FORM: u32 = 1;

/// A request and its answer. What only bears on when it ran (tenant, priority, cache salt, deadline) is left out, and so are keys and
/// headers. Without content, prompt and answers are sums, and what a client wrote into its parameters is left out as well.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// [`FORM`].
    pub form: u32,
    /// The request's id in the engine; it begins with the client's.
    pub id: String,
    /// Seconds since 1970.
    pub time: u64,
    /// Version of the server.
    pub build: String,
    /// Name of the model.
    pub model: String,
    /// SHA-256 of its files, if that was known by then.
    pub weights: Option<String>,
    /// Whether prompt and answers are here.
    pub content: bool,
    /// Tokens of the prompt; empty without content.
    pub prompt: Vec<TokenId>,
    /// SHA-256 of the prompt's tokens.
    pub prompt_sum: String,
    /// Continuations asked for.
    pub choices: u32,
    /// How tokens were chosen, the seed included.
    pub sampling: SamplingParams,
    /// When a continuation ends.
    pub stop: StopRules,
    /// The grammar, as its source.
    pub constraint: Option<String>,
    /// Most tokens per choice.
    pub max_tokens: Option<u32>,
    /// Log-probabilities asked for.
    pub logprobs: Option<u32>,
    /// Those of the prompt.
    pub prompt_logprobs: Option<u32>,
    /// A vector was asked for, this way.
    pub pooling: Option<Pooling>,
    /// Special tokens were left out of the text.
    pub skip_special_tokens: bool,
    /// What came of each choice.
    pub ended: Vec<Ended>,
    /// Why there is no (whole) answer.
    pub failed: Option<String>,
}

/// What came of a choice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// Its tokens; empty without content.
    pub ids: Vec<TokenId>,
    /// Its text; empty without content.
    pub text: String,
    /// How many tokens it has.
    pub tokens: u32,
    /// SHA-256 of its tokens.
    pub sum: String,
    /// How it ended; empty: it did not.
    pub finish: String,
}

impl Record {
    /// What is asked for; nothing has come of it yet.
    pub fn of(request: &GenerateRequest, content: bool) -> Self {
        let constraint = request.constraint.as_ref().and_then(|c| c.source());
        let mut record = Record {
            form: FORM,
            id: request.id.clone(),
            time: wall_clock::now(),
            build: String::new(),
            model: String::new(),
            weights: None,
            content,
            prompt: Vec::new(),
            prompt_sum: String::new(),
            choices: request.choices,
            sampling: request.sampling.clone(),
            stop: request.stop.clone(),
            constraint: constraint.map(|source| source.to_string()),
            max_tokens: request.max_tokens,
            logprobs: request.logprobs,
            prompt_logprobs: request.prompt_logprobs,
            pooling: request.pooling,
            skip_special_tokens: request.skip_special_tokens,
            ended: vec![Ended::default(); request.choices as usize],
            failed: None,
        };
        if !content {
            record.redact();
        }
        record
    }

    /// Takes out what a client wrote, but for numbers.
    fn redact(&mut self) {
        self.stop.strings.clear();
        self.stop.token_ids.clear();
        self.constraint = None;
        let sampling = &mut self.sampling;
        sampling.logit_bias.clear();
        sampling.suppress_tokens.clear();
        sampling.allowed_tokens.clear();
        sampling.bad_sequences.clear();
        sampling.logprob_tokens.clear();
    }

    /// Takes in what the engine says of it.
    pub fn take(&mut self, event: &GenerateEvent) {
        match event {
            GenerateEvent::Started(started) => {
                self.prompt = started.prompt_ids.to_vec();
            }
            GenerateEvent::Tokens(tokens) => {
                let ids = tokens.tokens.iter().map(|token| token.id);
                if let Some(ended) = self.ended.get_mut(tokens.choice as usize) {
                    ended.ids.extend(ids);
                    ended.text.push_str(&tokens.text);
                }
            }
            GenerateEvent::Done(done) => self.end(done),
            GenerateEvent::Failed(error) => self.failed = Some(error.to_string()),
        }
    }

    fn end(&mut self, done: &DoneEvent) {
        if let Some(ended) = self.ended.get_mut(done.choice as usize) {
            ended.text.push_str(&done.text);
            ended.finish = finish_word(&done.reason).to_owned();
        }
    }

    /// The record as it is kept: with sums, and without content where there is to be none.
    pub fn sealed(&self) -> Record {
        let mut record = self.clone();
        record.prompt_sum = sha256::of_tokens(&record.prompt);
        for ended in &mut record.ended {
            ended.tokens = ended.ids.len() as u32;
            ended.sum = sha256::of_tokens(&ended.ids);
        }
        if !record.content {
            record.prompt.clear();
            for ended in &mut record.ended {
                ended.ids.clear();
                ended.text.clear();
            }
        }
        record
    }

    /// The request, to be made again; its grammar is left to the caller.
    pub fn request(&self) -> GenerateRequest {
        GenerateRequest {
            id: self.id.clone(),
            prompt: Prompt::Ids(self.prompt.clone()),
            truncate: None,
            choices: self.choices,
            sampling: self.sampling.clone(),
            constraint: None,
            stop: self.stop.clone(),
            max_tokens: self.max_tokens.or_else(|| self.full_length()),
            logprobs: self.logprobs,
            prompt_logprobs: self.prompt_logprobs,
            pooling: self.pooling,
            skip_special_tokens: self.skip_special_tokens,
            cache_salt: String::new(),
            tenant: String::new(),
            priority: 0,
            timeout: None,
        }
    }

    /// Where nothing but the server's limits bounded it: what they came to.
    fn full_length(&self) -> Option<u32> {
        let at_limit = self.ended.iter().filter(|e| e.finish == "length");
        at_limit.map(|ended| ended.ids.len() as u32).max()
    }
}

/// Sums of tokens and files.
pub(super) mod sha256 {
    use ropeteam_engine::ids::TokenId;
    use sha2::{Digest, Sha256};
    use std::fs::File;
    use std::io::{self, Read};
    use std::path::PathBuf;

    fn hexadecimal(hasher: Sha256) -> String {
        let digest = hasher.finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Of ids, four bytes each, the lowest first.
    pub fn of_tokens(ids: &[TokenId]) -> String {
        let mut hasher = Sha256::new();
        ids.iter().for_each(|id| hasher.update(id.0.to_le_bytes()));
        hexadecimal(hasher)
    }

    /// Of files one after the other.
    pub fn of_files(files: &[PathBuf]) -> io::Result<String> {
        let mut hasher = Sha256::new();
        let mut chunk = vec![0; 1 << 20];
        for file in files {
            let mut file = File::open(file)?;
            loop {
                match file.read(&mut chunk)? {
                    0 => break,
                    n => hasher.update(&chunk[..n]),
                }
            }
        }
        Ok(hexadecimal(hasher))
    }
}
