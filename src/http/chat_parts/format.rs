//! The ways in which models write calls, and which of them a model is likely to use.

use ropeteam_models::text::ChatTemplate;

/// How calls are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFormat {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`, one for each call: Hermes, Qwen.
    Hermes,
    /// `{"name": …, "parameters": …}`, with or without `<|python_tag|>` before it, several behind semicolons: Llama 3.
    Llama3,
    /// `[TOOL_CALLS]` and a list of objects, or name and arguments for each call: Mistral.
    Mistral,
    /// A line with the name, then the arguments: GLM-4.
    Glm4,
    /// `<tool_call>` and the name, then a pair of tags for each argument, up to `</tool_call>`: GLM-4.5 and later.
    Glm45,
    /// An object or a list of them, with nothing before it.
    Json,
    /// The arguments and nothing else; the name was given by the request, which has one tool only.
    Arguments,
}

/// Marks that a template writes for calls. The first that fits counts.
const MARKS: &[(&str, CallFormat)] = &[
    ("[TOOL_CALLS]", CallFormat::Mistral),
    ("<arg_key>", CallFormat::Glm45),
    ("<tool_call>", CallFormat::Hermes),
    ("<|python_tag|>", CallFormat::Llama3),
    ("Environment: ipython", CallFormat::Llama3),
    ("<|observation|>", CallFormat::Glm4),
];

impl CallFormat {
    /// What a model with that template is likely to write.
    pub fn of(template: &ChatTemplate) -> Self {
        let fits = |(mark, _): &&(&str, CallFormat)| template.mentions(mark);
        MARKS
            .iter()
            .find(fits)
            .map_or(CallFormat::Json, |(_, format)| *format)
    }

    /// Begins a call anywhere in a text.
    pub(super) fn markers(self) -> &'static [&'static str] {
        match self {
            CallFormat::Hermes | CallFormat::Glm45 => &["<tool_call>"],
            CallFormat::Llama3 => &["<|python_tag|>"],
            CallFormat::Mistral => &["[TOOL_CALLS]"],
            CallFormat::Glm4 | CallFormat::Json | CallFormat::Arguments => &[],
        }
    }

    /// Whether its markers are special tokens of the model, which texts leave out otherwise.
    pub fn has_special_markers(self) -> bool {
        matches!(
            self,
            CallFormat::Llama3 | CallFormat::Mistral | CallFormat::Glm45
        )
    }

    /// Ends a call.
    pub(super) fn end_marker(self) -> Option<&'static &'static str> {
        matches!(self, CallFormat::Hermes | CallFormat::Glm45).then_some(&"</tool_call>")
    }

    /// Whether a call may stand at the beginning of an answer without a marker.
    pub(super) fn begins_bare(self, c: char) -> bool {
        match self {
            CallFormat::Llama3 => c == '{',
            CallFormat::Json => matches!(c, '{' | '['),
            _ => false,
        }
    }

    /// Whether the name may stand outside of the arguments.
    pub(super) fn names_outside(self) -> bool {
        matches!(self, CallFormat::Mistral | CallFormat::Glm4)
    }

    /// What an id of a call looks like: Mistral's templates take no other.
    pub fn call_id(self) -> String {
        const MISTRAL_CHARS: usize = 9;
        const CHARS: usize = 24;
        let (prefix, chars) = match self {
            CallFormat::Mistral => ("", MISTRAL_CHARS),
            _ => ("call_", CHARS),
        };
        let random = (0..chars).map(|_| {
            let digit = rand::random_range(0..36);
            char::from_digit(digit, 36).unwrap_or('0')
        });
        prefix.chars().chain(random).collect()
    }
}
