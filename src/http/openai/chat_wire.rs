//! Shapes of the answers of `/v1/chat/completions`, whole and in chunks. Not here: how they come about (`chat.rs`).

use super::error::Envelope;
use super::fields::UsageInStream;
use super::logprobs::ChatLogprobs;
use super::usage::{StreamCounts, UsageWire};
use super::{FINGERPRINT, StopReason, finish_reason};
use crate::http::answer::{Answer, Choice};
use crate::http::refusal::Refusal;
use crate::http::sse::{FrameWriter, frame};
use actix_web::web::BytesMut;
use ropeteam_actors::generation::{DoneEvent, GenerateEvent, TokensEvent};
use ropeteam_engine::text::TextCodec;
use serde::Serialize;
use std::sync::Arc;

/// What all parts of one answer share.
#[derive(Clone)]
pub struct Head {
    /// `chatcmpl-…`.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// Alternatives per token, when log-probabilities are wanted.
    pub logprobs: Option<u32>,
    /// For token texts.
    pub text: Arc<dyn TextCodec>,
}

/// `chat.completion`.
#[derive(Serialize)]
pub struct ChatCompletion<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<ChoiceWire<'a>>,
    usage: UsageWire,
    system_fingerprint: &'static str,
}

#[derive(Serialize)]
struct ChoiceWire<'a> {
    index: usize,
    message: Message<'a>,
    logprobs: Option<ChatLogprobs>,
    finish_reason: &'static str,
    stop_reason: Option<StopReason>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
    refusal: Option<&'static str>,
}

impl<'a> ChatCompletion<'a> {
    /// The whole answer.
    pub fn of(head: &'a Head, answer: &'a Answer) -> Self {
        let mut usage = UsageWire::default();
        for (index, choice) in answer.choices.iter().enumerate() {
            usage.add(&choice.usage, index == 0);
        }
        let choices = answer.choices.iter().enumerate();
        ChatCompletion {
            id: &head.id,
            object: "chat.completion",
            created: head.created,
            model: &head.model,
            choices: choices
                .map(|(index, choice)| choice_wire(head, index, choice))
                .collect(),
            usage,
            system_fingerprint: FINGERPRINT,
        }
    }
}

fn choice_wire<'a>(head: &Head, index: usize, choice: &'a Choice) -> ChoiceWire<'a> {
    let logprobs = head
        .logprobs
        .map(|top| ChatLogprobs::of(&choice.tokens, top, &*head.text));
    ChoiceWire {
        index,
        message: Message {
            role: "assistant",
            content: &choice.text,
            refusal: None,
        },
        logprobs,
        finish_reason: finish_reason(&choice.reason),
        stop_reason: StopReason::of(&choice.reason),
    }
}

/// `chat.completion.chunk`.
#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'static str,
    choices: Vec<ChunkChoice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<UsageWire>>,
}

#[derive(Serialize)]
struct ChunkChoice<'a> {
    index: u32,
    delta: Delta<'a>,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<StopReason>,
}

#[derive(Default, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

/// Writes the chunks of one answer.
pub struct ChatFrames {
    head: Head,
    choices: u32,
    wanted: UsageInStream,
    counts: StreamCounts,
}

impl ChatFrames {
    /// For an answer of `choices` choices.
    pub fn new(head: Head, choices: u32, wanted: UsageInStream) -> Self {
        ChatFrames {
            head,
            choices,
            wanted,
            counts: StreamCounts::default(),
        }
    }

    fn chunk(&self, choices: Vec<ChunkChoice<'_>>, out: &mut BytesMut) {
        let counts = self.wanted.always.then(|| self.counts.so_far());
        self.chunk_with(choices, self.wanted.at_end.then_some(counts), out);
    }

    fn chunk_with(
        &self,
        choices: Vec<ChunkChoice<'_>>,
        usage: Option<Option<UsageWire>>,
        out: &mut BytesMut,
    ) {
        let chunk = Chunk {
            id: &self.head.id,
            object: "chat.completion.chunk",
            created: self.head.created,
            model: &self.head.model,
            system_fingerprint: FINGERPRINT,
            choices,
            usage,
        };
        frame(&chunk, out);
    }

    fn roles(&self, out: &mut BytesMut) {
        for index in 0..self.choices {
            let delta = Delta {
                role: Some("assistant"),
                content: Some(""),
            };
            self.chunk(vec![plain(index, delta)], out);
        }
    }

    fn tokens(&self, event: &TokensEvent, out: &mut BytesMut) {
        let logprobs = self
            .head
            .logprobs
            .map(|top| ChatLogprobs::of(&event.tokens, top, &*self.head.text));
        let delta = Delta {
            content: Some(&event.text),
            ..Delta::default()
        };
        self.chunk(
            vec![ChunkChoice {
                logprobs,
                ..plain(event.choice, delta)
            }],
            out,
        );
    }

    fn done(&self, event: &DoneEvent, out: &mut BytesMut) {
        let content = (!event.text.is_empty()).then_some(event.text.as_str());
        let choice = ChunkChoice {
            finish_reason: Some(finish_reason(&event.reason)),
            stop_reason: StopReason::of(&event.reason),
            ..plain(
                event.choice,
                Delta {
                    content,
                    ..Delta::default()
                },
            )
        };
        self.chunk(vec![choice], out);
    }
}

fn plain(index: u32, delta: Delta<'_>) -> ChunkChoice<'_> {
    ChunkChoice {
        index,
        delta,
        logprobs: None,
        finish_reason: None,
        stop_reason: None,
    }
}

impl FrameWriter for ChatFrames {
    fn event(&mut self, prompt: usize, event: GenerateEvent, out: &mut BytesMut) {
        self.counts.note(prompt, &event);
        match event {
            GenerateEvent::Started(_) => self.roles(out),
            GenerateEvent::Tokens(event) => self.tokens(&event, out),
            GenerateEvent::Done(event) => self.done(&event, out),
            GenerateEvent::Failed(_) => {}
        }
    }

    fn end(&mut self, out: &mut BytesMut) {
        if self.wanted.at_end {
            self.chunk_with(Vec::new(), Some(Some(self.counts.so_far())), out);
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn failure(&mut self, refusal: &Refusal, out: &mut BytesMut) {
        frame(&Envelope::of(refusal), out);
        out.extend_from_slice(b"data: [DONE]\n\n");
    }
}
