//! The message of a chat answer, whole and as the deltas of a stream: text, thoughts and calls of tools. Not here: taking an answer apart
//! (`http/chat_parts`), what stands around a message (`chat_wire.rs`).

use super::Never;
use crate::http::chat_parts::{CallFormat, Part, Reader, Reading};
use serde::Serialize;
use std::borrow::Cow;

const ROLE: &str = "assistant";
const FUNCTION: &str = "function";

/// A whole message. As with vLLM, what it does not hold is null, but for calls.
#[derive(Debug, Serialize)]
pub struct Message {
    role: &'static str,
    content: Option<String>,
    refusal: Never,
    annotations: Never,
    audio: Never,
    function_call: Never,
    /// What the model thought, under the name of today and under the one that many clients still read.
    reasoning: Option<String>,
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call>,
}

#[derive(Debug, Serialize)]
struct Call {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function,
}

#[derive(Debug, Serialize)]
struct Function {
    name: String,
    /// JSON text.
    arguments: String,
}

impl Message {
    /// The message of a whole answer, and whether it ends with calls.
    pub fn of(text: &str, reading: &Reading) -> (Self, bool) {
        let mut reader = reading.reader();
        let mut parts = reader.push(text);
        parts.extend(reader.finish());
        let (mut content, mut thought, mut tool_calls) = (String::new(), String::new(), Vec::new());
        for part in parts {
            match part {
                Part::Text(more) => content.push_str(&more),
                Part::Thought(more) => thought.push_str(&more),
                Part::Call(name) => tool_calls.push(begun(name, reading.call_format())),
                Part::Arguments(more) => {
                    if let Some(Call { function, .. }) = tool_calls.last_mut() {
                        function.arguments.push_str(&more);
                    }
                }
            }
        }
        let shown = reading.shows_thoughts && !thought.is_empty();
        let message = Message {
            role: ROLE,
            content: (!content.is_empty() || tool_calls.is_empty()).then_some(content),
            refusal: None,
            annotations: None,
            audio: None,
            function_call: None,
            reasoning: shown.then(|| thought.clone()),
            reasoning_content: shown.then_some(thought),
            tool_calls,
        };
        (message, reader.has_calls())
    }
}

impl Message {
    /// The same with `text` before its own.
    pub fn behind(mut self, text: &str) -> Self {
        self.content.get_or_insert_default().insert_str(0, text);
        self
    }
}

fn begun(name: String, format: CallFormat) -> Call {
    Call {
        id: format.call_id(),
        kind: FUNCTION,
        function: Function {
            name,
            arguments: String::new(),
        },
    }
}

/// What a chunk adds to a message.
#[derive(Debug, Default, Serialize)]
pub struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[CallDelta; 1]>,
}

#[derive(Debug, Serialize)]
struct CallDelta {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: FunctionDelta,
}

#[derive(Debug, Serialize)]
struct FunctionDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    arguments: String,
}

impl<'a> Delta<'a> {
    /// The first of a message.
    pub fn first() -> Self {
        Delta {
            role: Some(ROLE),
            content: Some(Cow::Borrowed("")),
            ..Delta::default()
        }
    }

    /// More text.
    pub fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Delta {
            content: Some(text.into()),
            ..Delta::default()
        }
    }

    fn thought(text: String) -> Self {
        Delta {
            reasoning: Some(text.clone()),
            reasoning_content: Some(text),
            ..Delta::default()
        }
    }

    fn call(call: CallDelta) -> Self {
        Delta {
            tool_calls: Some([call]),
            ..Delta::default()
        }
    }
}

/// Takes one choice of a stream apart.
pub struct DeltaReader {
    reader: Reader,
    format: CallFormat,
    shows_thoughts: bool,
    calls: usize,
}

impl DeltaReader {
    /// For one choice.
    pub fn new(reading: &Reading) -> Self {
        DeltaReader {
            reader: reading.reader(),
            format: reading.call_format(),
            shows_thoughts: reading.shows_thoughts,
            calls: 0,
        }
    }

