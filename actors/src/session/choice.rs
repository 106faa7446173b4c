//! One choice of a request as its session holds it: the tokens so far, their text, and when it ends. It knows enough to give a
//! device the whole sequence again. No actor, no channel.

use crate::generation::{DoneEvent, TokenOut, TokensEvent, Usage};
use ropeteam_engine::device_core::SeqUpdate;
use ropeteam_engine::executor::FaultKind;
use ropeteam_engine::ids::{SeqId, TokenId};
use ropeteam_engine::request::FinishReason;
use ropeteam_engine::sampling::SamplingParams;
use ropeteam_engine::stop::StopMatcher;
use ropeteam_engine::text::{TextCodec, TokenDecoder};
use ropeteam_engine::time::Time;
use ropeteam_engine::work::{DeviceFinish, SampledToken};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// So many kills from outside are as suspicious as one death.
const KILLS_PER_DEATH: u32 = 4;

/// The state of one choice.
pub(crate) struct Choice {
    pub seq: SeqId,
    pub sampling: Arc<SamplingParams>,
    pub output: Vec<TokenId>,
    /// How often a device died under it.
    pub interruptions: u32,
    /// Suspicion since it got its last token.
    suspicion: u32,
    /// It is suspected of deaths, and its turn lasts until it has got a token.
    pub turn: Option<OwnedSemaphorePermit>,
    /// Tokens it had at the last of those deaths.
    output_then: usize,
    pub times: ChoiceTimes,
    pub cached_tokens: u32,
    /// Set when it has ended for the client.
    pub ended: Option<FinishReason>,
    /// The vector of the prompt, where it was asked for.
    pooled: Option<Vec<f32>>,
    index: u32,
    decoder: Box<dyn TokenDecoder>,
    matcher: StopMatcher,
    include_stop: bool,
}

/// When things happened first (or last) to a choice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChoiceTimes {
    pub started: Option<Time>,
    pub first_token: Option<Time>,
    pub last_token: Option<Time>,
}

/// What a choice is made of.
pub(crate) struct ChoiceParts {
    pub seq: SeqId,
    pub index: u32,
    pub sampling: SamplingParams,
    pub decoder: Box<dyn TokenDecoder>,
    pub matcher: StopMatcher,
    pub include_stop: bool,
}

/// What an update brought.
pub(crate) struct Brought {
    pub tokens: Option<TokensEvent>,
    pub end: Option<FinishReason>,
}

impl Choice {
    pub fn new(parts: ChoiceParts) -> Self {
        Choice {
            seq: parts.seq,
            sampling: Arc::new(parts.sampling),
            output: Vec::new(),
            interruptions: 0,
            suspicion: 0,
            turn: None,
            output_then: 0,
            times: ChoiceTimes::default(),
            cached_tokens: 0,
            ended: None,
            pooled: None,
            index: parts.index,
            decoder: parts.decoder,
            matcher: parts.matcher,
            include_stop: parts.include_stop,
        }
    }

    /// A device died under it. Returns how many did since it got its last token: with each of them it is more likely the cause.
    /// One that something from outside killed is hardly its fault, and several of those count as one.
    pub fn interrupted(&mut self, kind: FaultKind) -> u32 {
        self.turn = None;
        if self.output.len() > self.output_then {
            self.suspicion = 0;
        }
        self.output_then = self.output.len();
        self.interruptions += 1;
        self.suspicion += match kind {
            FaultKind::Killed => 1,
            _ => KILLS_PER_DEATH,
        };
        self.suspicion / KILLS_PER_DEATH
    }

    /// Takes a device's news. What follows a stop string is dropped.
    pub fn take(
        &mut self,
        update: SeqUpdate,
        codec: &dyn TextCodec,
        eos: &[TokenId],
        now: Time,
    ) -> Brought {
        if let Some(started) = update.started
            && self.times.started.is_none()
        {
            self.times.started = Some(started.at);
            self.cached_tokens = started.cached_tokens;
        }
        self.pooled = update.pooled.or(self.pooled.take());
        let ends_with_id = update.finish == Some(DeviceFinish::EndId);
        let count = update.tokens.len();
        if count > 0 {
            self.turn = None;
        }
        let mut event = TokensEvent {
            choice: self.index,
            text: String::new(),
            tokens: vec![],
        };
        let mut end = None;
        for (i, token) in update.tokens.into_iter().enumerate() {
            let hidden = ends_with_id && i + 1 == count && !self.include_stop;
            end = self.take_token(token, hidden, codec, &mut event);
            if end.is_some() {
                break;
            }
        }
        if !event.tokens.is_empty() {
            self.times.first_token.get_or_insert(now);
            self.times.last_token = Some(now);
        }
        let end = end.or_else(|| update.finish.map(|finish| self.reason(finish, eos)));
        Brought {
            tokens: (!event.tokens.is_empty()).then_some(event),
            end,
        }
    }

    /// Adds one token to the output and to the event; returns the stop string that it completed.
    fn take_token(
        &mut self,
        token: SampledToken,
        hidden: bool,
        codec: &dyn TextCodec,
        event: &mut TokensEvent,
    ) -> Option<FinishReason> {
        self.output.push(token.id);
        let text = self.decoder.push(token.id);
        let shown = if hidden { "" } else { text.as_str() };
        event
            .text
            .push_str(&self.matcher.push(shown, self.output.len() as u32).text);
        event.tokens.push(TokenOut {
            id: token.id,
            text,
            special: codec.is_special(token.id),
            logprob: token.logprob,
            top: token.top,
        });
        self.matcher
            .matched()
            .map(|stop| FinishReason::StopString(stop.to_owned()))
    }

    fn reason(&self, finish: DeviceFinish, eos: &[TokenId]) -> FinishReason {
        match (finish, self.output.last()) {
            (DeviceFinish::EndId, Some(id)) if eos.contains(id) => FinishReason::EndOfText(*id),
            (DeviceFinish::EndId, Some(id)) => FinishReason::StopToken(*id),
            (DeviceFinish::Pooled, _) => FinishReason::Pooled,
            (DeviceFinish::BadLogits, _) => FinishReason::DeviceError,
            (DeviceFinish::ConstraintFailed, _) => FinishReason::ConstraintFailed,
            (DeviceFinish::EndId | DeviceFinish::Length, _) => FinishReason::Length,
        }
    }

    /// Ends the choice and returns its last event; what was held back is free now.
    pub fn end(&mut self, mut reason: FinishReason, usage: Usage) -> DoneEvent {
        let mut text = String::new();
        if self.matcher.matched().is_none() {
            let rest = self.decoder.finish();
            text = self.matcher.push(&rest, self.output.len() as u32).text;
            match self.matcher.matched() {
                Some(stop) => reason = FinishReason::StopString(stop.to_owned()),
                None => text.push_str(&self.matcher.finish()),
            }
        }
        self.turn = None;
        self.ended = Some(reason.clone());
        DoneEvent {
            choice: self.index,
            text,
            reason,
            usage,
            embedding: self.pooled.take(),
        }
    }

    /// What it used; times count from the request's arrival.
    pub fn usage(&self, prompt_tokens: u32, arrived: Time, now: Time) -> Usage {
        let since = |at: Option<Time>| at.unwrap_or(now).since(arrived);
        Usage {
            prompt_tokens,
            cached_tokens: self.cached_tokens,
            completion_tokens: self.output.len() as u32,
            queue_time: since(self.times.started),
            first_token_time: since(self.times.first_token),
            total_time: now.since(arrived),
            seed: self.sampling.seed,
        }
    }
}
