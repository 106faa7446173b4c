//! From a logits row to the next token: processors in a fixed order, then the draw.
//!
//! The order, each step skipped at its neutral value:
//!
//! 1. `suppress`: tokens that the constraint forbids; suppressed tokens; end ids while fewer than `min_tokens` tokens exist; what is not
//!    among the allowed tokens; the last token of a bad sequence behind its others
//! 2. `bias`: logit bias
//! 3. `penalty`: repetition penalty (prompt and output), presence and frequency penalty (output)
//! 4. `ngram`: no repeated n-grams
//! 5. greedy: the best token, the lowest id among equals; otherwise
//! 6. `temperature`
//! 7. `top_k`, `typical`, `top_p`, `min_p`, `cutoff` (epsilon, then eta): each on what the one before left, renormalised
//! 8. `draw` with the random number of (seed, position)
//!
//! Where 1 to 4 leave nothing of what the constraint allows (its end comes before `min_tokens`, say), the constraint counts alone and
//! the best token is taken: what is generated obeys it, always. The same holds for allowed tokens, where there is no constraint.
//!
//! To add a rule: a file, a field in `params`, a line in [`Sampler::choose`]. Reported log-probabilities are those of the
//! unmodified row (`logprobs`).

mod bias;
mod candidates;
mod cutoff;
mod draw;
mod history;
mod logprobs;
mod min_p;
mod ngram;
mod params;
mod penalty;
mod random;
mod softmax;
mod suppress;
mod temperature;
mod top_k;
mod top_p;
mod typical;

pub use candidates::Candidates;
pub use history::TokenCounts;
pub use logprobs::{LOWEST_LOGPROB, Logprobs, logprobs, logprobs_of};
pub use params::{InvalidParam, SamplingParams};
pub use random::{choice_seed, uniform};

use crate::constraint::TokenMask;
use crate::ids::TokenId;

/// Nothing can be chosen from a logits row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLogits {
    /// It holds NaN or plus infinity.
    #[error("the logits hold NaN or infinity")]
    NotANumber,
    /// All tokens are at minus infinity.
    #[error("the logits leave no token to choose")]
    NoCandidate,
}

/// What the choice of a sequence's next token depends on, beside the logits.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// How to choose.
    pub params: &'a SamplingParams,
    /// The prompt.
    pub prompt: &'a [TokenId],
    /// The output so far; the next token's position is its length.
    pub output: &'a [TokenId],
    /// Occurrences of both; needed if [`SamplingParams::counts_tokens`].
    pub counts: Option<&'a TokenCounts>,
    /// Tokens that must not come now.
    pub banned: &'a [TokenId],
    /// Tokens that the sequence's constraint allows now; `None` if it has none.
    pub allowed: Option<&'a TokenMask>,
}

impl Context<'_> {
    /// Whether some tokens must not come, whatever the parameters say.
    fn forbids_any(&self) -> bool {
        !self.banned.is_empty() || self.allowed.is_some()
    }
}

/// Chooses tokens. Holds nothing but room for its computations, so one serves all sequences of a device.
#[derive(Clone, Debug, Default)]
pub struct Sampler {
    candidates: Candidates,
}

impl Sampler {
    /// Chooses the next token from a logits row, `[vocab]`. The choice depends on the arguments alone.
    ///
    /// # Errors
    /// When the row holds NaN or plus infinity, or leaves no token above minus infinity.
    pub fn choose(&mut self, row: &[f32], context: Context<'_>) -> Result<TokenId, BadLogits> {
        let narrow = context.allowed.is_some() || !context.params.allowed_tokens.is_empty();
        match self.choose_by_all(row, context) {
            Err(BadLogits::NoCandidate) if narrow => self.best_allowed(row, context),
            chosen => chosen,
        }
    }

    /// Chooses as `choose` does from the row whose best tokens these are, ids ascending: as many as
    /// [`SamplingParams::best_that_decide`] says, and all tied with the last of them however they are scaled.
    ///
    /// # Errors
    /// As `choose`.
    pub fn choose_among(
        &mut self,
        best: &[(TokenId, f32)],
        context: Context<'_>,
    ) -> Result<TokenId, BadLogits> {
        self.candidates.begin_among(best);
        self.draw(context)
    }

    /// The best token of those that the constraint allows, or else the parameters.
    fn best_allowed(&mut self, row: &[f32], context: Context<'_>) -> Result<TokenId, BadLogits> {
        self.candidates.begin(row);
        match context.allowed {
            Some(mask) => mask.apply(self.candidates.row_mut()),
            None => {
                suppress::allow_tokens(self.candidates.row_mut(), &context.params.allowed_tokens)
            }
        }
        self.candidates.best()
    }

    fn choose_by_all(&mut self, row: &[f32], context: Context<'_>) -> Result<TokenId, BadLogits> {
        let candidates = &mut self.candidates;
        let params = context.params;
        let changed = params.changes_logits() || context.forbids_any();
        // What most requests ask for needs no copy of the row.
        match (changed, params.is_greedy(), params.top_k as usize) {
            (false, true, _) => return Ok(TokenId(softmax::argmax(row)? as u32)),
            (false, false, _) if !params.truncates() => {
                let scale = temperature::scale(params.temperature);
                let number = random::uniform(params.seed, context.output.len() as u64);
                let drawn = draw::draw_from(row, scale, number, &mut candidates.run_sums)?;
                return Ok(TokenId(drawn as u32));
            }
            (false, false, k @ 1..) => candidates.begin_with_best(row, k)?,
            _ => {
                candidates.begin(row);
                change_logits(candidates.row_mut(), context);
            }
        }
        if params.is_greedy() {
            return candidates.best();
        }
        self.draw(context)
    }

    /// Draws one of the candidates, after the processors that take some out.
    fn draw(&mut self, context: Context<'_>) -> Result<TokenId, BadLogits> {
        let (candidates, params) = (&mut self.candidates, context.params);
        candidates.max()?;
        temperature::temperature(candidates, params.temperature);
        top_k::top_k(candidates, params.top_k);
        typical::typical_p(candidates, params.typical_p)?;
        top_p::top_p(candidates, params.top_p)?;
        min_p::min_p(candidates, params.min_p)?;
        cutoff::epsilon_cutoff(candidates, params.epsilon_cutoff)?;
        cutoff::eta_cutoff(candidates, params.eta_cutoff)?;
        candidates.draw(random::uniform(params.seed, context.output.len() as u64))
    }
}

/// The processors that change logits by token id.
fn change_logits(row: &mut [f32], context: Context<'_>) {
    let params = context.params;
    if let Some(allowed) = context.allowed {
        allowed.apply(row);
    }
    suppress::suppress_tokens(row, context.banned);
    suppress::suppress_tokens(row, &params.suppress_tokens);
    suppress::allow_tokens(row, &params.allowed_tokens);
    suppress::bad_sequences(row, context.output, &params.bad_sequences);
    bias::logit_bias(row, &params.logit_bias);
    if let Some(counts) = context.counts {
        penalty::repetition_penalty(row, counts, params.repetition_penalty);
        penalty::presence_penalty(row, counts, params.presence_penalty);
        penalty::frequency_penalty(row, counts, params.frequency_penalty);
    }
    ngram::no_repeat_ngram(row, context.prompt, context.output, params.no_repeat_ngram);
}

#[cfg(test)]
mod tests;
