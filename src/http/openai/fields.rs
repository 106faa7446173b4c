//! The request fields that chat and text completions share, and their way into the engine's terms. Ranges as OpenAI and vLLM have them.
//! One check of vLLM's is left out: `n` above 1 with temperature 0 is served, with the same text in every choice.
//! Not here: fields of one route only (`chat.rs`, `completions.rs`) and those that are refused (`unoffered.rs`).

use super::structured::{ResponseFormat, StructuredFields, StructuredOutputs};
use crate::http::json::{finite, object};
use crate::http::refusal::Refusal;
use crate::http::state::Serving;
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::request::{GenerateRequest, Prompt, StopRules};
use ropeteam_engine::sampling::SamplingParams;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Most choices per prompt.
const CHOICES_MAX: i64 = 128;
/// Most alternatives per token.
pub const TOP_LOGPROBS_MAX: i64 = 20;
/// Names that mean whatever is served: TGI's own, and what `huggingface_hub` sends to a server that it knows by address only.
const GENERIC_MODELS: &[&str] = &["tgi", "dummy"];
/// Longest cache salt.
const CACHE_SALT_CHARS_MAX: usize = 128;
/// Most stop strings: OpenAI's 4 is too few for evaluation suites, which send longer lists.
const STOPS_MAX: usize = 64;

/// Shared request fields; absent and `null` are the same.
#[derive(Debug, Default, Deserialize)]
pub struct SharedFields {
    /// Which model.
    pub model: Option<String>,
    /// Stream the answer.
    pub stream: Option<bool>,
    /// What the stream carries beside tokens.
    #[serde(default, deserialize_with = "object")]
    pub stream_options: Option<StreamOptions>,
    n: Option<i64>,
    #[serde(default, deserialize_with = "finite")]
    temperature: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    top_p: Option<f32>,
    top_k: Option<i64>,
    #[serde(default, deserialize_with = "finite")]
    min_p: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    typical_p: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    repetition_penalty: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    frequency_penalty: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    presence_penalty: Option<f32>,
    logit_bias: Option<BTreeMap<String, f64>>,
    seed: Option<i64>,
    stop: Option<Stop>,
    stop_token_ids: Option<Vec<i64>>,
    include_stop_str_in_output: Option<bool>,
    ignore_eos: Option<bool>,
    min_tokens: Option<i64>,
    skip_special_tokens: Option<bool>,
    truncate_prompt_tokens: Option<i64>,
    /// Let the tokenizer add its begin token.
    pub add_special_tokens: Option<bool>,
    priority: Option<i64>,
    cache_salt: Option<String>,
    #[serde(default, deserialize_with = "object")]
    response_format: Option<ResponseFormat>,
    #[serde(default, deserialize_with = "object")]
    structured_outputs: Option<StructuredOutputs>,
    guided_json: Option<Value>,
    guided_regex: Option<String>,
    guided_choice: Option<Vec<String>>,
    guided_grammar: Option<String>,
    guided_decoding_backend: Option<String>,
    guided_whitespace_pattern: Option<String>,
}

/// `stream_options`.
#[derive(Debug, Default, Deserialize)]
pub struct StreamOptions {
    /// A chunk with the token counts comes last.
    pub include_usage: Option<bool>,
    /// Every chunk carries the counts so far.
    pub continuous_usage_stats: Option<bool>,
}

/// One stop string or several.
#[derive(Debug)]
struct Stop(Vec<String>);

impl<'de> Deserialize<'de> for Stop {
    fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Stop;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string or a list of strings")
            }
            fn visit_str<E>(self, text: &str) -> Result<Stop, E> {
                Ok(Stop(vec![text.to_owned()]))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> Result<Stop, A::Error> {
                let mut strings = Vec::new();
                while let Some(text) = list.next_element()? {
                    strings.push(text);
                }
                Ok(Stop(strings))
            }
        }
        source.deserialize_any(Visitor)
    }
}

/// The parts of an engine request that the routes themselves decide.
#[derive(Debug)]
pub struct RouteParts {
    /// Names the request.
    pub id: String,
    /// Who asks.
    pub tenant: String,
    /// Most tokens; `None`: what the length limit leaves.
    pub max_tokens: Option<u32>,
    /// Alternatives per generated token.
    pub logprobs: Option<u32>,
    /// Alternatives per prompt token.
    pub prompt_logprobs: Option<u32>,
}

impl SharedFields {
    /// Choices per prompt.
    ///
    /// # Errors
    /// Out of range.
    pub fn choices(&self) -> Result<u32, Refusal> {
        Ok(whole("n", self.n.unwrap_or(1), 1, CHOICES_MAX)? as u32)
    }

