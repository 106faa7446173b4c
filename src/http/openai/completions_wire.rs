//! Shapes of the answers of `/v1/completions`, whole and in chunks. Choices stand in prompt order: index = prompt × n + choice.
//! Not here: how they come about (`completions.rs`).

use super::error::Envelope;
use super::fields::UsageInStream;
use super::logprobs::{CompletionLogprobs, Prompt, TokenNames};
use super::prompt_logprobs::PromptLogprobs;
use super::usage::{StreamCounts, UsageWire};
use super::{FINGERPRINT, Never, StopReason, finish_reason, ids_of};
use crate::http::answer::{Answer, Choice};
use crate::http::refusal::Refusal;
use crate::http::sse::{FrameWriter, frame};
use actix_web::web::BytesMut;
use ropeteam_actors::generation::{DoneEvent, GenerateEvent, Started, TokensEvent};
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::text::TextCodec;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// What all parts of one answer share.
#[derive(Clone)]
pub struct Head {
    /// `cmpl-…`.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// Alternatives per token, when log-probabilities are wanted.
    pub logprobs: Option<u32>,
    /// Alternatives per prompt token, when its log-probabilities are wanted for themselves.
    pub prompt_logprobs: Option<u32>,
    /// Show the ids of prompt and output.
    pub token_ids: bool,
    /// For token texts.
    pub names: TokenNames,
    /// Texts of the prompts, when they are to be repeated; `None` for one that came as ids or is cut.
    pub echo: Option<Vec<Option<String>>>,
    /// Show the prompt only (`max_tokens` 0).
    pub prompt_only: bool,
    /// Choices per prompt.
    pub choices: u32,
}

/// `text_completion`, whole or a chunk. As with vLLM, what was not asked for is null and not left out: Python's client reads keys as
/// attributes.
#[derive(Serialize)]
pub struct TextCompletion<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<ChoiceWire>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<UsageWire>>,
    system_fingerprint: &'static str,
    /// Of a whole answer only.
    #[serde(flatten)]
    whole: Option<WholeOnly>,
}

#[derive(Default, Serialize)]
struct WholeOnly {
    service_tier: Never,
    kv_transfer_params: Never,
}

#[derive(Serialize)]
struct ChoiceWire {
    index: u32,
    text: String,
    logprobs: Option<CompletionLogprobs>,
    finish_reason: Option<&'static str>,
    stop_reason: Option<StopReason>,
    token_ids: Option<Vec<u32>>,
    prompt_token_ids: Option<Vec<u32>>,
    /// Of a whole answer only.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<Option<PromptLogprobs>>,
}

impl Head {
    fn completion(
        &self,
        choices: Vec<ChoiceWire>,
        usage: Option<Option<UsageWire>>,
    ) -> TextCompletion<'_> {
        TextCompletion {
            id: &self.id,
            object: "text_completion",
            created: self.created,
            model: &self.model,
            choices,
            usage,
            system_fingerprint: FINGERPRINT,
            whole: None,
        }
    }

    /// The whole answer, one part per prompt.
    pub fn whole(&self, answers: &[Answer]) -> TextCompletion<'_> {
        let mut usage = UsageWire::default();
        let mut choices = Vec::new();
        for (prompt, answer) in answers.iter().enumerate() {
            for (index, choice) in answer.choices.iter().enumerate() {
                usage.add(&choice.usage, index == 0);
                // More may have been drawn than are shown (`best_of`); they count but stand behind.
                if index < self.choices as usize {
                    choices.push(self.choice(prompt, index as u32, answer, choice));
                }
            }
        }
        let usage = if self.prompt_only {
            usage.prompt_only()
        } else {
            usage
        };
        TextCompletion {
            whole: Some(WholeOnly::default()),
            ..self.completion(choices, Some(Some(usage)))
        }
    }

    fn choice(&self, prompt: usize, index: u32, answer: &Answer, choice: &Choice) -> ChoiceWire {
        let (mut text, mut logprobs, offset) = self.opening(prompt, &answer.started);
        if !self.prompt_only {
            text.push_str(&choice.text);
            if let (Some(lists), Some(top)) = (&mut logprobs, self.logprobs) {
                lists.add_tokens(&choice.tokens, top, offset, &self.names);
            }
        }
        ChoiceWire {
            index: self.index(prompt, index),
            text,
            logprobs,
            finish_reason: Some(if self.prompt_only {
                "length"
            } else {
                finish_reason(&choice.reason)
            }),
            stop_reason: if self.prompt_only {
                None
            } else {
                StopReason::of(&choice.reason)
            },
            token_ids: self.token_ids.then(|| match self.prompt_only {
                true => Vec::new(),
                false => choice.tokens.iter().map(|token| token.id.0).collect(),
            }),
            prompt_token_ids: self.token_ids.then(|| ids_of(&answer.started.prompt_ids)),
            prompt_logprobs: Some(PromptLogprobs::of(
                &answer.started,
                self.prompt_logprobs,
                &self.names,
            )),
        }
    }

    /// What stands before the generated text: the prompt, if it is to be repeated, and its log-probabilities. With the offset behind it.
    fn opening(
        &self,
        prompt: usize,
        started: &Started,
    ) -> (String, Option<CompletionLogprobs>, usize) {
        let mut lists = self.logprobs.map(|_| CompletionLogprobs::default());
        let Some(texts) = &self.echo else {
            return (String::new(), lists, 0);
        };
        let pieces = pieces(&started.prompt_ids, self.names.codec());
        let text = texts
            .get(prompt)
            .cloned()
            .flatten()
            .unwrap_or_else(|| pieces.concat());
        let mut offset = text.chars().count();
        if let (Some(lists), Some(top)) = (&mut lists, self.logprobs) {
            let known = started.prompt_logprobs.as_deref().unwrap_or(&[]);
            let prompt = Prompt {
                ids: &started.prompt_ids,
                pieces: &pieces,
                logprobs: known,
            };
            offset = lists.add_prompt(&prompt, top, &self.names);
        }
        (text, lists, offset)
    }

    fn index(&self, prompt: usize, choice: u32) -> u32 {
        prompt as u32 * self.choices + choice
    }
}

