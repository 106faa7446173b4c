//! The parameters that MindIE's own routes and the Triton-style ones share: fields, defaults, ranges. Not here: prompts and answers.

use super::Received;
use crate::http::json::{finite, object};
use crate::http::refusal::Refusal;
use crate::http::{request_id, submit};
use actix_web::HttpRequest;
use ropeteam_engine::request::{GenerateRequest, Prompt, StopRules};
use ropeteam_engine::sampling::SamplingParams;
use serde::Deserialize;
use std::time::Duration;

/// Tokens generated unless a request says otherwise.
const MAX_NEW_TOKENS: u32 = 20;
/// Least urgent, and the default.
const PRIORITY_MAX: i32 = 5;
/// Longest time of a request, in seconds.
const TIMEOUT_MAX: u64 = 65_535;

/// `parameters`.
#[derive(Debug, Default, Deserialize)]
pub struct Parameters {
    #[serde(default, deserialize_with = "finite")]
    temperature: Option<f32>,
    top_k: Option<i64>,
    #[serde(default, deserialize_with = "finite")]
    top_p: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    typical_p: Option<f32>,
    do_sample: Option<bool>,
    seed: Option<u64>,
    #[serde(default, deserialize_with = "finite")]
    repetition_penalty: Option<f32>,
    max_new_tokens: Option<i64>,
    priority: Option<i64>,
    timeout: Option<u64>,
    details: Option<bool>,
    /// Not the original's, but what load tests send.
    ignore_eos: Option<bool>,
    batch_size: Option<i64>,
    watermark: Option<bool>,
    perf_stat: Option<bool>,
}

/// `parameters` of a body: absent, `null` or an object.
///
/// # Errors
/// When it is something else, or does not fit.
pub fn or_default<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Parameters, D::Error> {
    Ok(object::<D, Parameters>(source)?.unwrap_or_default())
}

/// In what the routes differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// `top_k` is at least 1, `top_p` below 1.
    Own,
    /// `top_k` of 0 and `top_p` of 1 are allowed and mean none.
    Triton,
}

/// What a route asks of the engine.
#[derive(Debug)]
pub struct Wish {
    pub prompt: Prompt,
    pub max_new_tokens: u32,
    pub sampling: SamplingParams,
    pub priority: i32,
    pub timeout: Option<Duration>,
    pub ignore_eos: bool,
}

impl Parameters {
    /// Whether details are wanted.
    pub fn wants_details(&self) -> bool {
        self.details.unwrap_or(false)
    }

    /// Whether tokens are drawn: as told, else when anything says how to draw.
    pub fn samples(&self) -> bool {
        self.do_sample.unwrap_or(
            self.temperature.is_some()
                || self.top_k.is_some()
                || self.top_p.is_some()
                || self.typical_p.is_some(),
        )
    }

    /// What they ask for, with `prompt`.
    ///
    /// # Errors
    /// The first field out of range, or one that asks for what is not offered.
    pub fn wish(&self, ranges: Ranges, prompt: Prompt) -> Result<Wish, Refusal> {
        self.check_offered()?;
        let priority = whole("priority", self.priority, 1, i64::from(PRIORITY_MAX))?;
        let timeout = self.timeout.map(|seconds| match seconds {
            1..=TIMEOUT_MAX => Ok(Duration::from_secs(seconds)),
            _ => Err(wrong(
                "timeout",
                &format!("must be from 1 to {TIMEOUT_MAX} seconds, got {seconds}"),
            )),
        });
        Ok(Wish {
            max_new_tokens: whole(
                "max_new_tokens",
                self.max_new_tokens,
                1,
                i64::from(i32::MAX),
            )?
            .map_or(MAX_NEW_TOKENS, |count| count as u32),
            sampling: self.sampling(ranges)?,
            priority: priority.map_or(0, |priority| priority as i32 - PRIORITY_MAX),
            timeout: timeout.transpose()?,
            ignore_eos: self.ignore_eos.unwrap_or(false),
            prompt,
        })
    }

    fn check_offered(&self) -> Result<(), Refusal> {
        for (field, asked) in [("watermark", self.watermark), ("perf_stat", self.perf_stat)] {
            if asked == Some(true) {
                return Err(Refusal::not_offered(field));
            }
        }
        whole("batch_size", self.batch_size, 1, 1).map(drop)
    }

    fn sampling(&self, ranges: Ranges) -> Result<SamplingParams, Refusal> {
        let triton = ranges == Ranges::Triton;
        let temperature = positive("temperature", self.temperature)?;
        let top_k = whole("top_k", self.top_k, i64::from(!triton), i64::from(i32::MAX))?;
        Ok(SamplingParams {
            temperature: if self.samples() { temperature } else { 0.0 },
            top_k: top_k.unwrap_or(0) as u32,
            top_p: share("top_p", self.top_p, triton)?,
            typical_p: share("typical_p", self.typical_p, true)?,
            repetition_penalty: positive("repetition_penalty", self.repetition_penalty)?,
            seed: self.seed.unwrap_or_else(rand::random),
            ..SamplingParams::default()
        })
    }
}

