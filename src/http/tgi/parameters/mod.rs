//! The TGI request: fields, defaults, ranges and the original's error texts, checked in its order. Not here: running it (`generate.rs`).

use super::Version;
use super::grammar::Grammar;
use crate::http::grammar::Asked;
use crate::http::json::{asks_for_nothing, finite, object};
use crate::http::refusal::{Kind, Refusal, TokenCount};
use crate::http::state::{AppState, Serving};
use ropeteam_engine::request::{GenerateRequest, Prompt, StopRules, Truncation, TruncationSide};
use ropeteam_engine::sampling::SamplingParams;
use serde::Deserialize;
use serde_json::Value;

/// The original's default.
pub const MAX_NEW_TOKENS: u32 = 20;
/// Most tokens shown beside each one.
const TOP_N_TOKENS_MAX: u32 = 5;

/// Known fields that are not offered, each with the JSON values that ask for nothing (`null` always is one).
const NOT_OFFERED: &[(&str, &[&str])] = &[
    ("parameters.watermark", &["false"]),
    ("parameters.adapter_id", &[]),
    ("parameters.prompt_logprobs", &[]),
    ("parameters.timeout", &[]),
];

/// The body of the generation routes.
#[derive(Debug, Deserialize)]
pub struct Request {
    /// The prompt.
    pub inputs: String,
    /// How to go on from it.
    #[serde(default = "Parameters::omitted", deserialize_with = "or_default")]
    pub parameters: Parameters,
    /// Only read on `/`.
    pub stream: Option<bool>,
}

/// `parameters`.
#[derive(Debug, Default, Deserialize)]
pub struct Parameters {
    pub best_of: Option<u32>,
    #[serde(default, deserialize_with = "finite")]
    pub temperature: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    repetition_penalty: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    frequency_penalty: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    presence_penalty: Option<f32>,
    top_k: Option<i32>,
    #[serde(default, deserialize_with = "finite")]
    top_p: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    typical_p: Option<f32>,
    do_sample: Option<bool>,
    max_new_tokens: Option<u32>,
    /// The prompt stands before the text.
    pub return_full_text: Option<bool>,
    stop: Option<Vec<String>>,
    truncate: Option<usize>,
    details: Option<bool>,
    /// Details of the prompt's tokens too.
    pub decoder_input_details: Option<bool>,
    seed: Option<u64>,
    ignore_eos: Option<bool>,
    /// What the output must obey.
    #[serde(default, deserialize_with = "object")]
    grammar: Option<Grammar>,
    priority: Option<i32>,
    /// So many best tokens are shown beside each one.
    top_n_tokens: Option<u32>,
    /// There are no parameters at all.
    #[serde(skip)]
    omitted: bool,
}

impl Parameters {
    fn omitted() -> Self {
        Parameters {
            omitted: true,
            ..Parameters::default()
        }
    }
}

fn or_default<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Parameters, D::Error> {
    Ok(object::<D, Parameters>(source)?.unwrap_or_else(Parameters::omitted))
}

/// Goes through the fields that no type knew. Returns those that nobody knows.
///
/// # Errors
/// The first field that asks for something not offered.
pub fn check_unknown(body: &[u8], ignored: Vec<String>) -> Result<Vec<String>, Refusal> {
    let mut unknown = Vec::new();
    for path in ignored {
        let Some((_, neutral)) = NOT_OFFERED.iter().find(|(name, _)| *name == path) else {
            unknown.push(path);
            continue;
        };
        let harmless = |value: &Value| neutral.contains(&value.to_string().as_str());
        if !asks_for_nothing(body, &path, harmless) {
            let field = path.trim_start_matches("parameters.");
            return Err(Refusal::not_offered(field));
        }
    }
    Ok(unknown)
}

/// What identifies the request to the engine.
#[derive(Debug)]
pub struct Caller {
    /// Names the request.
    pub id: String,
    /// Who asks.
    pub tenant: String,
}

impl Request {
    /// Whether `details` are wanted; those of the prompt imply the others.
    pub fn wants_details(&self) -> bool {
        self.parameters.details.unwrap_or(false) || self.wants_prefill()
    }

    /// Whether details of the prompt's tokens are wanted.
    pub fn wants_prefill(&self) -> bool {
        self.parameters.decoder_input_details.unwrap_or(false)
    }

