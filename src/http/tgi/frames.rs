//! The TGI dialect's stream: one event per token, `data:` without a space, the whole text with the last token, no `[DONE]`.
//!
//! That a token was the last one is known only from the event behind it. So a token that may be the last (by count, by being special, by a
//! stop sequence) is held until that event, which follows at once when it is; all others leave immediately.

use super::error::Body;
use super::wire::{Token, finish_reason};
use crate::http::refusal::Refusal;
use crate::http::sse::{FrameWriter, frame_after};
use actix_web::web::BytesMut;
use ropeteam_actors::generation::{DoneEvent, GenerateEvent, TokenOut};
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::text::TextCodec;
use serde::Serialize;
use std::sync::Arc;

#[derive(Serialize)]
struct StreamEvent<'a> {
    token: Token,
    generated_text: Option<&'a str>,
    details: Option<StreamDetails>,
}

#[derive(Serialize)]
struct StreamDetails {
    finish_reason: &'static str,
    generated_tokens: u32,
    seed: Option<u64>,
}

/// What the stream needs to know of its request.
pub struct StreamParts {
    /// Stands before the whole text.
    pub prefix: String,
    /// The last event carries details.
    pub details: bool,
    /// Tokens were drawn, so there is a seed to tell.
    pub sampled: bool,
    /// Most tokens.
    pub max_new_tokens: u32,
    /// Stop sequences.
    pub stops: Vec<String>,
    /// For token texts.
    pub text: Arc<dyn TextCodec>,
    /// How a data line begins: the original writes no space behind the colon.
    pub data: &'static str,
}

/// How the original's data lines begin.
pub const DATA: &str = "data:";

/// Writes the events of one answer.
pub struct TgiFrames {
    parts: StreamParts,
    /// The whole text so far, the prefix included.
    whole: String,
    /// The text of all tokens, whatever stop sequences hold back.
    seen: String,
    count: u32,
    held: Option<Token>,
    last_id: TokenId,
}

impl TgiFrames {
    /// For an answer to the request of `parts`.
    pub fn new(parts: StreamParts) -> Self {
        let whole = parts.prefix.clone();
        TgiFrames {
            parts,
            whole,
            seen: String::new(),
            count: 0,
            held: None,
            last_id: TokenId(0),
        }
    }

    fn token(&mut self, token: &TokenOut, out: &mut BytesMut) {
        self.release(out);
        self.count += 1;
        self.last_id = token.id;
        self.seen.push_str(&token.text);
        let wire = Token::of(token, &*self.parts.text);
        if self.may_be_last(token) {
            self.held = Some(wire);
        } else {
            self.plain(wire, out);
        }
    }

    fn plain(&self, token: Token, out: &mut BytesMut) {
        let event = StreamEvent {
            token,
            generated_text: None,
            details: None,
        };
        frame_after(self.parts.data, &event, out);
    }

    fn may_be_last(&self, token: &TokenOut) -> bool {
        let stopped = |stop: &String| {
            let mut from = self
                .seen
                .len()
                .saturating_sub(token.text.len() + stop.len());
            while !self.seen.is_char_boundary(from) {
                from -= 1;
            }
            self.seen[from..].contains(stop.as_str())
        };
        self.count >= self.parts.max_new_tokens
            || token.special
            || self.parts.stops.iter().any(stopped)
    }

    fn release(&mut self, out: &mut BytesMut) {
        if let Some(token) = self.held.take() {
            self.plain(token, out);
        }
    }

    fn done(&mut self, event: &DoneEvent, out: &mut BytesMut) {
        self.whole.push_str(&event.text);
        // The engine may end a sequence on its own account, behind a token that was sent: then the end has an event without text.
        let token = self.held.take().unwrap_or_else(|| {
            let empty = TokenOut {
                id: self.last_id,
                text: String::new(),
                special: false,
                logprob: None,
                top: Vec::new(),
            };
            Token::of(&empty, &*self.parts.text)
        });
        let details = self.parts.details.then_some(StreamDetails {
            finish_reason: finish_reason(&event.reason),
            generated_tokens: event.usage.completion_tokens,
            seed: self.parts.sampled.then_some(event.usage.seed),
        });
        let last = StreamEvent {
            token,
            generated_text: Some(&self.whole),
            details,
        };
        frame_after(self.parts.data, &last, out);
    }
}

impl FrameWriter for TgiFrames {
    fn event(&mut self, _: usize, event: GenerateEvent, out: &mut BytesMut) {
        match event {
            GenerateEvent::Tokens(event) => {
                for token in &event.tokens {
                    self.token(token, out);
                }
                self.whole.push_str(&event.text);
            }
            GenerateEvent::Done(event) => self.done(&event, out),
            GenerateEvent::Started(_) | GenerateEvent::Failed(_) => {}
        }
    }

    fn end(&mut self, _: &mut BytesMut) {}

    fn failure(&mut self, refusal: &Refusal, out: &mut BytesMut) {
        self.release(out);
        frame_after(self.parts.data, &Body::of(refusal), out);
    }
}
