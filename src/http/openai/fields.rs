//! The request fields that chat and text completions share, and their way into the engine's terms. Ranges as OpenAI and vLLM have them.
//! One check of vLLM's is left out: `n` above 1 with temperature 0 is served, with the same text in every choice.
//! Not here: how the next token is chosen and when to stop (`sampling.rs`), fields of one route only (`chat.rs`, `completions.rs`), those
//! that are refused (`unoffered.rs`).

use super::checks::whole;
use super::structured::{ResponseFormat, StructuredFields, StructuredOutputs};
use crate::http::json::{finite, object};
use crate::http::refusal::Refusal;
use crate::http::request_id;
use crate::http::state::Serving;
use actix_web::HttpRequest;
use ropeteam_engine::request::{GenerateRequest, Prompt, Truncation, TruncationSide};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Most choices per prompt.
const CHOICES_MAX: i64 = 128;
/// Most alternatives per token.
pub const TOP_LOGPROBS_MAX: i64 = 20;
/// Most tokens that log-probabilities may be asked for by name, as with vLLM.
const LOGPROB_TOKENS_MAX: usize = 128;
/// Names that mean whatever is served: TGI's own, and what `huggingface_hub` sends to a server that it knows by address only.
const GENERIC_MODELS: &[&str] = &["tgi", "dummy"];
/// In the same place npm's `@huggingface/inference` sends the address itself.
const ADDRESSES: &[&str] = &["http://", "https://"];
/// Longest cache salt.
const CACHE_SALT_CHARS_MAX: usize = 128;

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
    pub(super) temperature: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    pub(super) top_p: Option<f32>,
    pub(super) top_k: Option<i64>,
    #[serde(default, deserialize_with = "finite")]
    pub(super) min_p: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    pub(super) typical_p: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    pub(super) repetition_penalty: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    pub(super) frequency_penalty: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    pub(super) presence_penalty: Option<f32>,
    pub(super) logit_bias: Option<BTreeMap<String, f64>>,
    pub(super) seed: Option<i64>,
    pub(super) stop: Option<Stop>,
    pub(super) stop_token_ids: Option<Vec<i64>>,
    pub(super) include_stop_str_in_output: Option<bool>,
    pub(super) ignore_eos: Option<bool>,
    pub(super) min_tokens: Option<i64>,
    skip_special_tokens: Option<bool>,
    truncate_prompt_tokens: Option<i64>,
    truncation_side: Option<TruncationSide>,
    /// Let the tokenizer add its begin token.
    pub add_special_tokens: Option<bool>,
    priority: Option<i64>,
    cache_salt: Option<String>,
    request_id: Option<String>,
    prompt_logprobs: Option<i64>,
    pub(super) logprob_token_ids: Option<Vec<i64>>,
    return_token_ids: Option<bool>,
    return_tokens_as_token_ids: Option<bool>,
    pub(super) bad_words: Option<Vec<String>>,
    pub(super) allowed_token_ids: Option<Vec<i64>>,
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
pub struct Stop(pub Vec<String>);

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

    /// Alternatives per prompt token, when its log-probabilities are wanted. They cannot be streamed.
    ///
    /// # Errors
    /// Out of range, or beside `stream`.
    pub fn prompt_logprobs(&self) -> Result<Option<u32>, Refusal> {
        let field = "prompt_logprobs";
        let Some(top) = self.prompt_logprobs else {
            return Ok(None);
        };
        if self.stream == Some(true) {
            let message = "prompt_logprobs cannot be used when stream is true";
            return Err(Refusal::invalid(field, message));
        }
        Ok(Some(whole(field, top, 0, TOP_LOGPROBS_MAX)? as u32))
    }

    /// How many tokens each generated one shows log-probabilities of: itself and those of `logprob_token_ids`, where they stand, in place
    /// of the `top` best.
    ///
    /// # Errors
    /// `logprob_token_ids` where no log-probabilities are wanted, or too many.
    pub fn logprobs_shown(&self, top: Option<u32>) -> Result<Option<u32>, Refusal> {
        let field = "logprob_token_ids";
        match (self.logprob_token_ids.as_deref().unwrap_or(&[]), top) {
            ([], top) => Ok(top),
            (_, None) => Err(Refusal::invalid(
                field,
                "logprob_token_ids needs logprobs to be asked for",
            )),
            (ids, _) if ids.len() > LOGPROB_TOKENS_MAX => Err(Refusal::invalid(
                field,
                format!(
                    "logprob_token_ids must hold at most {LOGPROB_TOKENS_MAX} token ids, got {}",
                    ids.len()
                ),
            )),
            (ids, Some(_)) => Ok(Some(ids.len() as u32 + 1)),
        }
    }

    /// What answers show beside texts.
    pub fn shown(&self) -> Shown {
        Shown {
            token_ids: self.return_token_ids.unwrap_or(false),
            names_are_ids: self.return_tokens_as_token_ids.unwrap_or(false),
        }
    }

    /// The name of the request: the client's header, or else the field `request_id`, or else one made up.
    ///
    /// # Errors
    /// A name that can stand in no header.
    pub fn id(&self, request: &HttpRequest) -> Result<String, Refusal> {
        match &self.request_id {
            Some(id) => request_id::or_named(request, id),
            None => Ok(request_id::of(request)),
        }
    }

    /// Checks that the request means a model that is served here.
    ///
    /// # Errors
    /// 404 naming the model.
    pub fn check_model(&self, serving: &Serving) -> Result<(), Refusal> {
        check_model(self.model.as_deref(), serving)
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
            pooling: None,
            skip_special_tokens: self.skip_special_tokens.unwrap_or(true),
            cache_salt: cache_salt(self.cache_salt.as_deref())?,
            tenant: parts.tenant.clone(),
            priority: priority(self.priority)?,
            timeout: None,
        })
    }

    /// How the prompt is cut: `truncate` of this file.
    ///
    /// # Errors
    /// Out of range.
    pub fn truncate(
        &self,
        max_tokens: Option<u32>,
        serving: &Serving,
    ) -> Result<Option<Truncation>, Refusal> {
        let side = self.truncation_side.unwrap_or_default();
        truncate((self.truncate_prompt_tokens, side), max_tokens, serving)
    }
}

