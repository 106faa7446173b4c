//! Sampling parameters: valid by construction, checked once at the dialect's edge.

use crate::ids::TokenId;

/// How the next token is chosen. Fields are documented with their neutral value, which switches them off.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits; 0 is greedy. Neutral: 1.
    pub temperature: f32,
    /// Keep the k best (and all tied with the k-th); 0: off.
    pub top_k: u32,
    /// Keep the smallest best set that reaches this probability. Neutral: 1.
    pub top_p: f32,
    /// Keep tokens with at least this share of the best one's probability. Neutral: 0.
    pub min_p: f32,
    /// Keep the most typical set that reaches this probability. Neutral: 1.
    pub typical_p: f32,
    /// Divides (or multiplies, if negative) the logits of tokens that are in prompt or output. Neutral: 1.
    pub repetition_penalty: f32,
    /// Subtracted per occurrence in the output. Neutral: 0.
    pub frequency_penalty: f32,
    /// Subtracted once for tokens in the output. Neutral: 0.
    pub presence_penalty: f32,
    /// Added to single logits.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Seed of the random numbers; number i of the sequence is a function of (seed, i).
    pub seed: u64,
}

impl Default for SamplingParams {
    /// Plain sampling from the model's distribution, seed 0.
    fn default() -> Self {
        SamplingParams {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

impl SamplingParams {
    /// The best token, always.
    pub fn greedy() -> Self {
        SamplingParams {
            temperature: 0.0,
            ..Self::default()
        }
    }

    /// Whether the best logit of the model itself decides: nothing changes the order and nothing is drawn.
    pub fn is_plain_greedy(&self) -> bool {
        self.temperature == 0.0
            && self.repetition_penalty == 1.0
            && self.frequency_penalty == 0.0
            && self.presence_penalty == 0.0
            && self.logit_bias.is_empty()
    }
}