impl Wish {
    /// The engine request.
    pub fn engine_request(self, request: &HttpRequest, received: &Received<'_>) -> GenerateRequest {
        GenerateRequest {
            id: submit::engine_id(&request_id::of(request)),
            prompt: self.prompt,
            truncate: None,
            choices: 1,
            sampling: self.sampling,
            constraint: None,
            stop: StopRules {
                ignore_eos: self.ignore_eos,
                ..StopRules::default()
            },
            max_tokens: Some(self.max_new_tokens),
            logprobs: None,
            prompt_logprobs: None,
            pooling: None,
            skip_special_tokens: true,
            cache_salt: String::new(),
            tenant: received.tenant.clone(),
            priority: self.priority,
            timeout: self.timeout,
        }
    }
}

/// `field` is wrong, in the original's way of saying it.
pub fn wrong(field: &str, what: &str) -> Refusal {
    Refusal::invalid(field, format!("Parameter {field} {what}"))
}

/// A whole number within `from..=to`.
///
/// # Errors
/// When it is not.
pub fn whole(field: &str, value: Option<i64>, from: i64, to: i64) -> Result<Option<i64>, Refusal> {
    match value {
        Some(value) if value < from || value > to => {
            let what = format!("must be in [{from}, {to}], got {value}");
            Err(wrong(field, &what))
        }
        value => Ok(value),
    }
}

fn positive(field: &str, value: Option<f32>) -> Result<f32, Refusal> {
    match value {
        Some(value) if value <= 0.0 => {
            let what = format!("must be greater than 0.0, got {value}");
            Err(wrong(field, &what))
        }
        value => Ok(value.unwrap_or(1.0)),
    }
}

/// A number above 0 and below 1, with 1 itself if `closed`; 1 when absent.
pub fn share(field: &str, value: Option<f32>, closed: bool) -> Result<f32, Refusal> {
    let end = if closed { ']' } else { ')' };
    match value {
        Some(value) if value <= 0.0 || value > 1.0 || (value == 1.0 && !closed) => {
            let what = format!("must be in (0.0, 1.0{end}, got {value}");
            Err(wrong(field, &what))
        }
        value => Ok(value.unwrap_or(1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(parameters: &str, ranges: Ranges) -> Result<Wish, String> {
        let parameters: Parameters = serde_json::from_str(parameters).expect("parameters");
        parameters
            .wish(ranges, Prompt::Ids(Vec::new()))
            .map_err(|refusal| refusal.message)
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        for (parameters, words) in [
            (r#"{"temperature":0}"#, "temperature must be greater than"),
            (r#"{"top_k":0}"#, "top_k must be in [1, 2147483647], got 0"),
            (r#"{"top_p":1.0}"#, "top_p must be in (0.0, 1.0), got 1"),
            (r#"{"typical_p":1.5}"#, "typical_p must be in (0.0, 1.0]"),
            (r#"{"repetition_penalty":0}"#, "repetition_penalty must be"),
            (r#"{"priority":6}"#, "priority must be in [1, 5], got 6"),
            (r#"{"timeout":0}"#, "timeout must be from 1 to 65535"),
            (r#"{"max_new_tokens":0}"#, "max_new_tokens must be in [1,"),
            (r#"{"batch_size":2}"#, "batch_size must be in [1, 1], got 2"),
            (r#"{"watermark":true}"#, "`watermark` is not supported"),
            (r#"{"perf_stat":true}"#, "`perf_stat` is not supported"),
        ] {
            let error = wish(parameters, Ranges::Own).expect_err(parameters);
            assert!(error.contains(words), "{error}");
        }
        assert!(wish(r#"{"top_k":0,"top_p":1.0}"#, Ranges::Triton).is_ok());
        assert!(wish(r#"{"top_k":-1}"#, Ranges::Triton).is_err());
    }

    #[test]
    fn defaults_and_priorities_are_the_originals() {
        let plain = wish("{}", Ranges::Own).expect("a wish");
        assert_eq!((plain.max_new_tokens, plain.priority), (20, 0));
        assert_eq!(plain.sampling.temperature, 0.0);
        let urgent = wish(r#"{"priority":1,"timeout":2}"#, Ranges::Own);
        let urgent = urgent.expect("a wish");
        assert!(urgent.priority < plain.priority);
        assert_eq!(urgent.timeout, Some(Duration::from_secs(2)));
    }

    #[test]
    fn what_is_told_wins_over_what_is_implied() {
        let drawn = |parameters| wish(parameters, Ranges::Own).expect("a wish");
        assert!(drawn(r#"{"top_p":0.5}"#).sampling.temperature > 0.0);
        let greedy = drawn(r#"{"top_p":0.5,"do_sample":false}"#);
        assert_eq!(greedy.sampling.temperature, 0.0);
    }
}
