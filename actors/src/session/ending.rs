//! What a session tells the listeners about its request, and the errors it tells the client.

use super::sequences::Sequences;
use crate::generation::RequestError;
use ropeteam_engine::device_core::AssignError;
use ropeteam_engine::observe::{CancelStage, Event, FinishedRequest, Outcome, RefusedReason};
use ropeteam_engine::request::{FinishReason, GenerateRequest};
use ropeteam_engine::scheduler::Refusal;
use ropeteam_engine::time::Time;

/// What is known of a request when it ends.
pub(crate) struct End<'a> {
    pub request: &'a GenerateRequest,
    pub sequences: Option<&'a Sequences>,
    pub arrived: Time,
    pub now: Time,
}

impl End<'_> {
    /// The request's last event on the bus when its choices have ended.
    pub fn finished(&self) -> Event {
        let outcome = match self.sequences {
            Some(sequences) => sequences.reasons().map(outcome).max_by_key(|o| badness(*o)),
            None => None,
        };
        self.event(outcome.unwrap_or(Outcome::Cancelled))
    }

    /// The request's last event on the bus when it failed as a whole.
    pub fn failed(&self, error: &RequestError) -> Event {
        let reason = match error {
            RequestError::QueueFull { .. } => RefusedReason::QueueFull,
            RequestError::TooBusy { .. } => RefusedReason::TooBusy,
            RequestError::Draining if self.was_on_device() => {
                return self.event(Outcome::Cancelled);
            }
            RequestError::Draining => RefusedReason::Draining,
            RequestError::NoDevice => RefusedReason::NoDevice,
            RequestError::TooLong { .. } => RefusedReason::TooLong,
            RequestError::Invalid { .. } => RefusedReason::Invalid,
            RequestError::QueueTimeout { .. } => RefusedReason::QueueTimeout,
            RequestError::Cancelled => return self.event(Outcome::Cancelled),
            RequestError::Device(_) => return self.event(Outcome::DeviceError),
        };
        Event::Refused {
            request: self.request.id.as_str().into(),
            reason,
        }
    }

    fn was_on_device(&self) -> bool {
        self.first(|times| times.started).is_some()
    }

    /// The earliest of a time over all choices.
    fn first(&self, of: impl Fn(&super::choice::ChoiceTimes) -> Option<Time>) -> Option<Time> {
        self.sequences?
            .choices
            .iter()
            .filter_map(|c| of(&c.times))
            .min()
    }

    fn event(&self, outcome: Outcome) -> Event {
        let since = |at: Time| at.since(self.arrived);
        let choices = self
            .sequences
            .map(|s| s.choices.as_slice())
            .unwrap_or_default();
        let first_token = self.first(|times| times.first_token);
        let stage = match (self.was_on_device(), first_token) {
            (false, _) => CancelStage::Queue,
            (true, None) => CancelStage::Prefill,
            (true, Some(_)) => CancelStage::Decode,
        };
        Event::Finished(FinishedRequest {
            request: self.request.id.as_str().into(),
            tenant: self.request.tenant.as_str().into(),
            outcome,
            cancelled_in: (outcome == Outcome::Cancelled).then_some(stage),
            choices: self.request.choices,
            max_tokens: self.sequences.map_or(0, |s| s.max_tokens),
            prompt_tokens: self.sequences.map_or(0, |s| s.prompt.len() as u32),
            cached_tokens: choices.first().map_or(0, |c| c.cached_tokens),
            generated_tokens: choices.iter().map(|c| c.output.len() as u32).sum(),
            queue_time: self.first(|times| times.started).map(since),
            first_token_time: first_token.map(since),
            last_token_time: choices
                .iter()
                .filter_map(|c| c.times.last_token)
                .max()
                .map(since),
            total_time: self.now.since(self.arrived),
            replays: self.sequences.map_or(0, |s| s.replays),
        })
    }
}

fn outcome(reason: &FinishReason) -> Outcome {
    match reason {
        FinishReason::EndOfText(_)
        | FinishReason::StopToken(_)
        | FinishReason::StopString(_)
        | FinishReason::Pooled => Outcome::Stop,
        FinishReason::Length => Outcome::Length,
        FinishReason::Cancelled => Outcome::Cancelled,
        FinishReason::Timeout => Outcome::Timeout,
        FinishReason::DeviceError => Outcome::DeviceError,
        FinishReason::ConstraintFailed => Outcome::ConstraintFailed,
    }
}

/// A request with several choices counts as its worst one.
fn badness(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Stop => 0,
        Outcome::Length => 1,
        Outcome::Cancelled => 2,
        Outcome::Timeout => 3,
        Outcome::ConstraintFailed => 4,
        Outcome::DeviceError => 5,
    }
}

/// The scheduler's refusal in the client's terms.
pub(crate) fn refusal_error(refusal: Refusal) -> RequestError {
    match refusal {
        Refusal::QueueFull { limit, retry_after } => RequestError::QueueFull { limit, retry_after },
        Refusal::TooLong {
            given,
            limit,
            which,
        } => RequestError::TooLong {
            what: "prompt",
            given,
            limit,
            which,
        },
        Refusal::TooBusy {
            forecast,
            allowed,
            retry_after,
        } => RequestError::TooBusy {
            forecast,
            allowed,
            retry_after,
        },
        Refusal::Draining => RequestError::Draining,
        Refusal::NoDevice => RequestError::NoDevice,
        Refusal::QueueTimeout { waited } => RequestError::QueueTimeout { waited },
        Refusal::Duplicate(_) => RequestError::Device(refusal.to_string()),
    }
}

/// The device's refusal in the client's terms.
pub(crate) fn assign_error(error: AssignError) -> RequestError {
    match error {
        AssignError::TooLong {
            given,
            limit,
            which,
        } => RequestError::TooLong {
            what: "prompt",
            given,
            limit,
            which: which.as_str(),
        },
        other => RequestError::Device(other.to_string()),
    }
}