    /// Those that say what the answer must obey.
    pub fn structured(&self) -> StructuredFields<'_> {
        StructuredFields {
            response_format: self.response_format.as_ref(),
            structured_outputs: self.structured_outputs.as_ref(),
            guided_json: self.guided_json.as_ref(),
            guided_regex: self.guided_regex.as_deref(),
            guided_choice: self.guided_choice.as_deref(),
            guided_grammar: self.guided_grammar.as_deref(),
            guided_decoding_backend: self.guided_decoding_backend.as_deref(),
            guided_whitespace_pattern: self.guided_whitespace_pattern.as_deref(),
        }
    }

    /// Checks that the request means a model that is served here.
    ///
    /// # Errors
    /// 404 naming the model.
    pub fn check_model(&self, serving: &Serving) -> Result<(), Refusal> {
        match &self.model {
            Some(name) if GENERIC_MODELS.contains(&name.as_str()) => Ok(()),
            Some(name) if !serving.model.names.contains(name) => Err(Refusal::no_such_model(name)),
            _ => Ok(()),
        }
    }

    /// Whether to stream, and with which counts.
    ///
    /// # Errors
    /// `stream_options` without `stream`.
    pub fn streaming(&self) -> Result<Option<UsageInStream>, Refusal> {
        let stream = self.stream.unwrap_or(false);
        if self.stream_options.is_some() && !stream {
            return Err(Refusal::invalid(
                "stream_options",
                "stream_options can only be set when stream is true",
            ));
        }
        let options = self.stream_options.as_ref();
        let at_end = options.and_then(|o| o.include_usage).unwrap_or(false);
        let always = options
            .and_then(|o| o.continuous_usage_stats)
            .unwrap_or(false);
        Ok(stream.then_some(UsageInStream {
            at_end,
            always: at_end && always,
        }))
    }

    /// The engine request for one prompt.
    ///
    /// # Errors
    /// A field out of range, by name.
    pub fn request(
        &self,
        prompt: Prompt,
        parts: &RouteParts,
        serving: &Serving,
    ) -> Result<GenerateRequest, Refusal> {
        let stop = self.stop_rules(serving)?;
        if let Some(max) = parts.max_tokens
            && stop.min_tokens > max
        {
            return Err(Refusal::invalid(
                "min_tokens",
                format!(
                    "min_tokens must be at most max_tokens = {max}, got {}",
                    stop.min_tokens
                ),
            ));
        }
        Ok(GenerateRequest {
            id: parts.id.clone(),
            prompt,
            truncate: self.truncate(parts.max_tokens, serving)?,
            choices: self.choices()?,
            sampling: self.sampling(serving)?,
            constraint: None,
            stop,
            max_tokens: parts.max_tokens,
            logprobs: parts.logprobs,
            prompt_logprobs: parts.prompt_logprobs,
            skip_special_tokens: self.skip_special_tokens.unwrap_or(true),
            cache_salt: self.cache_salt()?,
            tenant: parts.tenant.clone(),
            priority: whole(
                "priority",
                self.priority.unwrap_or(0),
                i32::MIN.into(),
                i32::MAX.into(),
            )? as i32,
            timeout: None,
        })
    }

    fn sampling(&self, serving: &Serving) -> Result<SamplingParams, Refusal> {
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

    fn stop_rules(&self, serving: &Serving) -> Result<StopRules, Refusal> {
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

    /// How many of the prompt's tokens are kept. -1 means as many as leave room for the output, as with vLLM.
    ///
    /// # Errors
    /// Out of range.
    pub fn truncate(
        &self,
        max_tokens: Option<u32>,
        serving: &Serving,
    ) -> Result<Option<u32>, Refusal> {
        match self.truncate_prompt_tokens {
            None => Ok(None),
            Some(-1) => {
                let room = serving.model.max_model_len;
                Ok(Some(room.saturating_sub(max_tokens.unwrap_or(1)).max(1)))
            }
            Some(count) => Ok(Some(
                whole("truncate_prompt_tokens", count, 1, u32::MAX.into())? as u32,
            )),
        }
    }

    fn cache_salt(&self) -> Result<String, Refusal> {
        let salt = self.cache_salt.clone().unwrap_or_default();
        if salt.chars().count() > CACHE_SALT_CHARS_MAX {
            return Err(Refusal::invalid(
                "cache_salt",
                format!("cache_salt must have at most {CACHE_SALT_CHARS_MAX} characters"),
            ));
        }
        Ok(salt)
    }
}

/// Token counts inside a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageInStream {
    /// In a chunk of their own at the end.
    pub at_end: bool,
    /// In every chunk.
    pub always: bool,
}

/// A token id of the model.
///
/// # Errors
/// Negative, too large, or an id without a token.
pub fn token_id(field: &str, id: i64, serving: &Serving) -> Result<TokenId, Refusal> {
    let limit = serving.text.vocab_size();
    let known = u32::try_from(id).ok().filter(|&id| id < limit).map(TokenId);
    known
        .filter(|&id| serving.text.token_text(id).is_some())
        .ok_or_else(|| {
            Refusal::invalid(
                field,
                format!(
                    "{field}: {id} is no token id of this model (0 to {})",
                    limit.saturating_sub(1)
                ),
            )
        })
}

/// A whole number from `low` to `high`.
///
/// # Errors
/// Outside.
pub fn whole(field: &str, value: i64, low: i64, high: i64) -> Result<i64, Refusal> {
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    let expected = match high {
        high if high >= i64::from(i32::MAX) => format!("at least {low}"),
        high => format!("from {low} to {high}"),
    };
    Err(Refusal::invalid(
        field,
        format!("{field} must be {expected}, got {value}"),
    ))
}

fn within(field: &str, value: f32, low: f32, high: f32) -> Result<f32, Refusal> {
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    Err(Refusal::invalid(
        field,
        format!("{field} must be from {low} to {high}, got {value}"),
    ))
}

/// A probability above 0.
fn share(field: &str, value: f32) -> Result<f32, Refusal> {
    if value > 0.0 && value <= 1.0 {
        return Ok(value);
    }
    Err(Refusal::invalid(
        field,
        format!("{field} must be greater than 0 and at most 1, got {value}"),
    ))
}
