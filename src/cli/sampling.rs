//! The flags of `generate` and `chat` that say how an answer is chosen and when it ends.

use ropeteam_engine::request::{GenerateRequest, Prompt, StopRules};
use ropeteam_engine::sampling::SamplingParams;

/// How an answer is chosen and when it ends. What is left out follows the model's own defaults.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Answer")]
pub struct AnswerArgs {
    /// Most tokens to generate
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// 0: always the best token; higher: more varied
    #[arg(long, value_name = "NUMBER", value_parser = number(0.0, 100.0))]
    temperature: Option<f32>,
    /// Choose among the best tokens that reach this probability together
    #[arg(long, value_name = "NUMBER", value_parser = number(0.000_001, 1.0))]
    top_p: Option<f32>,
    /// Choose among so many best tokens; 0: all
    #[arg(long, value_name = "N")]
    top_k: Option<u32>,
    /// Seed of the random numbers, to get the same answer again
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// End before this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
}

/// A number within bounds; NaN is outside of any.
fn number(from: f32, to: f32) -> impl Fn(&str) -> Result<f32, String> + Clone {
    move |word| {
        let wanted = || format!("a number from {from} to {to} is expected");
        word.parse()
            .ok()
            .filter(|number| (from..=to).contains(number))
            .ok_or_else(wanted)
    }
}

impl AnswerArgs {
    /// The request for an answer to `prompt`; `id` names it in logs.
    pub fn request(
        &self,
        id: String,
        prompt: Prompt,
        defaults: &SamplingParams,
    ) -> GenerateRequest {
        GenerateRequest {
            id,
            prompt,
            truncate: None,
            choices: 1,
            sampling: self.sampling(defaults),
            constraint: None,
            stop: StopRules {
                strings: self.stop.clone(),
                ..StopRules::default()
            },
            max_tokens: Some(self.max_tokens),
            logprobs: None,
            prompt_logprobs: None,
            pooling: None,
            skip_special_tokens: true,
            cache_salt: String::new(),
            tenant: String::new(),
            priority: 0,
            timeout: None,
        }
    }

    fn sampling(&self, defaults: &SamplingParams) -> SamplingParams {
        let mut sampling = defaults.clone();
        sampling.temperature = self.temperature.unwrap_or(sampling.temperature);
        sampling.top_p = self.top_p.unwrap_or(sampling.top_p);
        sampling.top_k = self.top_k.unwrap_or(sampling.top_k);
        sampling.seed = self.seed.unwrap_or_else(rand::random);
        sampling
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        answer: AnswerArgs,
    }

    fn sampling(args: &[&str], defaults: &SamplingParams) -> SamplingParams {
        let args = [&["x"], args].concat();
        Command::try_parse_from(args)
            .map(|command| command.answer.sampling(defaults))
            .expect("good flags")
    }

    #[test]
    fn what_is_left_out_follows_the_models_defaults() {
        let defaults = SamplingParams {
            temperature: 0.2,
            top_p: 0.9,
            ..SamplingParams::default()
        };
        let found = sampling(&["--temperature", "0", "--seed", "7"], &defaults);
        assert_eq!(
            found,
            SamplingParams {
                temperature: 0.0,
                seed: 7,
                ..defaults
            }
        );
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for wrong in ["-1", "NaN", "inf", "two"] {
            let args = ["x".to_owned(), format!("--temperature={wrong}")];
            assert!(Command::try_parse_from(args).is_err(), "{wrong}");
        }
    }
}
