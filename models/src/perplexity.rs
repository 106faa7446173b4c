//! How well a model predicts a text, alone and beside a reference: mean negative log-likelihood, KL divergence, how often both
//! name the same best token. Works step by step on any executor and never holds more than one step's logits of each.

use ropeteam_engine::executor::{DeviceFault, StepExecutor};
use ropeteam_engine::ids::{BlockId, SeqId, TokenId};
use ropeteam_engine::plan::{Chunk, StepOutput, StepPlan, Want};

/// How a text is scored.
#[derive(Clone, Copy, Debug)]
pub struct Scoring {
    /// The text is cut into windows of so many tokens, each scored by itself from its second token on.
    pub window: usize,
    /// Tokens per step; each of them has a row of logits.
    pub step: usize,
}

/// What was found; sums over all scored tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scores {
    /// Tokens that were predicted from those before them.
    pub tokens: usize,
    /// Sum of `-ln p(token)`.
    pub nll: f64,
    /// Against the reference, where there is one.
    pub reference: Option<Comparison>,
}

/// The reference's own sum, and what lies between both; natural logarithms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Comparison {
    /// The reference's sum of `-ln p(token)`.
    pub nll: f64,
    /// Sum of the KL divergences of the model's distribution from the reference's.
    pub divergence: f64,
    /// Positions where both have the same best token.
    pub same_best: usize,
}

impl Scores {
    /// Mean of `-ln p(token)`.
    pub fn mean_nll(&self) -> f64 {
        self.mean(self.nll)
    }

    /// A sum over all scored tokens as a mean.
    pub fn mean(&self, sum: f64) -> f64 {
        sum / self.tokens.max(1) as f64
    }
}

/// Scores `ids`. `told` hears after each step how many tokens have been computed.
///
/// # Errors
/// What an executor failed of.
pub fn score(
    model: &mut dyn StepExecutor,
    mut reference: Option<&mut dyn StepExecutor>,
    ids: &[TokenId],
    scoring: Scoring,
    told: &mut dyn FnMut(usize),
) -> Result<Scores, DeviceFault> {
    let mut scores = Scores {
        reference: reference.is_some().then(Comparison::default),
        ..Scores::default()
    };
    let (mut found, mut expected) = (StepOutput::default(), StepOutput::default());
    let mut done = 0;
    for window in ids.chunks(scoring.window.max(1)) {
        for start in (0..window.len()).step_by(scoring.step.max(1)) {
            let end = window.len().min(start + scoring.step.max(1));
            step(model, window, start..end, &mut found)?;
            if let Some(reference) = reference.as_deref_mut() {
                step(reference, window, start..end, &mut expected)?;
            }
            for position in start..end.min(window.len() - 1) {
                let target = window[position + 1];
                let row = Row::new(found.row(position - start));
                scores.tokens += 1;
                scores.nll += row.nll(target);
                if let Some(comparison) = &mut scores.reference {
                    comparison.add(&Row::new(expected.row(position - start)), &row, target);
                }
            }
            done += end - start;
            told(done);
        }
    }
    Ok(scores)
}

/// Computes the logits of the tokens `range` of a window.
fn step(
    executor: &mut dyn StepExecutor,
    window: &[TokenId],
    range: std::ops::Range<usize>,
    output: &mut StepOutput,
) -> Result<(), DeviceFault> {
    let blocks = range.end.div_ceil(executor.capacity().block_size as usize);
    let chunk = Chunk {
        seq: SeqId(0),
        tokens: window[range.clone()].to_vec(),
        start: range.start as u32,
        blocks: (0..blocks as u32).map(BlockId).collect(),
        want: Want::AllLogits,
    };
    let plan = StepPlan {
        chunks: vec![chunk],
    };
    executor.step(&plan, output)
}

/// A row of logits as a distribution.
struct Row<'a> {
    logits: &'a [f32],
    /// `ln sum exp`.
    normaliser: f64,
    best: usize,
}

