//! Shapes of the TGI dialect's whole answers. Not here: streamed ones (`frames.rs`).

use super::Version;
use crate::http::answer::{Answer, Choice};
use ropeteam_actors::generation::{Started, TokenOut};
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::request::FinishReason;
use ropeteam_engine::text::TextCodec;
use serde::Serialize;

/// The answer of `/generate`.
#[derive(Debug, Serialize)]
pub struct Generated {
    generated_text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
}

#[derive(Debug, Serialize)]
struct Details {
    finish_reason: &'static str,
    generated_tokens: u32,
    seed: Option<u64>,
    prefill: Vec<PrefillToken>,
    tokens: Vec<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    best_of_sequences: Option<Vec<BestOfSequence>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    top_tokens: Vec<Vec<Token>>,
    /// MindIE's alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens: Option<u32>,
}

#[derive(Debug, Serialize)]
struct BestOfSequence {
    generated_text: String,
    finish_reason: &'static str,
    generated_tokens: u32,
    seed: Option<u64>,
    prefill: Vec<PrefillToken>,
    tokens: Vec<Token>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    top_tokens: Vec<Vec<Token>>,
}

#[derive(Debug, Serialize)]
struct PrefillToken {
    id: u32,
    text: String,
    logprob: Option<f32>,
}

/// One generated token.
#[derive(Clone, Debug, Serialize)]
pub struct Token {
    id: u32,
    /// Always there but in MindIE's whole answers.
    text: Option<String>,
    /// Never there in MindIE's.
    logprob: Option<f32>,
    /// The same.
    special: Option<bool>,
}

impl Token {
    /// A token with its text: a special token shows its name, part of a character nothing.
    pub fn of(token: &TokenOut, text: &dyn TextCodec) -> Self {
        let own = if token.special {
            text.token_text(token.id)
        } else {
            None
        };
        Token {
            id: token.id.0,
            text: Some(own.unwrap_or_else(|| token.text.clone())),
            logprob: token.logprob,
            special: Some(token.special),
        }
    }

    /// The best tokens in its place, at most `count`.
    pub fn top(token: &TokenOut, count: u32, text: &dyn TextCodec) -> Vec<Token> {
        let best = token.top.iter().take(count as usize);
        let one = |&(id, logprob): &(TokenId, f32)| Token {
            id: id.0,
            text: Some(text.token_text(id).unwrap_or_default()),
            logprob: Some(logprob),
            special: Some(text.is_special(id)),
        };
        best.map(one).collect()
    }

    /// As MindIE shows it in a stream.
    pub fn bare(self) -> Self {
        Token {
            logprob: None,
            special: None,
            ..self
        }
    }
}

/// How an answer is to be shown.
pub struct Show<'a> {
    /// Stands before the text.
    pub prefix: &'a str,
    /// Show details.
    pub details: bool,
    /// Show details of the prompt's tokens.
    pub prefill: bool,
    /// Tokens were drawn, so there is a seed to tell.
    pub sampled: bool,
    /// So many best tokens beside each one.
    pub top_n: u32,
    /// Whose form.
    pub version: Version,
    /// For token texts.
    pub text: &'a dyn TextCodec,
}

impl Generated {
    /// Text alone.
    pub fn text(text: String) -> Self {
        Generated {
            generated_text: text,
            details: None,
        }
    }

    /// The best choice, the others beside it.
    pub fn of(answer: Answer, show: &Show<'_>) -> Self {
        let Answer {
            started,
            mut choices,
        } = answer;
        let several = choices.len() > 1;
        let best = choices.remove(best_index(&choices).min(choices.len().saturating_sub(1)));
        let generated_text = format!("{}{}", show.prefix, best.text);
        let details = show.details.then(|| Details {
            finish_reason: finish_reason(&best.reason),
            generated_tokens: best.usage.completion_tokens,
            seed: show.sampled.then_some(best.usage.seed),
            prefill: prefill(&started, show),
            tokens: tokens(&best.tokens, show),
            top_tokens: top_tokens(&best.tokens, show),
            prompt_tokens: (show.version == Version::MindIe).then_some(best.usage.prompt_tokens),
            best_of_sequences: several.then(|| {
                choices
                    .iter()
                    .map(|choice| other(choice, &started, show))
                    .collect()
            }),
        });
        Generated {
            generated_text,
            details,
        }
    }
}

fn other(choice: &Choice, started: &Started, show: &Show<'_>) -> BestOfSequence {
    BestOfSequence {
        generated_text: format!("{}{}", show.prefix, choice.text),
        finish_reason: finish_reason(&choice.reason),
        generated_tokens: choice.usage.completion_tokens,
        seed: show.sampled.then_some(choice.usage.seed),
        prefill: prefill(started, show),
        tokens: tokens(&choice.tokens, show),
        top_tokens: top_tokens(&choice.tokens, show),
    }
}

/// The choice with the highest mean log-probability, the first among equals.
fn best_index(choices: &[Choice]) -> usize {
    let mut best = 0;
    for (index, choice) in choices.iter().enumerate() {
        if choice.mean_logprob() > choices[best].mean_logprob() {
            best = index;
        }
    }
    best
}

/// MindIE tells only their ids.
fn tokens(tokens: &[TokenOut], show: &Show<'_>) -> Vec<Token> {
    let one = |token| match (show.version, Token::of(token, show.text)) {
        (Version::MindIe, token) => Token {
            text: None,
            ..token.bare()
        },
        (_, token) => token,
    };
    tokens.iter().map(one).collect()
}

fn top_tokens(tokens: &[TokenOut], show: &Show<'_>) -> Vec<Vec<Token>> {
    if show.top_n == 0 {
        return Vec::new();
    }
    let best = |token| Token::top(token, show.top_n, show.text);
    tokens.iter().map(best).collect()
}

fn prefill(started: &Started, show: &Show<'_>) -> Vec<PrefillToken> {
    if !show.prefill {
        return Vec::new();
    }
    let known = started.prompt_logprobs.as_deref().unwrap_or(&[]);
    let token = |(index, &TokenId(id)): (usize, &TokenId)| PrefillToken {
        id,
        text: show.text.token_text(TokenId(id)).unwrap_or_default(),
        logprob: known
            .get(index)
            .filter(|_| index > 0)
            .and_then(|entry| entry.logprob),
    };
    started.prompt_ids.iter().enumerate().map(token).collect()
}

/// The original's three words. Failures never come here.
pub fn finish_reason(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::EndOfText(_) => "eos_token",
        FinishReason::StopToken(_) | FinishReason::StopString(_) => "stop_sequence",
        _ => "length",
    }
}
