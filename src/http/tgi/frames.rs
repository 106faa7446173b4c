//! The TGI dialect's stream: one event per token, `data:` without a space (MindIE's with one), the whole text with the last token, no
//! `[DONE]`.
//!
//! That a token was the last one is known only from the event behind it. So a token that may be the last (by count, if that is known, by being special, by a
//! stop sequence) is held until that event, which follows at once when it is; all others leave immediately.

use super::Version;
use super::error::Body;
use super::wire::{Token, finish_reason};
use crate::http::mindie::error::Body as MindIeBody;
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
    /// Later versions': the how-many-eth token it is, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u32>,
    token: Token,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    top_tokens: Vec<Token>,
    generated_text: Option<&'a str>,
    details: Option<StreamDetails>,
}

#[derive(Serialize)]
struct StreamDetails {
    /// MindIE's alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens: Option<u32>,
    finish_reason: &'static str,
    generated_tokens: u32,
    seed: Option<u64>,
    /// Later versions' alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_length: Option<u32>,
}

/// A token as it is shown.
struct Shown {
    index: u32,
    token: Token,
    top: Vec<Token>,
}

/// What the stream needs to know of its request.
pub struct StreamParts {
    /// Stands before the whole text.
    pub prefix: String,
    /// The last event carries details.
    pub details: bool,
    /// Tokens were drawn, so there is a seed to tell.
    pub sampled: bool,
    /// Most tokens as asked for; `None`: as many as there is room for.
    pub max_new_tokens: Option<u32>,
    /// The room for prompt and output together.
    pub max_total_tokens: u32,
    /// Most tokens whatever is asked for.
    pub max_output_tokens: u32,
    /// Stop sequences.
    pub stops: Vec<String>,
    /// For token texts.
    pub text: Arc<dyn TextCodec>,
    /// So many best tokens beside each one.
    pub top_n: u32,
    /// Whose form.
    pub version: Version,
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
    /// Most tokens there can be, known when the prompt is.
    most: u32,
    held: Option<Shown>,
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
            most: u32::MAX,
            held: None,
            last_id: TokenId(0),
        }
    }

    fn token(&mut self, token: &TokenOut, out: &mut BytesMut) {
        self.release(out);
        self.count += 1;
        self.last_id = token.id;
        self.seen.push_str(&token.text);
        let shown = self.shown(token);
        if self.may_be_last(token) {
            self.held = Some(shown);
        } else {
            self.write(shown, None, out);
        }
    }

    fn shown(&self, token: &TokenOut) -> Shown {
        let parts = &self.parts;
        let wire = Token::of(token, &*parts.text);
        Shown {
            index: self.count,
            token: match parts.version {
                Version::MindIe => wire.bare(),
                _ => wire,
            },
            top: Token::top(token, parts.top_n, &*parts.text),
        }
    }

    /// Writes a token, with the end if it is the last.
    fn write(&self, shown: Shown, end: Option<&DoneEvent>, out: &mut BytesMut) {
        let parts = &self.parts;
        let details = |end: &DoneEvent| StreamDetails {
            prompt_tokens: (parts.version == Version::MindIe).then_some(end.usage.prompt_tokens),
            finish_reason: finish_reason(&end.reason),
            generated_tokens: end.usage.completion_tokens,
            seed: parts.sampled.then_some(end.usage.seed),
            input_length: (parts.version == Version::Later).then_some(end.usage.prompt_tokens),
        };
        let event = StreamEvent {
            index: (parts.version == Version::Later).then_some(shown.index),
            token: shown.token,
            top_tokens: shown.top,
            generated_text: end.map(|_| self.whole.as_str()),
            details: end.filter(|_| parts.details).map(details),
        };
        frame_after(parts.data, &event, out);
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
        self.count >= self.most || token.special || self.parts.stops.iter().any(stopped)
    }

    fn release(&mut self, out: &mut BytesMut) {
        if let Some(shown) = self.held.take() {
            self.write(shown, None, out);
        }
    }

    fn done(&mut self, event: &DoneEvent, out: &mut BytesMut) {
        self.whole.push_str(&event.text);
        // The engine may end a sequence on its own account, behind a token that was sent: then the end has an event without text.
        let shown = self.held.take().unwrap_or_else(|| {
            self.shown(&TokenOut {
                id: self.last_id,
                text: String::new(),
                special: false,
                logprob: None,
                top: Vec::new(),
            })
        });
        self.write(shown, Some(event), out);
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
            GenerateEvent::Started(event) => {
                let parts = &self.parts;
                let room = (parts.max_total_tokens as usize).saturating_sub(event.prompt_ids.len());
                let most = parts.max_new_tokens.unwrap_or(room as u32);
                self.most = most.min(parts.max_output_tokens);
            }
            GenerateEvent::Failed(_) => {}
        }
    }

    fn end(&mut self, _: &mut BytesMut) {}

    fn failure(&mut self, refusal: &Refusal, out: &mut BytesMut) {
        self.release(out);
        match self.parts.version {
            Version::MindIe => frame_after(self.parts.data, &MindIeBody::of(refusal), out),
            _ => frame_after(self.parts.data, &Body::of(refusal), out),
        }
    }
}