impl<'a> Row<'a> {
    fn new(logits: &'a [f32]) -> Self {
        let mut best = 0;
        for (index, logit) in logits.iter().enumerate() {
            if *logit > logits[best] {
                best = index;
            }
        }
        let largest = logits[best];
        let sum: f64 = logits.iter().map(|x| f64::from((x - largest).exp())).sum();
        Self {
            logits,
            normaliser: f64::from(largest) + sum.ln(),
            best,
        }
    }

    fn log_probability(&self, index: usize) -> f64 {
        f64::from(self.logits[index]) - self.normaliser
    }

    fn nll(&self, target: TokenId) -> f64 {
        -self.log_probability(target.0 as usize)
    }
}

impl Comparison {
    fn add(&mut self, expected: &Row<'_>, found: &Row<'_>, target: TokenId) {
        self.nll += expected.nll(target);
        self.same_best += usize::from(expected.best == found.best);
        let shift = found.normaliser - expected.normaliser;
        let pairs = expected.logits.iter().zip(found.logits);
        // A column without a token has minus infinity in both and takes no part.
        self.divergence += pairs
            .filter(|(expected, _)| expected.is_finite())
            .map(|(p, q)| {
                let log_p = f64::from(*p) - expected.normaliser;
                f64::from((log_p as f32).exp()) * (f64::from(p - q) + shift)
            })
            .sum::<f64>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeteam_engine::executor::Capacity;
    use ropeteam_engine::plan::ChunkResult;

    /// Gives token t + 1 the logit `peak` after token t, all others 0.
    struct Counting {
        peak: f32,
    }

    const VOCAB: usize = 8;

    impl StepExecutor for Counting {
        fn capacity(&self) -> Capacity {
            Capacity {
                blocks: 4,
                block_size: 4,
                max_model_len: 16,
                max_step_tokens: 4,
                max_logits_rows: 4,
                vocab: VOCAB as u32,
            }
        }

        fn step(&mut self, plan: &StepPlan, output: &mut StepOutput) -> Result<(), DeviceFault> {
            let chunk = &plan.chunks[0];
            assert_eq!(
                chunk.blocks.len(),
                (chunk.start as usize + chunk.tokens.len()).div_ceil(4)
            );
            output.vocab = VOCAB;
            output.logits = vec![0.0; chunk.tokens.len() * VOCAB];
            for (row, token) in output.logits.chunks_mut(VOCAB).zip(&chunk.tokens) {
                row[(token.0 as usize + 1) % VOCAB] = self.peak;
            }
            let count = chunk.tokens.len();
            output.results = vec![ChunkResult::Logits { first: 0, count }];
            Ok(())
        }
    }

    fn scores(window: usize, step: usize) -> Scores {
        let ids: Vec<_> = (0..10).map(|id| TokenId(id % VOCAB as u32)).collect();
        let (mut model, mut reference) = (Counting { peak: 1.0 }, Counting { peak: 2.0 });
        let scoring = Scoring { window, step };
        score(&mut model, Some(&mut reference), &ids, scoring, &mut |_| {}).unwrap()
    }

    #[test]
    fn sums_are_those_of_the_formulas_whatever_the_step() {
        let mass = |peak: f64| peak.exp() + (VOCAB - 1) as f64;
        let nll = |peak: f64| mass(peak).ln() - peak;
        for step in [1, 3, 4] {
            let found = scores(16, step);
            let comparison = found.reference.unwrap();
            assert_eq!((found.tokens, comparison.same_best), (9, 9));
            assert!((found.mean_nll() - nll(1.0)).abs() < 1e-6);
            assert!((found.mean(comparison.nll) - nll(2.0)).abs() < 1e-6);
            let best = 2f64.exp() / mass(2.0);
            let divergence = best + mass(1.0).ln() - mass(2.0).ln();
            assert!((found.mean(comparison.divergence) - divergence).abs() < 1e-6);
        }
    }

    #[test]
    fn each_window_begins_anew() {
        assert_eq!(scores(4, 4).tokens, 3 + 3 + 1);
        assert_eq!(scores(1, 4).tokens, 0);
    }
}
