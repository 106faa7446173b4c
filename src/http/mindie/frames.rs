//! Streams with one event per token, whose last one carries more. That a token was the last is known only from the event behind it, so one
//! that may be the last (by count, or by being special) is held until then; all others leave at once. Not here: the events' fields.

use super::error::Body;
use super::stop::Ticket;
use crate::http::refusal::{Kind, Refusal};
use crate::http::sse::{FrameWriter, frame_after};
use actix_web::web::BytesMut;
use ropeteam_actors::generation::{DoneEvent, GenerateEvent, TokenOut};
use ropeteam_engine::ids::TokenId;
use std::time::{Duration, Instant};

/// One token of a stream.
pub struct Piece {
    /// Its id.
    pub id: TokenId,
    /// The text that it completed; none for a special token.
    pub text: String,
    /// How many there are with it.
    pub count: u32,
    /// From the request's arrival to the first token.
    pub prefill: Option<Duration>,
    /// From the token before to this one.
    pub decode: Option<Duration>,
}

/// What comes with the last token.
pub struct End<'a> {
    /// The whole text.
    pub text: &'a str,
    /// Text that no token completed.
    pub rest: &'a str,
    /// How it ended.
    pub done: &'a DoneEvent,
}

/// Writes the events of one route.
pub trait TokenEvents: Unpin + 'static {
    /// How its data lines begin.
    const DATA: &'static str;
    /// One token, with the end if it is the last.
    fn token(&self, piece: &Piece, end: Option<&End<'_>>, out: &mut BytesMut);
}

/// Turns the engine's events into one event per token.
pub struct TokenFrames<E> {
    events: E,
    max_new_tokens: u32,
    ticket: Option<Ticket>,
    whole: String,
    count: u32,
    last: Instant,
    last_id: TokenId,
    held: Option<Piece>,
}

impl<E: TokenEvents> TokenFrames<E> {
    /// For a request of at most `max_new_tokens` tokens that came in at `arrived`.
    pub fn new(events: E, max_new_tokens: u32, arrived: Instant, ticket: Option<Ticket>) -> Self {
        TokenFrames {
            events,
            max_new_tokens,
            ticket,
            whole: String::new(),
            count: 0,
            last: arrived,
            last_id: TokenId(0),
            held: None,
        }
    }

    fn token(&mut self, token: &TokenOut, out: &mut BytesMut) {
        self.release(out);
        let now = Instant::now();
        let took = now.duration_since(std::mem::replace(&mut self.last, now));
        self.count += 1;
        self.last_id = token.id;
        let first = self.count == 1;
        let piece = Piece {
            id: token.id,
            text: if token.special {
                String::new()
            } else {
                token.text.clone()
            },
            count: self.count,
            prefill: first.then_some(took),
            decode: (!first).then_some(took),
        };
        if token.special || self.count >= self.max_new_tokens {
            self.held = Some(piece);
        } else {
            self.events.token(&piece, None, out);
        }
    }

    fn release(&mut self, out: &mut BytesMut) {
        if let Some(piece) = self.held.take() {
            self.events.token(&piece, None, out);
        }
    }

    fn done(&mut self, done: &DoneEvent, out: &mut BytesMut) {
        self.whole.push_str(&done.text);
        // The engine may end a sequence on its own account, behind a token that was sent: then the end has an event without text.
        let piece = self.held.take().unwrap_or_else(|| Piece {
            id: self.last_id,
            text: String::new(),
            count: self.count,
            prefill: None,
            decode: None,
        });
        let end = End {
            text: &self.whole,
            rest: &done.text,
            done,
        };
        self.events.token(&piece, Some(&end), out);
    }
}

impl<E: TokenEvents> FrameWriter for TokenFrames<E> {
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
        let body = match &self.ticket {
            Some(ticket) if ticket.is_stopped() => Body::of(&stopped()),
            _ => Body::of(refusal),
        };
        frame_after(E::DATA, &body, out);
    }
}

/// Its client ended it.
pub fn stopped() -> Refusal {
    Refusal::new(Kind::Cancelled, "the request was stopped by stopInfer")
}

/// Milliseconds with two digits behind the point.
pub fn millis(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e5).round() / 1e2
}
