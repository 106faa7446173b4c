//! Shapes of the TGI dialect's whole answers. Not here: streamed ones (`frames.rs`).

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
}

#[derive(Debug, Serialize)]
struct BestOfSequence {
    generated_text: String,
    finish_reason: &'static str,
    generated_tokens: u32,
    seed: Option<u64>,
    prefill: Vec<PrefillToken>,
    tokens: Vec<Token>,
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
    text: String,
    logprob: Option<f32>,
    special: bool,
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
            text: own.unwrap_or_else(|| token.text.clone()),
            logprob: token.logprob,
            special: token.special,
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
            tokens: tokens(&best.tokens, show.text),
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
        tokens: tokens(&choice.tokens, show.text),
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

fn tokens(tokens: &[TokenOut], text: &dyn TextCodec) -> Vec<Token> {
    tokens.iter().map(|token| Token::of(token, text)).collect()
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