/// The text that each id completes; together the text of the ids.
fn pieces(ids: &[TokenId], text: &dyn TextCodec) -> Vec<String> {
    let mut decoder = text.decoder(&[], false);
    let mut pieces: Vec<String> = ids.iter().map(|&id| decoder.push(id)).collect();
    if let Some(last) = pieces.last_mut() {
        last.push_str(&decoder.finish());
    }
    pieces
}

/// Writes the chunks of one answer.
pub struct CompletionFrames {
    head: Head,
    wanted: UsageInStream,
    counts: StreamCounts,
    /// Offset behind what was sent, per choice index; in characters.
    offsets: HashMap<u32, usize>,
    /// Prompts whose ids are still to be shown, per choice index.
    unshown: HashMap<u32, Arc<[TokenId]>>,
}

impl CompletionFrames {
    /// For an answer that begins with `head`.
    pub fn new(head: Head, wanted: UsageInStream) -> Self {
        CompletionFrames {
            head,
            wanted,
            counts: StreamCounts::default(),
            offsets: HashMap::new(),
            unshown: HashMap::new(),
        }
    }

    fn counts(&self) -> UsageWire {
        let counts = self.counts.so_far();
        if self.head.prompt_only {
            counts.prompt_only()
        } else {
            counts
        }
    }

    fn chunk(&mut self, mut choice: ChoiceWire, out: &mut BytesMut) {
        let prompt = self.unshown.remove(&choice.index);
        choice.prompt_token_ids = prompt.map(|ids| ids_of(&ids));
        let counts = self.wanted.always.then(|| self.counts());
        frame(
            &self
                .head
                .completion(vec![choice], self.wanted.at_end.then_some(counts)),
            out,
        );
    }

    fn begin(&mut self, prompt: usize, started: &Started, out: &mut BytesMut) {
        if self.head.token_ids {
            let indexes = (0..self.head.choices).map(|choice| self.head.index(prompt, choice));
            let each = indexes.map(|index| (index, started.prompt_ids.clone()));
            self.unshown.extend(each);
        }
        if self.head.echo.is_none() {
            return;
        }
        for choice in 0..self.head.choices {
            let (text, logprobs, offset) = self.head.opening(prompt, started);
            let index = self.head.index(prompt, choice);
            self.offsets.insert(index, offset);
            self.chunk(
                ChoiceWire {
                    logprobs,
                    ..plain(index, text)
                },
                out,
            );
        }
    }

    fn tokens(&mut self, prompt: usize, event: TokensEvent, out: &mut BytesMut) {
        if self.head.prompt_only {
            return;
        }
        let index = self.head.index(prompt, event.choice);
        let offset = self.offsets.entry(index).or_default();
        let names = &self.head.names;
        let logprobs = self.head.logprobs.map(|top| {
            let mut lists = CompletionLogprobs::default();
            *offset = lists.add_tokens(&event.tokens, top, *offset, names);
            lists
        });
        let ids = event.tokens.iter().map(|token| token.id.0);
        self.chunk(
            ChoiceWire {
                logprobs,
                token_ids: self.head.token_ids.then(|| ids.collect()),
                ..plain(index, event.text)
            },
            out,
        );
    }

    fn done(&mut self, prompt: usize, event: DoneEvent, out: &mut BytesMut) {
        let index = self.head.index(prompt, event.choice);
        let choice = if self.head.prompt_only {
            ChoiceWire {
                finish_reason: Some("length"),
                ..plain(index, String::new())
            }
        } else {
            ChoiceWire {
                finish_reason: Some(finish_reason(&event.reason)),
                stop_reason: StopReason::of(&event.reason),
                ..plain(index, event.text)
            }
        };
        self.chunk(choice, out);
    }
}

fn plain(index: u32, text: String) -> ChoiceWire {
    ChoiceWire {
        index,
        text,
        logprobs: None,
        finish_reason: None,
        stop_reason: None,
        token_ids: None,
        prompt_token_ids: None,
        prompt_logprobs: None,
    }
}

impl FrameWriter for CompletionFrames {
    fn event(&mut self, prompt: usize, event: GenerateEvent, out: &mut BytesMut) {
        self.counts.note(prompt, &event);
        match event {
            GenerateEvent::Started(started) => self.begin(prompt, &started, out),
            GenerateEvent::Tokens(event) => self.tokens(prompt, event, out),
            GenerateEvent::Done(event) => self.done(prompt, event, out),
            GenerateEvent::Failed(_) => {}
        }
    }

    fn end(&mut self, out: &mut BytesMut) {
        if self.wanted.at_end {
            frame(
                &self.head.completion(Vec::new(), Some(Some(self.counts()))),
                out,
            );
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn failure(&mut self, refusal: &Refusal, out: &mut BytesMut) {
        frame(&Envelope::of(refusal), out);
        out.extend_from_slice(b"data: [DONE]\n\n");
    }
}
