//! Shapes of the answers of `/v1/chat/completions`, whole and in chunks. Not here: how they come about (`chat.rs`).

use super::chat_message::{Delta, DeltaReader, Message};
use super::error::Envelope;
use super::fields::UsageInStream;
use super::logprobs::{ChatLogprobs, TokenNames};
use super::prompt_logprobs::PromptLogprobs;
use super::usage::{StreamCounts, UsageWire};
use super::{FINGERPRINT, Never, StopReason, finish_reason, ids_of};
use crate::http::answer::{Answer, Choice};
use crate::http::chat_parts::Reading;
use crate::http::refusal::Refusal;
use crate::http::sse::{FrameWriter, frame};
use actix_web::web::BytesMut;
use ropeteam_actors::generation::{DoneEvent, GenerateEvent, Started, TokensEvent};
use ropeteam_engine::request::FinishReason;
use serde::Serialize;

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
    /// Alternatives per prompt token, when its log-probabilities are wanted.
    pub prompt_logprobs: Option<u32>,
    /// Show the ids of prompt and output.
    pub token_ids: bool,
    /// The prompt's text, when it is to be shown.
    pub prompt_text: Option<String>,
    /// For token texts.
    pub names: TokenNames,
    /// Text that stands before every answer: that of the last message, when it is to be repeated.
    pub echo: Option<String>,
    /// How answers are taken apart.
    pub reading: Reading,
}

/// `chat.completion`. As with vLLM, what was not asked for is null and not left out: Python's client reads keys as attributes.
#[derive(Serialize)]
pub struct ChatCompletion<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<ChoiceWire>,
    usage: UsageWire,
    system_fingerprint: &'static str,
    service_tier: Never,
    prompt_token_ids: Option<Vec<u32>>,
    prompt_logprobs: Option<PromptLogprobs>,
    prompt_text: Option<&'a str>,
    kv_transfer_params: Never,
}

#[derive(Serialize)]
struct ChoiceWire {
    index: usize,
    message: Message,
    logprobs: Option<ChatLogprobs>,
    finish_reason: &'static str,
    stop_reason: Option<StopReason>,
    token_ids: Option<Vec<u32>>,
}

impl<'a> ChatCompletion<'a> {
    /// The whole answer.
    pub fn of(head: &'a Head, answer: &'a Answer) -> Self {
        let mut usage = UsageWire::default();
        for (index, choice) in answer.choices.iter().enumerate() {
            usage.add(&choice.usage, index == 0);
            let texts = choice.tokens.iter().map(|token| token.text.as_str());
            usage.add_reasoning(head.reading.thought_tokens(texts));
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
            service_tier: None,
            prompt_token_ids: head.token_ids.then(|| ids_of(&answer.started.prompt_ids)),
            prompt_logprobs: PromptLogprobs::of(&answer.started, head.prompt_logprobs, &head.names),
            prompt_text: head.prompt_text.as_deref(),
            kv_transfer_params: None,
        }
    }
}

fn choice_wire(head: &Head, index: usize, choice: &Choice) -> ChoiceWire {
    let logprobs = head
        .logprobs
        .map(|top| ChatLogprobs::of(&choice.tokens, top, &head.names));
    let (message, has_calls) = Message::of(&choice.text, &head.reading);
    let message = match &head.echo {
        Some(text) => message.behind(text),
        None => message,
    };
    ChoiceWire {
        index,
        message,
        logprobs,
        finish_reason: ending(&choice.reason, has_calls),
        stop_reason: StopReason::of(&choice.reason),
        token_ids: head
            .token_ids
            .then(|| choice.tokens.iter().map(|token| token.id.0).collect()),
    }
}

/// `finish_reason` of an answer that may hold calls.
fn ending(reason: &FinishReason, has_calls: bool) -> &'static str {
    match (finish_reason(reason), has_calls) {
        ("stop", true) => "tool_calls",
        (word, _) => word,
    }
}

/// `chat.completion.chunk`. The first of a choice has what is known of the prompt, null where it was not asked for.
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
    #[serde(flatten)]
    prompt: Option<PromptShown<'a>>,
}

#[derive(Serialize)]
struct PromptShown<'a> {
    prompt_token_ids: Option<Vec<u32>>,
    prompt_text: Option<&'a str>,
}

#[derive(Serialize)]
struct ChunkChoice<'a> {
    index: u32,
    delta: Delta<'a>,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<Option<StopReason>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Option<Vec<u32>>>,
}

