//! Token counts as the OpenAI dialect tells them.

use ropeteam_actors::generation::{GenerateEvent, Usage};
use serde::Serialize;
use std::collections::BTreeSet;

/// `usage`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UsageWire {
    prompt_tokens: u32,
    completion_tokens: u32,
    total_tokens: u32,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct PromptDetails {
    cached_tokens: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct CompletionDetails {
    reasoning_tokens: u32,
}

impl UsageWire {
    /// Adds one choice; its prompt counts with the first choice of the prompt only.
    pub fn add(&mut self, usage: &Usage, first_of_prompt: bool) {
        if first_of_prompt {
            self.prompt_tokens += usage.prompt_tokens;
            self.prompt_tokens_details.cached_tokens += usage.cached_tokens;
        }
        self.add_completion(usage.completion_tokens);
    }

    /// Says how many of the generated tokens were thoughts.
    pub fn add_reasoning(&mut self, tokens: u32) {
        self.completion_tokens_details.reasoning_tokens += tokens;
    }

    fn add_prompt(&mut self, tokens: u32) {
        self.prompt_tokens += tokens;
        self.total_tokens = self.prompt_tokens + self.completion_tokens;
    }

    fn add_completion(&mut self, tokens: u32) {
        self.completion_tokens += tokens;
        self.total_tokens = self.prompt_tokens + self.completion_tokens;
    }

    /// The same without generated tokens, for an answer that shows none.
    pub fn prompt_only(mut self) -> Self {
        self.completion_tokens = 0;
        self.total_tokens = self.prompt_tokens;
        self
    }
}

/// Counts along a stream.
#[derive(Debug, Default)]
pub struct StreamCounts {
    so_far: UsageWire,
    prompts_done: BTreeSet<usize>,
}

impl StreamCounts {
    /// The counts so far.
    pub fn so_far(&self) -> UsageWire {
        self.so_far
    }

    /// Says that so many of the tokens were thoughts.
    pub fn note_reasoning(&mut self, tokens: u32) {
        self.so_far.add_reasoning(tokens);
    }

    /// Takes in one event of the prompt with index `prompt`.
    pub fn note(&mut self, prompt: usize, event: &GenerateEvent) {
        match event {
            GenerateEvent::Started(event) => self.so_far.add_prompt(event.prompt_ids.len() as u32),
            GenerateEvent::Tokens(event) => self.so_far.add_completion(event.tokens.len() as u32),
            GenerateEvent::Done(event) => {
                if self.prompts_done.insert(prompt) {
                    self.so_far.prompt_tokens_details.cached_tokens += event.usage.cached_tokens;
                }
            }
            GenerateEvent::Failed(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::scripted::{done, started, tokens, usage};
    use ropeteam_engine::request::FinishReason;

    #[test]
    fn a_prompt_counts_once_however_many_choices() {
        let mut counted = UsageWire::default();
        counted.add(&usage(), true);
        counted.add(&usage(), false);
        let json = serde_json::to_string(&counted).unwrap();
        assert_eq!(
            json,
            r#"{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":0}}"#
        );
    }

    #[test]
    fn a_stream_counts_what_a_whole_answer_does() {
        let mut counts = StreamCounts::default();
        let events = [
            started(&[1, 2, 3]),
            tokens(0, "a", &[5, 6]),
            tokens(1, "b", &[5, 6]),
            done(0, "", FinishReason::Length),
            done(1, "", FinishReason::Length),
        ];
        events.iter().for_each(|event| counts.note(0, event));
        let mut whole = UsageWire::default();
        whole.add(&usage(), true);
        whole.add(&usage(), false);
        assert_eq!(counts.so_far(), whole);
    }
}