/// How a prompt is cut to the tokens asked for, and at which end. -1 means as many as leave room for the output, as with vLLM.
///
/// # Errors
/// Out of range.
pub fn truncate(
    (asked, side): (Option<i64>, TruncationSide),
    max_tokens: Option<u32>,
    serving: &Serving,
) -> Result<Option<Truncation>, Refusal> {
    let keep = match asked {
        None => return Ok(None),
        Some(-1) => {
            let room = serving.model.max_model_len;
            room.saturating_sub(max_tokens.unwrap_or(1)).max(1)
        }
        Some(count) => whole("truncate_prompt_tokens", count, 1, u32::MAX.into())? as u32,
    };
    Ok(Some(Truncation { keep, side }))
}

/// A salt of the prefix cache; none is the common one.
///
/// # Errors
/// Too long.
pub fn cache_salt(asked: Option<&str>) -> Result<String, Refusal> {
    let salt = asked.unwrap_or_default();
    if salt.chars().count() > CACHE_SALT_CHARS_MAX {
        return Err(Refusal::invalid(
            "cache_salt",
            format!("cache_salt must have at most {CACHE_SALT_CHARS_MAX} characters"),
        ));
    }
    Ok(salt.to_owned())
}

/// A priority; lower is served earlier.
///
/// # Errors
/// Out of range.
pub fn priority(asked: Option<i64>) -> Result<i32, Refusal> {
    let (low, high) = (i32::MIN.into(), i32::MAX.into());
    Ok(whole("priority", asked.unwrap_or(0), low, high)? as i32)
}

/// Checks that a name means a model that is served here; none means any.
///
/// # Errors
/// 404 naming the model.
pub fn check_model(name: Option<&str>, serving: &Serving) -> Result<(), Refusal> {
    match name {
        Some(name) if GENERIC_MODELS.contains(&name) => Ok(()),
        Some(name) if ADDRESSES.iter().any(|start| name.starts_with(start)) => Ok(()),
        Some(name) if !serving.model.names.iter().any(|known| known == name) => {
            Err(Refusal::no_such_model(name))
        }
        _ => Ok(()),
    }
}

/// What answers show beside texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The ids of prompt and output.
    pub token_ids: bool,
    /// Tokens are named by their ids in log-probabilities.
    pub names_are_ids: bool,
}

/// Token counts inside a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageInStream {
    /// In a chunk of their own at the end.
    pub at_end: bool,
    /// In every chunk.
    pub always: bool,
}