    /// Deltas that a piece of text brings.
    pub fn push(&mut self, text: &str) -> Vec<Delta<'static>> {
        let parts = self.reader.push(text);
        self.deltas(parts)
    }

    /// Deltas that were held back, at the end of the answer.
    pub fn finish(&mut self) -> Vec<Delta<'static>> {
        let parts = self.reader.finish();
        self.deltas(parts)
    }

    /// Whether the answer ends with calls.
    pub fn has_calls(&self) -> bool {
        self.reader.has_calls()
    }

    /// Whether the model is thinking now.
    pub fn is_thinking(&self) -> bool {
        self.reader.is_thinking()
    }

    fn deltas(&mut self, parts: Vec<Part>) -> Vec<Delta<'static>> {
        parts
            .into_iter()
            .filter_map(|part| self.delta(part))
            .collect()
    }

    fn delta(&mut self, part: Part) -> Option<Delta<'static>> {
        Some(match part {
            Part::Text(text) => Delta::text(text),
            Part::Thought(text) if self.shows_thoughts => Delta::thought(text),
            Part::Thought(_) => return None,
            Part::Call(name) => {
                self.calls += 1;
                Delta::call(CallDelta {
                    index: self.calls - 1,
                    id: Some(self.format.call_id()),
                    kind: Some(FUNCTION),
                    function: FunctionDelta {
                        name: Some(name),
                        arguments: String::new(),
                    },
                })
            }
            Part::Arguments(arguments) => Delta::call(CallDelta {
                index: self.calls.saturating_sub(1),
                id: None,
                kind: None,
                function: FunctionDelta {
                    name: None,
                    arguments,
                },
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::chat_parts::{Calls, Thinking};
    use serde_json::{Value, json};

    fn reading(format: CallFormat) -> Reading {
        Reading {
            thinking: Some(Thinking::FromTag),
            shows_thoughts: true,
            calls: Some(Calls {
                format,
                names: ["add".to_owned()].into(),
                texts: [].into(),
                one_only: false,
            }),
        }
    }

    const ANSWER: &str = "<think>two\n</think>\nSo:<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>";

    #[test]
    fn a_whole_message_holds_thoughts_text_and_calls() {
        let (message, has_calls) = Message::of(ANSWER, &reading(CallFormat::Hermes));
        let mut json = serde_json::to_value(&message).unwrap();
        let id = json["tool_calls"][0]["id"].take();
        assert!(
            id.as_str()
                .is_some_and(|id| id.starts_with("call_") && id.len() == 29)
        );
        let call = json!({"id": null, "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}});
        let expected = json!({"role": "assistant", "content": "So:", "refusal": null, "annotations": null, "audio": null,
            "function_call": null, "reasoning": "two", "reasoning_content": "two", "tool_calls": [call]});
        assert_eq!((json, has_calls), (expected, true));
        let only_call = &ANSWER[ANSWER.find("<tool").unwrap()..];
        let (message, _) = Message::of(only_call, &reading(CallFormat::Hermes));
        assert_eq!(message.content, None);
    }

    #[test]
    fn plain_text_is_a_message_without_more() {
        let (message, has_calls) = Message::of("", &Reading::default());
        let json = serde_json::to_value(&message).unwrap();
        let expected = json!({"role": "assistant", "content": "", "refusal": null, "annotations": null, "audio": null,
            "function_call": null, "reasoning": null, "reasoning_content": null});
        assert_eq!((json, has_calls), (expected, false));
    }

    #[test]
    fn deltas_tell_name_and_id_first_and_then_pieces_of_the_arguments() {
        let mut reader = DeltaReader::new(&reading(CallFormat::Mistral));
        let pieces = [
            "<think>two",
            "</think>",
            "[TOOL_CALLS][{\"name\": \"add\", \"argum",
            "ents\": {\"a\"",
            ": 1}}]",
        ];
        let mut deltas: Vec<Value> = Vec::new();
        for piece in pieces {
            deltas.extend(
                reader
                    .push(piece)
                    .iter()
                    .map(|d| serde_json::to_value(d).unwrap()),
            );
        }
        assert!(reader.finish().is_empty() && reader.has_calls());
        let id = deltas[1]["tool_calls"][0]["id"].take();
        assert!(
            id.as_str()
                .is_some_and(|id| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()))
        );
        let call = |rest: Value| json!({"tool_calls": [rest]});
        let expected = [
            json!({"reasoning": "two", "reasoning_content": "two"}),
            call(
                json!({"index": 0, "id": null, "type": "function", "function": {"name": "add", "arguments": ""}}),
            ),
            call(json!({"index": 0, "function": {"arguments": "{\"a\""}})),
            call(json!({"index": 0, "function": {"arguments": ": 1}"}})),
        ];
        assert_eq!(deltas, expected);
    }

    #[test]
    fn thoughts_may_be_left_out() {
        let reading = Reading {
            shows_thoughts: false,
            ..reading(CallFormat::Hermes)
        };
        let (message, _) = Message::of(ANSWER, &reading);
        assert!(message.reasoning.is_none());
        assert!(
            DeltaReader::new(&reading)
                .push("<think>two</think>")
                .is_empty()
        );
    }
}