/// Writes the chunks of one answer.
pub struct ChatFrames {
    head: Head,
    choices: u32,
    /// One per choice; none where answers are plain text.
    readers: Vec<DeltaReader>,
    wanted: UsageInStream,
    counts: StreamCounts,
}

impl ChatFrames {
    /// For an answer of `choices` choices.
    pub fn new(head: Head, choices: u32, wanted: UsageInStream) -> Self {
        let readers = (0..choices).filter(|_| !head.reading.is_plain());
        ChatFrames {
            readers: readers.map(|_| DeltaReader::new(&head.reading)).collect(),
            head,
            choices,
            wanted,
            counts: StreamCounts::default(),
        }
    }

    fn chunk(&self, choice: ChunkChoice<'_>, out: &mut BytesMut) {
        frame(&self.around(vec![choice]), out);
    }

    /// A chunk that holds `choices`.
    fn around<'c>(&'c self, choices: Vec<ChunkChoice<'c>>) -> Chunk<'c> {
        let counts = self.wanted.always.then(|| self.counts.so_far());
        Chunk {
            id: &self.head.id,
            object: "chat.completion.chunk",
            created: self.head.created,
            model: &self.head.model,
            system_fingerprint: FINGERPRINT,
            choices,
            usage: self.wanted.at_end.then_some(counts),
            prompt: None,
        }
    }

    fn begin(&self, started: &Started, out: &mut BytesMut) {
        for index in 0..self.choices {
            let chunk = Chunk {
                prompt: Some(PromptShown {
                    prompt_token_ids: self.head.token_ids.then(|| ids_of(&started.prompt_ids)),
                    prompt_text: self.head.prompt_text.as_deref(),
                }),
                ..self.around(vec![plain(index, Delta::first())])
            };
            frame(&chunk, out);
            if let Some(text) = &self.head.echo {
                self.chunk(plain(index, Delta::text(text.as_str())), out);
            }
        }
    }

    fn tokens(&mut self, event: &TokensEvent, out: &mut BytesMut) {
        let logprobs = self
            .head
            .logprobs
            .map(|top| ChatLogprobs::of(&event.tokens, top, &self.head.names));
        let ids = self.head.token_ids;
        let token_ids = ids.then(|| event.tokens.iter().map(|token| token.id.0).collect());
        let Some(reader) = self.readers.get_mut(event.choice as usize) else {
            let choice = ChunkChoice {
                logprobs,
                token_ids: Some(token_ids),
                ..plain(event.choice, Delta::text(event.text.as_str()))
            };
            return self.chunk(choice, out);
        };
        if reader.is_thinking() {
            self.counts.note_reasoning(event.tokens.len() as u32);
        }
        let mut deltas = reader.push(&event.text);
        if deltas.is_empty() && (logprobs.is_some() || token_ids.is_some()) {
            deltas.push(Delta::default());
        }
        let (mut logprobs, mut token_ids) = (logprobs, token_ids);
        for delta in deltas {
            let choice = ChunkChoice {
                logprobs: logprobs.take(),
                token_ids: Some(token_ids.take()),
                ..plain(event.choice, delta)
            };
            self.chunk(choice, out);
        }
    }

    fn done(&mut self, event: &DoneEvent, out: &mut BytesMut) {
        let mut delta = Delta::default();
        let mut has_calls = false;
        if let Some(reader) = self.readers.get_mut(event.choice as usize) {
            let mut deltas = reader.push(&event.text);
            deltas.extend(reader.finish());
            has_calls = reader.has_calls();
            for delta in deltas {
                self.chunk(plain(event.choice, delta), out);
            }
        } else if !event.text.is_empty() {
            delta = Delta::text(event.text.as_str());
        }
        let choice = ChunkChoice {
            finish_reason: Some(ending(&event.reason, has_calls)),
            stop_reason: Some(StopReason::of(&event.reason)),
            token_ids: Some(None),
            ..plain(event.choice, delta)
        };
        self.chunk(choice, out);
    }
}