    /// Most tokens to generate; `None`: as many as the length limit leaves, which later versions have for a default.
    pub fn max_new_tokens(&self, version: Version) -> Option<u32> {
        match version {
            Version::Later => self.parameters.max_new_tokens,
            _ => Some(self.parameters.max_new_tokens.unwrap_or(MAX_NEW_TOKENS)),
        }
    }

    /// How many best tokens are shown beside each one.
    pub fn top_n_tokens(&self) -> u32 {
        self.parameters.top_n_tokens.unwrap_or(0)
    }

    /// What the output must obey.
    ///
    /// # Errors
    /// An unknown type, or a value that does not fit it.
    pub fn grammar(&self) -> Result<Option<Asked>, Refusal> {
        let grammar = self.parameters.grammar.as_ref();
        grammar.map(Grammar::asked).transpose()
    }

    /// Stop sequences.
    pub fn stops(&self) -> &[String] {
        self.parameters.stop.as_deref().unwrap_or(&[])
    }

    /// Whether tokens are drawn: the original's token chooser draws when told to, and also when any warper is on. Later versions draw for a
    /// request without any parameters.
    pub fn samples(&self, version: Version) -> bool {
        let p = &self.parameters;
        p.do_sample
            .unwrap_or(p.omitted && version == Version::Later)
            || p.temperature.is_some_and(|t| t != 1.0)
            || p.top_k.is_some()
            || p.top_p.is_some()
            || p.typical_p.is_some()
    }

    /// What a stream cannot carry.
    ///
    /// # Errors
    /// The original's texts.
    pub fn check_streamable(&self) -> Result<(), Refusal> {
        if self.parameters.best_of.unwrap_or(1) != 1 {
            return wrong(
                "best_of",
                "`best_of` != 1 is not supported when streaming tokens",
            );
        }
        if self.wants_prefill() {
            return wrong(
                "decoder_input_details",
                "`decoder_input_details` == true is not supported when streaming tokens",
            );
        }
        Ok(())
    }

    /// The engine request.
    ///
    /// # Errors
    /// The first field out of range, in the original's order and words.
    pub fn engine_request(
        &self,
        caller: Caller,
        logprobs: Option<u32>,
        state: &AppState,
        serving: &Serving,
    ) -> Result<GenerateRequest, Refusal> {
        let version = state.limits.tgi_version;
        let best_of = self.best_of(state)?;
        let sampling = self.sampling(best_of, version)?;
        let top_n = self.checked_top_n()?;
        let logprobs = logprobs.map(|least| least.max(top_n));
        let stop = self.stop_rules(state)?;
        if self.inputs.is_empty() {
            return wrong("inputs", "`inputs` cannot be empty");
        }
        Ok(GenerateRequest {
            id: caller.id,
            prompt: Prompt::Text {
                text: self.inputs.clone(),
                add_special_tokens: true,
            },
            truncate: self.truncate(serving)?,
            choices: best_of,
            sampling,
            constraint: None,
            stop,
            max_tokens: self.max_new_tokens(version),
            logprobs: if best_of > 1 {
                logprobs.or(Some(0))
            } else {
                logprobs
            },
            prompt_logprobs: self.wants_prefill().then_some(0),
            pooling: None,
            skip_special_tokens: true,
            cache_salt: String::new(),
            tenant: caller.tenant,
            priority: self.parameters.priority.unwrap_or(0),
            timeout: None,
        })
    }

    fn best_of(&self, state: &AppState) -> Result<u32, Refusal> {
        let p = &self.parameters;
        let Some(best_of) = p.best_of else {
            return Ok(1);
        };
        let most = state.limits.max_best_of;
        if best_of == 0 || best_of > most {
            return wrong(
                "best_of",
                format!("`best_of` must be > 0 and <= {most}. Given: {best_of}"),
            );
        }
        let sampling = p.do_sample.unwrap_or(false)
            || p.temperature.is_some()
            || p.top_k.is_some()
            || p.top_p.is_some()
            || p.typical_p.is_some();
        if best_of > 1 && !sampling {
            return wrong("best_of", "you must use sampling when `best_of` is > 1");
        }
        Ok(best_of)
    }

    fn checked_top_n(&self) -> Result<u32, Refusal> {
        match self.top_n_tokens() {
            given if given > TOP_N_TOKENS_MAX => wrong(
                "top_n_tokens",
                format!("`top_n_tokens` must be >= 0 and <= {TOP_N_TOKENS_MAX}. Given: {given}"),
            ),
            given => Ok(given),
        }
    }

