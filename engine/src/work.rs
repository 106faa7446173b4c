//! What a device needs to produce a sequence from nothing, and what it tells about it.
//! A `Work` is the whole truth of a sequence: a device that got one can start or continue it without having seen it before.

use crate::constraint::{Constraint, ConstraintFailed};
use crate::ids::{SeqId, TokenId};
use crate::request::Pooling;
use crate::sampling::{BadLogits, SamplingParams};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A sequence to run or, with `output` not empty, to go on with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Work {
    /// The sequence.
    pub seq: SeqId,
    /// Prompt token ids; at least one.
    pub prompt: Arc<[TokenId]>,
    /// Tokens generated so far (not empty after a device was lost). The next one is drawn at position `output.len()`.
    pub output: Vec<TokenId>,
    /// How the next token is chosen; the seed is settled.
    pub sampling: Arc<SamplingParams>,
    /// What the output must obey; `None`: nothing. To another process it travels as its [`source`](Constraint::source), beside the work.
    #[serde(skip)]
    pub constraint: Option<Arc<dyn Constraint>>,
    /// Ids that end the sequence: the model's (unless ignored) and the request's.
    pub end_ids: Arc<[TokenId]>,
    /// `end_ids` are never produced before so many output tokens.
    pub min_tokens: u32,
    /// Most output tokens, those in `output` included; at least 1.
    pub max_tokens: u32,
    /// Log-probabilities wanted of so many best tokens beside the drawn one.
    pub logprobs: Option<u32>,
    /// The same for prompt tokens.
    pub prompt_logprobs: Option<u32>,
    /// What is wanted is one vector of the prompt; nothing is generated.
    pub pooling: Option<Pooling>,
    /// Sequences with different salts never share cached blocks.
    pub cache_salt: u64,
    /// Whose sequence it is, for fairness; `""` is the common tenant.
    pub tenant: Arc<str>,
    /// Lower is served earlier.
    pub priority: i32,
    /// When its request came in; orders equals.
    pub arrived: Time,
    /// When it must have left the waiting queue.
    pub queue_deadline: Option<Time>,
}

impl Work {
    /// Prompt and output tokens together.
    pub fn len_tokens(&self) -> usize {
        self.prompt.len() + self.output.len()
    }
}

/// One token with what was asked about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampledToken {
    /// The token.
    pub id: TokenId,
    /// Natural-log probability under the model's unmodified distribution; `None` when not asked for.
    pub logprob: Option<f32>,
    /// The best tokens of the unmodified distribution, best first; empty when not asked for.
    pub top: Vec<(TokenId, f32)>,
}

/// What was asked about one prompt token. All is empty for the first token: nothing comes before it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptTokenLogprob {
    /// Natural-log probability under the model's unmodified distribution; finite.
    pub logprob: Option<f32>,
    /// How many tokens are at least as likely in its place, itself included: 1 for the best.
    pub rank: Option<u32>,
    /// The best tokens in its place, best first.
    pub top: Vec<(TokenId, f32)>,
}

/// Why a device stopped working on a sequence by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceFinish {
    /// The last token is one of the work's `end_ids`.
    EndId,
    /// `max_tokens`, or the device's length limit.
    Length,
    /// The vector of the prompt is complete.
    Pooled,
    /// The sequence's logits held NaN or no token that may be chosen. A fault of this sequence only: it would come again
    /// on another device, so it is told as a device error and not replayed.
    BadLogits,
    /// Its constraint could not be followed any further. That, too, would come again.
    ConstraintFailed,
}

impl From<BadLogits> for DeviceFinish {
    fn from(_: BadLogits) -> Self {
        DeviceFinish::BadLogits
    }
}

impl From<ConstraintFailed> for DeviceFinish {
    fn from(_: ConstraintFailed) -> Self {
        DeviceFinish::ConstraintFailed
    }
}