fn plain(index: u32, delta: Delta<'_>) -> ChunkChoice<'_> {
    ChunkChoice {
        index,
        delta,
        logprobs: None,
        finish_reason: None,
        stop_reason: None,
        token_ids: None,
    }
}

impl FrameWriter for ChatFrames {
    fn event(&mut self, prompt: usize, event: GenerateEvent, out: &mut BytesMut) {
        self.counts.note(prompt, &event);
        match event {
            GenerateEvent::Started(started) => self.begin(&started, out),
            GenerateEvent::Tokens(event) => self.tokens(&event, out),
            GenerateEvent::Done(event) => self.done(&event, out),
            GenerateEvent::Failed(_) => {}
        }
    }

    fn end(&mut self, out: &mut BytesMut) {
        if self.wanted.at_end {
            let chunk = Chunk {
                usage: Some(Some(self.counts.so_far())),
                ..self.around(Vec::new())
            };
            frame(&chunk, out);
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn failure(&mut self, refusal: &Refusal, out: &mut BytesMut) {
        frame(&Envelope::of(refusal), out);
        out.extend_from_slice(b"data: [DONE]\n\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::chat_parts::{CallFormat, Calls, Thinking};
    use crate::http::scripted::{done, started, tokens};
    use ropeteam_engine::ids::TokenId;
    use ropeteam_sim::codec::SimCodec;
    use serde_json::{Value, json};
    use std::sync::Arc;

    /// The text of a stream with these events, and with a failure where its end would be.
    fn written(events: Vec<GenerateEvent>, failure: Option<Refusal>) -> String {
        let names = ["add".to_owned()].into();
        let head = Head {
            id: "x".into(),
            created: 0,
            model: "m".into(),
            logprobs: None,
            prompt_logprobs: None,
            token_ids: false,
            prompt_text: None,
            names: TokenNames::new(Arc::new(SimCodec::default()), false),
            echo: None,
            reading: Reading {
                thinking: Some(Thinking::FromTag),
                shows_thoughts: true,
                calls: Some(Calls {
                    format: CallFormat::Hermes,
                    names,
                    texts: [].into(),
                    one_only: false,
                }),
            },
        };
        let wanted = UsageInStream {
            at_end: true,
            always: false,
        };
        let mut frames = ChatFrames::new(head, 1, wanted);
        let mut out = BytesMut::new();
        for event in events {
            frames.event(0, event, &mut out);
        }
        match failure {
            Some(failure) => frames.failure(&failure, &mut out),
            None => frames.end(&mut out),
        }
        String::from_utf8(out.to_vec()).expect("UTF-8")
    }

    /// Every chunk of an answer with these events.
    fn chunks(events: Vec<GenerateEvent>) -> Vec<Value> {
        let text = written(events, None);
        let data = text
            .split("\n\n")
            .filter_map(|block| block.strip_prefix("data: "));
        data.filter_map(|data| serde_json::from_str(data).ok())
            .collect()
    }

    #[test]
    fn a_stream_with_thoughts_and_a_call_ends_with_tool_calls() {
        let end = FinishReason::EndOfText(TokenId(0));
        let chunks = chunks(vec![
            started(&[1]),
            tokens(0, "<think>", &[1]),
            tokens(0, "so", &[2, 3]),
            tokens(0, "</think>", &[4]),
            tokens(0, "<tool_call>{\"name\": \"add\", \"arguments\"", &[5]),
            tokens(0, ": {}}</tool_call>", &[6]),
            done(0, "", end),
        ]);
        let deltas: Vec<&Value> = chunks.iter().map(|c| &c["choices"][0]["delta"]).collect();
        assert_eq!(
            deltas[1],
            &json!({"reasoning": "so", "reasoning_content": "so"})
        );
        assert_eq!(deltas[2]["tool_calls"][0]["function"]["name"], "add");
        assert_eq!(
            deltas[3]["tool_calls"][0]["function"],
            json!({"arguments": "{}"})
        );
        assert_eq!(chunks[4]["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!(
            chunks[5]["usage"]["completion_tokens_details"]["reasoning_tokens"],
            3
        );
        assert_eq!(chunks.len(), 6);
    }

    #[test]
    fn a_call_that_is_cut_ends_with_length() {
        let chunks = chunks(vec![
            started(&[1]),
            tokens(
                0,
                "<tool_call>{\"name\": \"add\", \"arguments\": {\"a",
                &[1],
            ),
            done(0, "", FinishReason::Length),
        ]);
        let ends: Vec<&Value> = chunks
            .iter()
            .map(|c| &c["choices"][0]["finish_reason"])
            .collect();
        assert_eq!(ends[ends.len() - 2], "length");
        let pieces = chunks.iter().filter_map(|c| {
            c["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str()
        });
        assert_eq!(pieces.collect::<String>(), "{\"a");
    }

    #[test]
    fn a_failure_in_a_stream_is_told_and_ends_it() {
        let events = vec![started(&[1]), tokens(0, "a", &[1])];
        let failure = Refusal::of_finish(&FinishReason::DeviceError);
        insta::assert_snapshot!("chat_failure", written(events, failure));
    }
}
