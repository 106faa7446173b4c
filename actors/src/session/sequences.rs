//! The sequences of one request: what a device needs to begin with each of them, or to go on with it anywhere.

use super::choice::{Choice, ChoiceParts};
use super::prompt::Prepared;
use crate::generation::RequestError;
use ropeteam_engine::executor::FaultKind;
use ropeteam_engine::ids::{SeqId, TokenId};
use ropeteam_engine::request::{FinishReason, GenerateRequest};
use ropeteam_engine::stop::StopMatcher;
use ropeteam_engine::text::TextCodec;
use ropeteam_engine::time::Time;
use ropeteam_engine::work::Work;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// A sequence under which so many devices died without a token in between is suspected of it.
const SUSPECTED_AFTER: u32 = 2;

/// All choices of a request, with what they share.
pub(crate) struct Sequences {
    pub prompt: Arc<[TokenId]>,
    pub max_tokens: u32,
    pub choices: Vec<Choice>,
    /// How often one of them went on after the loss of its device.
    pub replays: u32,
    request: Arc<GenerateRequest>,
    end_ids: Arc<[TokenId]>,
    arrived: Time,
    queue_deadline: Option<Time>,
}

/// What sequences are made of.
pub(crate) struct SequencesParts<'a> {
    pub request: Arc<GenerateRequest>,
    pub prepared: Prepared,
    pub codec: &'a dyn TextCodec,
    pub eos_ids: &'a [TokenId],
    /// Id of the first choice's sequence; the others follow.
    pub first: SeqId,
    pub arrived: Time,
    pub queue_timeout: Option<Duration>,
}

impl Sequences {
    pub fn new(parts: SequencesParts<'_>) -> Result<Self, RequestError> {
        let request = &parts.request;
        let choices: Result<Vec<Choice>, RequestError> = (0..request.choices)
            .map(|index| choice(&parts, index))
            .collect();
        let mut end_ids = request.stop.token_ids.clone();
        if !request.stop.ignore_eos {
            end_ids.extend(parts.eos_ids);
        }
        Ok(Sequences {
            choices: choices?,
            replays: 0,
            end_ids: end_ids.into(),
            arrived: parts.arrived,
            queue_deadline: parts.queue_timeout.map(|timeout| parts.arrived + timeout),
            prompt: parts.prepared.prompt,
            max_tokens: parts.prepared.max_tokens,
            request: parts.request,
        })
    }

    /// Works for all choices, to begin with.
    pub fn first_works(&self) -> Vec<Work> {
        self.choices
            .iter()
            .map(|choice| self.work(choice))
            .collect()
    }

    fn work(&self, choice: &Choice) -> Work {
        let begun = !choice.output.is_empty();
        let request = &self.request;
        Work {
            seq: choice.seq,
            prompt: self.prompt.clone(),
            output: choice.output.clone(),
            sampling: choice.sampling.clone(),
            constraint: request.constraint.clone(),
            end_ids: self.end_ids.clone(),
            min_tokens: request.stop.min_tokens,
            max_tokens: self.max_tokens,
            logprobs: request.logprobs,
            prompt_logprobs: request.prompt_logprobs.filter(|_| !begun),
            pooling: request.pooling,
            cache_salt: salt(&request.cache_salt),
            tenant: request.tenant.as_str().into(),
            priority: request.priority,
            arrived: self.arrived,
            // Who was on a device once waits as long as its request lives.
            queue_deadline: self.queue_deadline.filter(|_| choice.interruptions == 0),
        }
    }

    /// Its device died under the sequence: the work to go on with and whether it is suspected, or `None` if that happened too often.
    /// A restart that an operator asked for is not the sequence's fault.
    pub fn interrupted(&mut self, i: usize, kind: FaultKind, limit: u32) -> Option<(Work, bool)> {
        let choice = &mut self.choices[i];
        let deaths = match kind {
            FaultKind::Requested => 0,
            _ => choice.interrupted(kind),
        };
        if deaths >= limit {
            return None;
        }
        self.replays += 1;
        Some((self.work(&self.choices[i]), deaths >= SUSPECTED_AFTER))
    }

    /// The choice of that sequence, if it goes on.
    pub fn open_choice(&self, seq: SeqId) -> Option<usize> {
        self.choices
            .iter()
            .position(|c| c.seq == seq && c.ended.is_none())
    }

    /// All that go on.
    pub fn open(&self) -> Vec<usize> {
        (0..self.choices.len())
            .filter(|&i| self.choices[i].ended.is_none())
            .collect()
    }

    /// Whether none goes on.
    pub fn is_over(&self) -> bool {
        self.choices.iter().all(|c| c.ended.is_some())
    }

    /// How its choices ended.
    pub fn reasons(&self) -> impl Iterator<Item = &FinishReason> {
        self.choices.iter().filter_map(|c| c.ended.as_ref())
    }
}

fn choice(parts: &SequencesParts<'_>, index: u32) -> Result<Choice, RequestError> {
    let request = &parts.request;
    let stop = &request.stop;
    let matcher = StopMatcher::new(&stop.strings, stop.include_stop_string, stop.min_tokens);
    let matcher = matcher.map_err(|error| RequestError::Invalid {
        field: "stop",
        message: error.to_string(),
    })?;
    Ok(Choice::new(ChoiceParts {
        seq: SeqId(parts.first.0 + u64::from(index)),
        index,
        sampling: request.sampling_of(index),
        decoder: parts
            .codec
            .decoder(&parts.prepared.prompt, request.skip_special_tokens),
        matcher,
        include_stop: stop.include_stop_string,
    }))
}

/// The common salt is 0.
fn salt(text: &str) -> u64 {
    if text.is_empty() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
