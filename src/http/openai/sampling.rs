//! The request fields that say how the next token is chosen and when to stop. Not here: what they do (the engine's sampling).

use super::checks::{share, token_id, whole, within};
use super::fields::SharedFields;
use crate::http::refusal::Refusal;
use crate::http::state::Serving;
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::request::StopRules;
use ropeteam_engine::sampling::SamplingParams;

/// Most stop strings: OpenAI's 4 is too few for evaluation suites, which send longer lists.
const STOPS_MAX: usize = 64;
/// Most bad words, and their bytes in all: each is tokenised twice before the request is admitted.
const BAD_WORDS_MAX: usize = 1024;
const BAD_WORDS_BYTES_MAX: usize = 16 << 10;

impl SharedFields {
    /// How the next token is chosen.
    ///
    /// # Errors
    /// A field out of range, by name.
    pub fn sampling(&self, serving: &Serving) -> Result<SamplingParams, Refusal> {
        let default = &serving.defaults;
        let top_k = whole(
            "top_k",
            self.top_k.unwrap_or(default.top_k.into()),
            -1,
            u32::MAX.into(),
        )?;
        let repetition_penalty = self
            .repetition_penalty
            .unwrap_or(default.repetition_penalty);
        if repetition_penalty <= 0.0 {
            return Err(Refusal::invalid(
                "repetition_penalty",
                format!("repetition_penalty must be greater than 0, got {repetition_penalty}"),
            ));
        }
        Ok(SamplingParams {
            temperature: within(
                "temperature",
                self.temperature.unwrap_or(default.temperature),
                0.0,
                2.0,
            )?,
            top_k: top_k.max(0) as u32,
            top_p: share("top_p", self.top_p.unwrap_or(default.top_p))?,
            min_p: within("min_p", self.min_p.unwrap_or(default.min_p), 0.0, 1.0)?,
            typical_p: share("typical_p", self.typical_p.unwrap_or(default.typical_p))?,
            repetition_penalty,
            frequency_penalty: within(
                "frequency_penalty",
                self.frequency_penalty.unwrap_or(default.frequency_penalty),
                -2.0,
                2.0,
            )?,
            presence_penalty: within(
                "presence_penalty",
                self.presence_penalty.unwrap_or(default.presence_penalty),
                -2.0,
                2.0,
            )?,
            logit_bias: self.logit_bias(serving)?,
            allowed_tokens: self.allowed_tokens(serving)?,
            bad_sequences: self.bad_sequences(serving)?,
            logprob_tokens: self.logprob_tokens(serving)?,
            seed: self.seed.map_or_else(rand::random, |seed| seed as u64),
            ..default.clone()
        })
    }

    fn logit_bias(&self, serving: &Serving) -> Result<Vec<(TokenId, f32)>, Refusal> {
        let mut biases = Vec::new();
        for (key, &bias) in self.logit_bias.iter().flatten() {
            let field = "logit_bias";
            let id: i64 = key.parse().map_err(|_| {
                Refusal::invalid(
                    field,
                    format!("logit_bias: keys must be token ids, got {key:?}"),
                )
            })?;
            if !(-100.0..=100.0).contains(&bias) {
                return Err(Refusal::invalid(
                    field,
                    format!("logit_bias[{key}] must be from -100 to 100, got {bias}"),
                ));
            }
            biases.push((token_id(field, id, serving)?, bias as f32));
        }
        Ok(biases)
    }

    /// When the answer ends, apart from its length.
    ///
    /// # Errors
    /// A field out of range, by name.
    pub fn stop_rules(&self, serving: &Serving) -> Result<StopRules, Refusal> {
        let strings = self
            .stop
            .as_ref()
            .map_or_else(Vec::new, |stop| stop.0.clone());
        if strings.len() > STOPS_MAX {
            return Err(Refusal::invalid(
                "stop",
                format!(
                    "stop must hold at most {STOPS_MAX} strings, got {}",
                    strings.len()
                ),
            ));
        }
        if strings.iter().any(String::is_empty) {
            return Err(Refusal::invalid(
                "stop",
                "stop must not hold an empty string",
            ));
        }
        let ids = self.stop_token_ids.iter().flatten();
        let token_ids = ids
            .map(|&id| token_id("stop_token_ids", id, serving))
            .collect::<Result<_, _>>()?;
        Ok(StopRules {
            strings,
            token_ids,
            include_stop_string: self.include_stop_str_in_output.unwrap_or(false),
            ignore_eos: self.ignore_eos.unwrap_or(false),
            min_tokens: whole(
                "min_tokens",
                self.min_tokens.unwrap_or(0),
                0,
                u32::MAX.into(),
            )? as u32,
        })
    }

    fn allowed_tokens(&self, serving: &Serving) -> Result<Vec<TokenId>, Refusal> {
        let field = "allowed_token_ids";
        let Some(ids) = &self.allowed_token_ids else {
            return Ok(Vec::new());
        };
        if ids.is_empty() {
            let message = "allowed_token_ids must hold at least one token id when it is given";
            return Err(Refusal::invalid(field, message));
        }
        ids.iter().map(|&id| token_id(field, id, serving)).collect()
    }

    fn logprob_tokens(&self, serving: &Serving) -> Result<Vec<TokenId>, Refusal> {
        let ids = self.logprob_token_ids.iter().flatten();
        ids.map(|&id| token_id("logprob_token_ids", id, serving))
            .collect()
    }

    /// Each word as it is tokenised at the beginning of a text and, where that is another token, behind a space.
    fn bad_sequences(&self, serving: &Serving) -> Result<Vec<Vec<TokenId>>, Refusal> {
        let words = self.bad_words.as_deref().unwrap_or(&[]);
        let wrong = |message: String| Refusal::invalid("bad_words", message);
        let bytes: usize = words.iter().map(String::len).sum();
        if words.len() > BAD_WORDS_MAX || bytes > BAD_WORDS_BYTES_MAX {
            return Err(wrong(format!(
                "bad_words must hold at most {BAD_WORDS_MAX} words of {BAD_WORDS_BYTES_MAX} bytes in all, got {} of {bytes}",
                words.len()
            )));
        }
        let mut sequences: Vec<Vec<TokenId>> = Vec::new();
        for word in words {
            let encode = |text: String| {
                let ids = serving.text.encode(&text, false);
                ids.map_err(|error| wrong(format!("bad_words: {word:?}: {error}")))
            };
            let plain = encode(word.trim_start().to_owned())?;
            if plain.is_empty() {
                return Err(wrong(format!("bad_words must not hold {word:?}")));
            }
            let spaced = encode(format!(" {}", word.trim_start()))?;
            let is_another = spaced.len() == plain.len() && spaced.first() != plain.first();
            sequences.push(plain);
            sequences.extend(is_another.then_some(spaced));
        }
        Ok(sequences)
    }
}
