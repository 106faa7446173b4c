//! What a model's answer to a chat consists of: thoughts, text, and calls of tools, taken apart as it comes, piece by piece. Whatever the
//! pieces are, the parts joined are the same, so that a stream and a whole answer agree.
//!
//! | file | what |
//! | --- | --- |
//! | `thinking.rs` | thoughts between `<think>` and `</think>` |
//! | `calls.rs`, `format.rs` | calls of tools, in the ways that models write them |
//! | `call_object.rs`, `json_value.rs` | a call as a JSON object; where a JSON value ends |
//! | `arg_tags.rs` | arguments between tags |
//!
//! Not here: how a dialect shows the parts (`openai/chat_wire.rs`), which tools a request offers and how it forces one (`openai/tools.rs`).

mod arg_tags;
mod call_object;
mod calls;
mod format;
mod json_value;
mod thinking;

pub use format::CallFormat;
pub use thinking::Thinking;

use calls::CallReader;
use std::sync::Arc;
use thinking::ThoughtReader;

/// A part of an answer, or more of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// What the model thought.
    Thought(String),
    /// What it says.
    Text(String),
    /// It begins a call, of that name.
    Call(String),
    /// More of the arguments of the call begun last: JSON.
    Arguments(String),
}

/// How the answers of one request are read.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// How thoughts are marked; `None`: they are not taken out.
    pub thinking: Option<Thinking>,
    /// They are shown beside the text; else dropped.
    pub shows_thoughts: bool,
    /// How calls are written; `None`: they are not looked for.
    pub calls: Option<Calls>,
}

/// How a model writes thoughts and calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnswerForm {
    /// Calls; `None`: they are not looked for.
    pub calls: Option<CallFormat>,
    /// Thoughts; `None`: they are not looked for.
    pub thinking: Option<Thinking>,
}

/// Which calls an answer may hold.
#[derive(Clone, Debug)]
pub struct Calls {
    /// How they are written.
    pub format: CallFormat,
    /// Names of the tools; what calls anything else is text.
    pub names: Arc<[String]>,
    /// Tools and those of their parameters that are strings, for formats that do not tell them from other values.
    pub texts: Arc<[(String, String)]>,
    /// One call is enough: what comes behind it is left out.
    pub one_only: bool,
}

impl Reading {
    /// Whether answers are text and nothing else.
    pub fn is_plain(&self) -> bool {
        self.thinking.is_none() && self.calls.is_none()
    }

    /// How calls are written, as far as it matters to those that are there.
    pub fn call_format(&self) -> CallFormat {
        self.calls
            .as_ref()
            .map_or(CallFormat::Json, |calls| calls.format)
    }

    /// How many of an answer's tokens, given by their texts, are thoughts.
    pub fn thought_tokens<'a>(&self, texts: impl Iterator<Item = &'a str>) -> u32 {
        let Some(thinking) = self.thinking else {
            return 0;
        };
        let mut thoughts = ThoughtReader::new(thinking);
        let inside = texts.filter(|text| {
            let inside = thoughts.is_inside();
            thoughts.push(text);
            inside
        });
        inside.count() as u32
    }

    /// A reader for one answer.
    pub fn reader(&self) -> Reader {
        Reader {
            thoughts: self.thinking.map(ThoughtReader::new),
            calls: self.calls.as_ref().map(CallReader::new),
        }
    }
}

/// Reads one answer.
#[derive(Debug)]
pub struct Reader {
    thoughts: Option<ThoughtReader>,
    calls: Option<CallReader>,
}

impl Reader {
    /// Takes the next piece and returns what is certain now.
    pub fn push(&mut self, piece: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        match &mut self.thoughts {
            None => read_calls(&mut self.calls, piece, &mut parts),
            Some(thoughts) => {
                let (thought, text) = thoughts.push(piece);
                push_some(&mut parts, Part::Thought, thought);
                read_calls(&mut self.calls, &text, &mut parts);
            }
        }
        parts
    }

    /// The answer has ended: returns what was held back.
    pub fn finish(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        if let Some(thoughts) = &mut self.thoughts {
            let (thought, text) = thoughts.finish();
            push_some(&mut parts, Part::Thought, thought);
            read_calls(&mut self.calls, &text, &mut parts);
        }
        if let Some(calls) = &mut self.calls {
            calls.finish(&mut parts);
        }
        parts
    }

    /// Whether there were calls, and each is complete.
    pub fn has_calls(&self) -> bool {
        self.calls.as_ref().is_some_and(CallReader::are_complete)
    }

    /// Whether the model is thinking now.
    pub fn is_thinking(&self) -> bool {
        self.thoughts.as_ref().is_some_and(ThoughtReader::is_inside)
    }
}

fn read_calls(calls: &mut Option<CallReader>, text: &str, parts: &mut Vec<Part>) {
    match calls {
        Some(calls) => calls.push(text, parts),
        None => push_some(parts, Part::Text, text.to_owned()),
    }
}

fn push_some(parts: &mut Vec<Part>, part: impl FnOnce(String) -> Part, text: String) {
    if !text.is_empty() {
        parts.push(part(text));
    }
}

/// Where `text` may begin to be one of `markers`: at a whole one, with its index, or at a beginning of one at its end. Else its length.
fn first_marker(text: &str, markers: &[&str]) -> (usize, Option<usize>) {
    let whole = markers.iter().enumerate();
    let whole = whole.filter_map(|(index, marker)| Some((text.find(marker)?, index)));
    if let Some((at, index)) = whole.min() {
        return (at, Some(index));
    }
    let longest = markers.iter().map(|marker| marker.len()).max().unwrap_or(0);
    let earliest = (text.len() + 1).saturating_sub(longest);
    let begins = |&at: &usize| {
        let end = &text.as_bytes()[at..];
        markers
            .iter()
            .any(|marker| marker.as_bytes().starts_with(end))
    };
    let mut places = (earliest..text.len()).filter(|&at| text.is_char_boundary(at));
    (places.find(begins).unwrap_or(text.len()), None)
}

#[cfg(test)]
mod tests;
