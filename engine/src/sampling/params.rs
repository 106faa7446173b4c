//! Sampling parameters: valid by construction, checked once at the dialect's edge.

use super::temperature::GREEDY_BELOW;
use crate::ids::TokenId;
use serde::{Deserialize, Serialize};

/// How the next token is chosen. Fields are documented with their neutral value, which switches them off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingParams {
    /// Divides the logits; 0 is greedy. Neutral: 1.
    pub temperature: f32,
    /// Keep the k best (and all tied with the k-th); 0: off, 1: greedy.
    pub top_k: u32,
    /// Keep the smallest best set that reaches this probability. Neutral: 1.
    pub top_p: f32,
    /// Keep tokens with at least this share of the best one's probability. Neutral: 0.
    pub min_p: f32,
    /// Keep the most typical set that reaches this probability. Neutral: 1.
    pub typical_p: f32,
    /// Keep tokens with at least this probability. Neutral: 0.
    pub epsilon_cutoff: f32,
    /// The same with a threshold that falls with the entropy. Neutral: 0.
    pub eta_cutoff: f32,
    /// Divides (or multiplies, if negative) the logits of tokens that are in prompt or output. Neutral: 1.
    pub repetition_penalty: f32,
    /// Subtracted per occurrence in the output. Neutral: 0.
    pub frequency_penalty: f32,
    /// Subtracted once for tokens in the output. Neutral: 0.
    pub presence_penalty: f32,
    /// No n-gram of so many tokens comes twice; 0: off.
    pub no_repeat_ngram: u32,
    /// Added to single logits.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Never chosen.
    pub suppress_tokens: Vec<TokenId>,
    /// Nothing else is chosen; empty: no such rule.
    pub allowed_tokens: Vec<TokenId>,
    /// Sequences of tokens that the output never holds; none is empty.
    pub bad_sequences: Vec<Vec<TokenId>>,
    /// Log-probabilities, where they are asked for, are told of the chosen token and these in place of the best; empty: of the best.
    /// No rule of the choice.
    #[serde(default)]
    pub logprob_tokens: Vec<TokenId>,
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
            epsilon_cutoff: 0.0,
            eta_cutoff: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            no_repeat_ngram: 0,
            logit_bias: Vec::new(),
            suppress_tokens: Vec::new(),
            allowed_tokens: Vec::new(),
            bad_sequences: Vec::new(),
            logprob_tokens: Vec::new(),
            seed: 0,
        }
    }
}

/// A parameter outside its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} must be {expected}, not {value}")]
pub struct InvalidParam {
    /// Its name, the field's.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What it may be.
    pub expected: &'static str,
}

impl SamplingParams {
    /// The best token, always.
    pub fn greedy() -> Self {
        SamplingParams {
            temperature: 0.0,
            ..Self::default()
        }
    }

    /// Whether the best token is taken and nothing is drawn: of equals the one with the lowest id. To keep only the best one
    /// (`top_k` 1) asks for the same, so that it does not break ties at random either.
    pub fn is_greedy(&self) -> bool {
        self.temperature < GREEDY_BELOW || self.top_k == 1
    }

    /// Whether the best logit of the model itself decides: nothing changes the order and nothing is drawn.
    pub fn is_plain_greedy(&self) -> bool {
        self.is_greedy() && !self.changes_logits()
    }

    /// Whether logits of single tokens are changed before anything else.
    pub fn changes_logits(&self) -> bool {
        self.counts_tokens()
            || self.no_repeat_ngram > 0
            || !self.logit_bias.is_empty()
            || !self.suppress_tokens.is_empty()
            || !self.allowed_tokens.is_empty()
            || !self.bad_sequences.is_empty()
    }

    /// Whether tokens are taken out before the draw.
    pub fn truncates(&self) -> bool {
        self.top_k > 0
            || self.typical_p < 1.0
            || self.top_p < 1.0
            || self.min_p > 0.0
            || self.epsilon_cutoff > 0.0
            || self.eta_cutoff > 0.0
    }

    /// How many of the best logits decide, with those tied with the last of them; `None` where all do.
    pub fn best_that_decide(&self) -> Option<u32> {
        let best_decide = self.top_k > 0 && !self.is_greedy() && !self.changes_logits();
        best_decide.then_some(self.top_k)
    }

    /// Whether a penalty needs to know the tokens so far.
    pub fn counts_tokens(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.frequency_penalty != 0.0
            || self.presence_penalty != 0.0
    }

    /// Checks every range. Dialects may have narrower ones of their own.
    ///
    /// # Errors
    /// The first field that is out of its range (NaN always is).
    pub fn validate(&self) -> Result<(), InvalidParam> {
        let checks = [
            (
                "temperature",
                self.temperature,
                0.0..=100.0,
                "from 0 to 100",
            ),
            ("min_p", self.min_p, 0.0..=1.0, "from 0 to 1"),
            (
                "epsilon_cutoff",
                self.epsilon_cutoff,
                0.0..=1.0,
                "from 0 to 1",
            ),
            ("eta_cutoff", self.eta_cutoff, 0.0..=1.0, "from 0 to 1"),
            (
                "frequency_penalty",
                self.frequency_penalty,
                -2.0..=2.0,
                "from -2 to 2",
            ),
            (
                "presence_penalty",
                self.presence_penalty,
                -2.0..=2.0,
                "from -2 to 2",
            ),
        ];
        for (field, value, range, expected) in checks {
            check(field, value, range.contains(&value), expected)?;
        }
        let shares = [("top_p", self.top_p), ("typical_p", self.typical_p)];
        for (field, value) in shares {
            let inside = value > 0.0 && value <= 1.0;
            check(field, value, inside, "above 0 and at most 1")?;
        }
        let repetition = self.repetition_penalty;
        let inside = repetition > 0.0 && repetition.is_finite();
        check(
            "repetition_penalty",
            repetition,
            inside,
            "above 0 and finite",
        )?;
        for &(_, bias) in &self.logit_bias {
            let inside = (-100.0..=100.0).contains(&bias);
            check("logit_bias", bias, inside, "from -100 to 100")?;
        }
        Ok(())
    }
}

fn check(
    field: &'static str,
    value: f32,
    valid: bool,
    expected: &'static str,
) -> Result<(), InvalidParam> {
    match valid {
        true => Ok(()),
        false => Err(InvalidParam {
            field,
            value: value.to_string(),
            expected,
        }),
    }
}