    fn sampling(&self, best_of: u32, version: Version) -> Result<SamplingParams, Refusal> {
        let p = &self.parameters;
        let temperature = positive("temperature", p.temperature)?;
        let repetition_penalty = positive("repetition_penalty", p.repetition_penalty)?;
        let top_p = match p.top_p {
            // MindIE takes what TGI refuses.
            Some(1.0) if version == Version::MindIe => 1.0,
            given => share("top_p", given)?,
        };
        let typical_p = share("typical_p", p.typical_p)?;
        let top_k = match p.top_k {
            Some(k) if k <= 0 => return wrong("top_k", "`top_k` must be strictly positive"),
            k => k.unwrap_or(0) as u32,
        };
        if p.max_new_tokens == Some(0) {
            return wrong(
                "max_new_tokens",
                "`max_new_tokens` must be strictly positive",
            );
        }
        if best_of > 1 && p.seed.is_some() {
            return wrong("seed", "`seed` must not be set when `best_of` > 1");
        }
        Ok(SamplingParams {
            temperature: if self.samples(version) {
                temperature
            } else {
                0.0
            },
            top_k,
            top_p,
            typical_p,
            repetition_penalty,
            frequency_penalty: penalty("frequency_penalty", p.frequency_penalty)?,
            presence_penalty: penalty("presence_penalty", p.presence_penalty)?,
            seed: p.seed.unwrap_or_else(rand::random),
            ..SamplingParams::default()
        })
    }

    fn stop_rules(&self, state: &AppState) -> Result<StopRules, Refusal> {
        let most = state.limits.max_stop_sequences;
        let stops = self.stops();
        if stops.len() > most {
            return wrong(
                "stop",
                format!(
                    "`stop` supports up to {most} stop sequences. Given: {}",
                    stops.len()
                ),
            );
        }
        if stops.iter().any(String::is_empty) {
            return wrong("stop", "`stop` must not hold an empty sequence");
        }
        Ok(StopRules {
            strings: stops.to_vec(),
            include_stop_string: true,
            ignore_eos: self.parameters.ignore_eos.unwrap_or(false),
            ..StopRules::default()
        })
    }

    fn truncate(&self, serving: &Serving) -> Result<Option<Truncation>, Refusal> {
        let longest = serving.model.max_input_len as usize;
        match self.parameters.truncate {
            Some(count) if count == 0 || count > longest => wrong(
                "truncate",
                format!(
                    "`truncate` must be strictly positive and less than {longest}. Given: {count}"
                ),
            ),
            count => Ok(count.map(|count| Truncation {
                keep: count as u32,
                side: TruncationSide::Left,
            })),
        }
    }

    /// A refusal for too many tokens in the original's words.
    pub fn in_tgi_words(&self, refusal: Refusal) -> Refusal {
        let Some(TokenCount {
            given,
            limit,
            with_output,
        }) = refusal.tokens
        else {
            return refusal;
        };
        let message = if with_output {
            let new = self.parameters.max_new_tokens.unwrap_or(MAX_NEW_TOKENS);
            let inputs = given.saturating_sub(new as usize);
            format!(
                "`inputs` tokens + `max_new_tokens` must be <= {limit}. Given: {inputs} `inputs` tokens and {new} `max_new_tokens`"
            )
        } else {
            format!("`inputs` must have less than {limit} tokens. Given: {given}")
        };
        Refusal {
            message,
            field: Some("inputs".into()),
            ..refusal
        }
    }
}

fn wrong<T>(field: &str, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal {
        field: Some(field.to_owned()),
        ..Refusal::new(Kind::Invalid, message)
    })
}

fn positive(field: &str, value: Option<f32>) -> Result<f32, Refusal> {
    match value {
        Some(value) if value <= 0.0 => wrong(field, format!("`{field}` must be strictly positive")),
        value => Ok(value.unwrap_or(1.0)),
    }
}

fn share(field: &str, value: Option<f32>) -> Result<f32, Refusal> {
    match value {
        Some(value) if value <= 0.0 || value >= 1.0 => {
            wrong(field, format!("`{field}` must be > 0.0 and < 1.0"))
        }
        value => Ok(value.unwrap_or(1.0)),
    }
}

fn penalty(field: &str, value: Option<f32>) -> Result<f32, Refusal> {
    match value {
        Some(value) if !(-2.0..=2.0).contains(&value) => {
            wrong(field, format!("`{field}` must be >= -2.0 and <= 2.0"))
        }
        value => Ok(value.unwrap_or(0.0)),
    }
}

#[cfg(test)]
mod tests;
