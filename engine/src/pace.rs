//! How long a device's steps take, learnt from those it ran, and how many prompt tokens may ride along with decodes because of it.
//! Which tokens a sequence gets does not depend on it: a step may hold whatever it likes.

use std::time::Duration;

/// Weight of a new observation.
const GAIN: f64 = 0.2;
/// An observation above so many times the estimate counts as that: a machine that was busy otherwise tells little about the next step.
const OUTLIER: f64 = 2.0;
/// Fewest tokens of a prompt in a step: with fewer the prompt would hardly get on.
const TOKENS_MIN: f64 = 16.0;

/// What a step held, as far as its time depends on it.
#[derive(Clone, Copy, Debug)]
pub struct StepLoad {
    /// Sequences that decoded.
    pub decode_seqs: u32,
    /// Prompt tokens computed.
    pub prefill_tokens: u32,
}

/// Moving averages of step times; empty at first.
#[derive(Clone, Debug, Default)]
pub struct StepPace {
    /// Seconds of a step that only decodes.
    decode_step: Option<f64>,
    /// Seconds that a prompt token adds to a step.
    prefill_token: Option<f64>,
}

impl StepPace {
    /// Learns from a step that held `load` and took so long.
    pub fn learn(&mut self, load: StepLoad, took: Duration) {
        let took = took.as_secs_f64();
        let tokens = f64::from(load.prefill_tokens);
        match (load.decode_seqs, load.prefill_tokens) {
            (0, 0) => {}
            (_, 0) => average(&mut self.decode_step, took),
            (0, _) => average(&mut self.prefill_token, took / tokens),
            (_, _) => {
                if let Some(decode) = self.decode_step {
                    average(&mut self.prefill_token, (took - decode) / tokens);
                }
            }
        }
    }

    /// Prompt tokens that make a step with decodes at most `stretch` times as long as one without prompts; `None` while too little
    /// is known.
    pub fn prefill_tokens(&self, stretch: f64) -> Option<u32> {
        let (decode, token) = (self.decode_step?, self.prefill_token?);
        Some(((stretch - 1.0) * decode / token).max(TOKENS_MIN) as u32)
    }
}

/// Takes an observation into an average. One that is not above zero (a clock that stands, a mixed step as short as a plain one) says
/// nothing.
fn average(estimate: &mut Option<f64>, seen: f64) {
    if seen > 0.0 {
        *estimate = Some(match *estimate {
            None => seen,
            Some(known) => known + GAIN * (seen.min(known * OUTLIER) - known),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STEP: f64 = 0.008;
    const TOKEN: f64 = 0.0005;

    fn run(pace: &mut StepPace, decode_seqs: u32, prefill_tokens: u32) -> f64 {
        let decode = if decode_seqs > 0 { STEP } else { 0.0 };
        let took = decode + TOKEN * f64::from(prefill_tokens);
        let load = StepLoad {
            decode_seqs,
            prefill_tokens,
        };
        pace.learn(load, Duration::from_secs_f64(took));
        took
    }

    #[test]
    fn nothing_is_bounded_before_both_costs_are_known() {
        let mut pace = StepPace::default();
        run(&mut pace, 0, 500);
        assert_eq!(pace.prefill_tokens(2.0), None);
        run(&mut pace, 3, 0);
        assert_eq!(pace.prefill_tokens(3.0), Some(32));
    }

    #[test]
    fn one_slow_step_changes_little() {
        let mut pace = StepPace::default();
        run(&mut pace, 0, 500);
        run(&mut pace, 3, 0);
        let load = StepLoad {
            decode_seqs: 3,
            prefill_tokens: 0,
        };
        pace.learn(load, Duration::from_secs(5));
        assert!(pace.prefill_tokens(3.0).is_some_and(|tokens| tokens < 40));
    }

    proptest! {
        #[test]
        fn mixed_steps_keep_to_the_stretch_whatever_came_before(
            before in prop::collection::vec((0u32..8, 0u32..600), 0..40), stretch in 2.1f64..4.0,
        ) {
            let mut pace = StepPace::default();
            run(&mut pace, 0, 100);
            run(&mut pace, 1, 0);
            for (decode_seqs, prefill_tokens) in before {
                run(&mut pace, decode_seqs, prefill_tokens);
            }
            let tokens = pace.prefill_tokens(stretch).expect("both costs are known");
            let took = run(&mut pace, 4, tokens);
            prop_assert!(took <= stretch * STEP * 1.001, "{tokens} tokens, {took} s");
            prop_assert!(took >= stretch * STEP * 0.9, "{tokens} tokens, {took} s");
        }
    }
}
