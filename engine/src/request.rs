//! What a client asks for, after its dialect was parsed and checked: the one shape behind all routes.
//! Not here: wire formats (`src/http` of the server) and what a device needs of it (`work.rs`).

use crate::constraint::Constraint;
use crate::ids::TokenId;
use crate::sampling::SamplingParams;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// How a prompt that is too long is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// Tokens that stay.
    pub keep: u32,
    /// Where the others are taken away.
    pub side: TruncationSide,
}

/// An end of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TruncationSide {
    /// The beginning: the last tokens stay.
    #[default]
    Left,
    /// The end: the first tokens stay.
    Right,
}

/// One generation: a prompt and how to go on from it.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// Names the request in logs and events; unique per process by the caller's care.
    pub id: String,
    /// What to go on from.
    pub prompt: Prompt,
    /// Cut the prompt to a length.
    pub truncate: Option<Truncation>,
    /// How many independent continuations; at least 1. Each draws its own random numbers.
    pub choices: u32,
    /// How the next token is chosen.
    pub sampling: SamplingParams,
    /// What every continuation must obey; `None`: nothing.
    pub constraint: Option<Arc<dyn Constraint>>,
    /// When a continuation ends.
    pub stop: StopRules,
    /// Most tokens to generate per choice; `None`: as many as the model's length limit leaves.
    pub max_tokens: Option<u32>,
    /// Report each generated token's log-probability and those of so many best alternatives.
    pub logprobs: Option<u32>,
    /// The same for the tokens of the prompt.
    pub prompt_logprobs: Option<u32>,
    /// Give one vector of the prompt and generate nothing.
    pub pooling: Option<Pooling>,
    /// Leave special tokens (end of turn and the like) out of the text.
    pub skip_special_tokens: bool,
    /// Separates prefix-cache users who must not see each other's timing; empty: shared by all.
    pub cache_salt: String,
    /// Who asks, for fairness between tenants; empty: the common tenant.
    pub tenant: String,
    /// Lower is served earlier.
    pub priority: i32,
    /// End the request this long after it came in; `None`: the server's default.
    pub timeout: Option<Duration>,
}

impl GenerateRequest {
    /// Sampling parameters of one choice: the first has the request's own seed, each other one a seed derived from it, so that
    /// the choices differ and come again as a set.
    pub fn sampling_of(&self, choice: u32) -> SamplingParams {
        let seed = match choice {
            0 => self.sampling.seed,
            other => scattered(self.sampling.seed, other),
        };
        SamplingParams {
            seed,
            ..self.sampling.clone()
        }
    }
}

/// A seed far from all others. Source: SplitMix64 (Steele, Lea, Flood 2014), whose finaliser keeps the choices' random numbers
/// from being shifted copies of each other.
fn scattered(seed: u64, choice: u32) -> u64 {
    let mut x = seed.wrapping_add(u64::from(choice).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// How the hidden states of a prompt's tokens become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// That of the last token.
    Last,
}

/// The prompt as the dialect gave it.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// Text to be tokenised, with or without the tokenizer's own begin-of-text tokens.
    Text {
        /// The text.
        text: String,
        /// Let the tokenizer add its begin (and end) tokens. A rendered chat already holds them.
        add_special_tokens: bool,
    },
    /// Token ids, taken as they are.
    Ids(Vec<TokenId>),
}

/// When a continuation ends, apart from its length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StopRules {
    /// Ends at the first of these in the text; none is empty.
    pub strings: Vec<String>,
    /// Ends at any of these ids, beside the model's own end ids.
    pub token_ids: Vec<TokenId>,
    /// Keep the stop string in the text.
    pub include_stop_string: bool,
    /// The model's own end ids do not end the sequence.
    pub ignore_eos: bool,
    /// Neither an end id nor a stop string counts before so many tokens exist.
    pub min_tokens: u32,
}

/// Why a choice ended.
#[derive(Clone, Debug, PartialEq)]
pub enum FinishReason {
    /// The model's own end id.
    EndOfText(TokenId),
    /// One of the request's stop token ids.
    StopToken(TokenId),
    /// One of the request's stop strings.
    StopString(String),
    /// `max_tokens`, the model's length limit, or the whole pool.
    Length,
    /// The vector of the prompt is complete; there is no text.
    Pooled,
    /// The client left or a management call ended it.
    Cancelled,
    /// Its deadline passed.
    Timeout,
    /// The device failed and the sequence could not go on elsewhere.
    DeviceError,
    /// The request's constraint could not be followed to an end.
    ConstraintFailed,
}
