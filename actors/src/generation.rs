//! What a caller of the engine sees of one request: a stream of events, ended by one `Done` per choice or one `Failed`.
//! Dropping the `Generation` cancels the request.

use crate::messages::Snapshot;
use actix::Recipient;
use futures_util::Stream;
use ropeteam_engine::ids::{DeviceId, TokenId};
use ropeteam_engine::request::FinishReason;
use serde::Serialize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// The events of one request, in order; ends after the last of them. It is bound to no thread or runtime.
/// Dropping it cancels the request: its blocks are free one step later.
#[derive(Debug)]
pub struct Generation {
    events: mpsc::Receiver<GenerateEvent>,
    /// `None` if the request was refused before it had one.
    session: Option<Recipient<Snapshot<SessionView>>>,
}

impl Generation {
    pub(crate) fn new(
        events: mpsc::Receiver<GenerateEvent>,
        session: Option<Recipient<Snapshot<SessionView>>>,
    ) -> Self {
        Generation { events, session }
    }

    /// How far the request has come; `None` once it is over.
    pub async fn view(&self) -> Option<SessionView> {
        self.session.as_ref()?.send(Snapshot::new()).await.ok()
    }

    /// The next event; `None` after the last.
    pub async fn next_event(&mut self) -> Option<GenerateEvent> {
        self.events.recv().await
    }
}

impl Stream for Generation {
    type Item = GenerateEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<GenerateEvent>> {
        self.events.poll_recv(cx)
    }
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestState {
    /// Its prompt is being tokenised.
    Tokenising,
    /// No device has begun with it.
    Waiting,
    /// A device computes for it, or did and another one will.
    Running,
}

/// A view of one session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionView {
    /// The request's id.
    pub request: String,
    /// How far it is.
    pub state: RequestState,
    /// Whose it is.
    pub tenant: String,
    /// Lower is served earlier.
    pub priority: i32,
    /// The device that last computed for it.
    pub device: Option<DeviceId>,
    /// Prompt tokens; `None` while they are not known.
    pub prompt_tokens: Option<usize>,
    /// Generated tokens per choice.
    pub generated_tokens: Vec<usize>,
    /// Choices that go on.
    pub open_choices: usize,
    /// How often its sequences went on after the loss of a device.
    pub replays: u32,
    /// Seconds since its arrival.
    pub age_s: f64,
}

/// One event of a running request, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum GenerateEvent {
    /// The prompt was tokenised and the request admitted; comes first, once.
    Started(Started),
    /// New tokens of one choice, at least one.
    Tokens(TokensEvent),
    /// A choice ended; the last event of that choice.
    Done(DoneEvent),
    /// The whole request ended without a (further) result; the last event.
    Failed(RequestError),
}

/// The prompt as the engine sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    /// Prompt token ids, after truncation.
    pub prompt_ids: Arc<[TokenId]>,
    /// Per prompt token its log-probability and the best alternatives, when asked for; the first has none.
    pub prompt_logprobs: Option<Vec<PromptLogprob>>,
}

/// Log-probability of one prompt token; all is empty for the first token.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptLogprob {
    /// Natural log under the model's unmodified distribution.
    pub logprob: Option<f32>,
    /// How many tokens are at least as likely in its place, itself included: 1 for the best.
    pub rank: Option<u32>,
    /// The best tokens in its place, best first.
    pub top: Vec<(TokenId, f32)>,
}

/// New tokens of one choice.
#[derive(Clone, Debug, PartialEq)]
pub struct TokensEvent {
    /// Which choice, from 0.
    pub choice: u32,
    /// Text that may now be shown: never half a character, never the beginning of a stop string. May be empty.
    pub text: String,
    /// The tokens.
    pub tokens: Vec<TokenOut>,
}

/// One generated token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenOut {
    /// Its id.
    pub id: TokenId,
    /// The text this token completed (empty inside a character), whatever the stop strings hold back.
    pub text: String,
    /// Whether it is a special token.
    pub special: bool,
    /// Natural-log probability, when asked for; finite.
    pub logprob: Option<f32>,
    /// The best alternatives, best first, when asked for.
    pub top: Vec<(TokenId, f32)>,
}

/// The end of one choice.
#[derive(Clone, Debug, PartialEq)]
pub struct DoneEvent {
    /// Which choice.
    pub choice: u32,
    /// Text that was held back and is now free; append it.
    pub text: String,
    /// Why it ended.
    pub reason: FinishReason,
    /// What it used.
    pub usage: Usage,
    /// The vector of the prompt, not normalised, when the request asked for one.
    pub embedding: Option<Vec<f32>>,
}

/// Token counts and times of one choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Prompt tokens.
    pub prompt_tokens: u32,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: u32,
    /// Generated tokens, an end id included.
    pub completion_tokens: u32,
    /// From arrival to the device's first step for it.
    pub queue_time: Duration,
    /// From arrival to the first token.
    pub first_token_time: Duration,
    /// From arrival to the end.
    pub total_time: Duration,
    /// The seed that was used.
    pub seed: u64,
}

/// Why a request has no (further) result. The variants say what the caller can do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// The waiting queue is full; try again later.
    #[error("the waiting queue is full ({limit} requests)")]
    QueueFull {
        /// Its bound.
        limit: usize,
        /// When it is worth trying again.
        retry_after: Duration,
    },
    /// At the speed of the queue it would wait longer than it may; try again later, or elsewhere.
    #[error(
        "the queue is expected to take {forecast:?}, longer than the {allowed:?} that the request may wait"
    )]
    TooBusy {
        /// How long it would wait.
        forecast: Duration,
        /// How long it may.
        allowed: Duration,
        /// When it is worth trying again.
        retry_after: Duration,
    },
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Draining,
    /// No device is left to serve it.
    #[error("no device is available")]
    NoDevice,
    /// Prompt (and wanted output) can never fit.
    #[error("{what} of {given} tokens is over the limit of {limit} tokens")]
    TooLong {
        /// "prompt", or "prompt and output together".
        what: &'static str,
        /// Tokens asked for.
        given: usize,
        /// Tokens possible.
        limit: usize,
        /// Which limit: "the model's length limit", "the limit of prompts" or "the KV pool".
        which: &'static str,
    },
    /// The request itself is wrong.
    #[error("{field}: {message}")]
    Invalid {
        /// Its field.
        field: &'static str,
        /// The value and what was expected.
        message: String,
    },
    /// It waited in the queue longer than allowed.
    #[error("the request waited {waited:?} in the queue, longer than allowed")]
    QueueTimeout {
        /// How long.
        waited: Duration,
    },
    /// An operator ended it.
    #[error("the request was ended by an operator")]
    Cancelled,
    /// The device failed and the request could not go on.
    #[error("the device failed: {0}")]
    Device(String),
}
