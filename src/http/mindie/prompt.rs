//! `POST /generate` with a `prompt`: vLLM's first API as of 0.2.6. A whole answer holds prompt and output together; a stream is one JSON
//! object after the other, each behind it a zero byte, with what is new of every choice.

use super::error::{self, Body as ErrorBody};
use super::parameters::{share, whole, wrong};
use crate::http::json::{asks_for_nothing, finite, parse};
use crate::http::refusal::Refusal;
use crate::http::request_log::LogLine;
use crate::http::sse::FrameWriter;
use crate::http::state::{AppState, Serving};
use crate::http::{answer, request_id, sse, submit};
use actix_web::web::{Bytes, BytesMut};
use actix_web::{HttpRequest, HttpResponse};
use ropeteam_actors::generation::GenerateEvent;
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::request::{GenerateRequest, Prompt, StopRules};
use ropeteam_engine::sampling::SamplingParams;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Tokens generated unless a request says otherwise.
const MAX_TOKENS: u32 = 16;
/// Most choices.
const BEST_OF_MAX: i64 = 128;

/// Known fields that are not offered, each with the JSON values that ask for nothing (`null` always is one).
const NOT_OFFERED: &[(&str, &[&str])] = &[
    ("use_beam_search", &["false"]),
    ("length_penalty", &["1.0", "1"]),
    ("early_stopping", &["false"]),
    ("logprobs", &[]),
    ("prompt_logprobs", &[]),
    ("logits_processors", &[]),
];

#[derive(Debug, Deserialize)]
struct Body {
    prompt: String,
    max_tokens: Option<i64>,
    #[serde(default, deserialize_with = "finite")]
    temperature: Option<f32>,
    top_k: Option<i64>,
    #[serde(default, deserialize_with = "finite")]
    top_p: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    min_p: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    repetition_penalty: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    presence_penalty: Option<f32>,
    #[serde(default, deserialize_with = "finite")]
    frequency_penalty: Option<f32>,
    seed: Option<u64>,
    stop: Option<Stops>,
    stop_token_ids: Option<Vec<u32>>,
    include_stop_str_in_output: Option<bool>,
    ignore_eos: Option<bool>,
    skip_special_tokens: Option<bool>,
    n: Option<i64>,
    best_of: Option<i64>,
    model: Option<String>,
    stream: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
enum Stops {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct Probe {
    prompt: Option<IgnoredAny>,
}

/// Whether the body of a call of `/generate` is this form: it has a `prompt` that is not null.
pub fn is_asked_in(body: &[u8]) -> bool {
    let object = body.trim_ascii_start().starts_with(b"{");
    object && serde_json::from_slice::<Probe>(body).is_ok_and(|probe| probe.prompt.is_some())
}

/// Answers a call whose body is this form.
pub async fn respond(
    request: &HttpRequest,
    tenant: String,
    bytes: Bytes,
    state: &AppState,
    log: &mut LogLine,
) -> HttpResponse {
    let answer = answered(request, tenant, &bytes, state, log).await;
    answer.unwrap_or_else(|refusal| {
        log.refused(&refusal);
        error::response(&refusal)
    })
}

async fn answered(
    request: &HttpRequest,
    tenant: String,
    bytes: &[u8],
    state: &AppState,
    log: &mut LogLine,
) -> Result<HttpResponse, Refusal> {
    let serving = state.serving()?;
    let parsed = parse::<Body>(bytes)?;
    let ignored = submit::ignored_header(state, &check_unknown(bytes, parsed.ignored)?)?;
    let asked = parsed.value;
    log.prompt(|| asked.prompt.clone());
    asked.check_model(serving)?;
    let shown = asked.shown()?;
    let generate = asked.engine_request(request, tenant, shown)?;
    let one = [generate];
    submit::check_count(serving, &one)?;
    if asked.stream.unwrap_or(false) {
        if one[0].choices != shown {
            return Err(wrong("best_of", "must be the same as n in a stream"));
        }
        let running = submit::start(serving, one.to_vec(), log.take());
        let mut keep_alive = submit::keep_alive(state, serving);
        // A comment would be taken for an object.
        keep_alive.progress = Box::new(|| false);
        return sse::respond(running, Frames { choices: shown }, keep_alive, ignored).await;
    }
    let mut answers = submit::answers(serving, one.to_vec(), log).await?;
    let answer = answers.pop().ok_or_else(answer::incomplete)?;
    let mut best = answer.choices;
    best.sort_by(|a, b| b.mean_logprob().total_cmp(&a.mean_logprob()));
    let text = |choice: &answer::Choice| format!("{}{}", asked.prompt, choice.text);
    Ok(submit::ok(ignored).json(Texts {
        text: best.iter().take(shown as usize).map(text).collect(),
    }))
}

/// Goes through the fields that no type knew. Returns those that nobody knows.
fn check_unknown(body: &[u8], ignored: Vec<String>) -> Result<Vec<String>, Refusal> {
    let mut unknown = Vec::new();
    for path in ignored {
        let Some((field, neutral)) = NOT_OFFERED.iter().find(|(name, _)| *name == path) else {
            unknown.push(path);
            continue;
        };
        let harmless = |value: &Value| neutral.contains(&value.to_string().as_str());
        if !asks_for_nothing(body, &path, harmless) {
            return Err(Refusal::not_offered(field));
        }
    }
    Ok(unknown)
}

impl Body {
    fn check_model(&self, serving: &Serving) -> Result<(), Refusal> {
        match &self.model {
            Some(name) if !serving.model.names.contains(name) => Err(Refusal::no_such_model(name)),
            _ => Ok(()),
        }
    }

    /// How many choices the answer shows.
    fn shown(&self) -> Result<u32, Refusal> {
        let n = whole("n", self.n, 1, BEST_OF_MAX)?;
        let best_of = whole("best_of", self.best_of, 1, BEST_OF_MAX)?;
        let shown = n.or(best_of).unwrap_or(1);
        if best_of.is_some_and(|best_of| best_of < shown) {
            let what = format!("must be at least n, which is {shown}");
            return Err(wrong("best_of", &what));
        }
        Ok(shown as u32)
    }

    fn engine_request(
        &self,
        request: &HttpRequest,
        tenant: String,
        shown: u32,
    ) -> Result<GenerateRequest, Refusal> {
        if self.prompt.is_empty() {
            return Err(wrong("prompt", "must not be empty"));
        }
        let choices = self.best_of.map_or(shown, |best_of| best_of as u32);
        let max_tokens = whole("max_tokens", self.max_tokens, 1, i64::from(i32::MAX))?;
        let sampling = self.sampling()?;
        if choices > 1 && sampling.temperature == 0.0 {
            return Err(wrong("best_of", "and n must be 1 when temperature is 0"));
        }
        Ok(GenerateRequest {
            id: submit::engine_id(&request_id::of(request)),
            prompt: Prompt::Text {
                text: self.prompt.clone(),
                add_special_tokens: true,
            },
            truncate: None,
            choices,
            sampling,
            constraint: None,
            stop: self.stop_rules()?,
            max_tokens: Some(max_tokens.map_or(MAX_TOKENS, |count| count as u32)),
            logprobs: (choices > shown).then_some(0),
            prompt_logprobs: None,
            pooling: None,
            skip_special_tokens: self.skip_special_tokens.unwrap_or(true),
            cache_salt: String::new(),
            tenant,
            priority: 0,
            timeout: None,
        })
    }

    fn sampling(&self) -> Result<SamplingParams, Refusal> {
        let top_k = match self.top_k {
            None | Some(-1) => 0,
            given => whole("top_k", given, 1, i64::from(i32::MAX))?.unwrap_or(0) as u32,
        };
        let min_p = within("min_p", self.min_p, 0.0, 1.0, 0.0)?;
        let penalty = |field, value| within(field, value, -2.0, 2.0, 0.0);
        Ok(SamplingParams {
            temperature: within("temperature", self.temperature, 0.0, f32::MAX, 1.0)?,
            top_k,
            top_p: share("top_p", self.top_p, true)?,
            min_p,
            repetition_penalty: match self.repetition_penalty {
                Some(value) if value <= 0.0 || value > 2.0 => {
                    let what = format!("must be in (0.0, 2.0], got {value}");
                    return Err(wrong("repetition_penalty", &what));
                }
                value => value.unwrap_or(1.0),
            },
            presence_penalty: penalty("presence_penalty", self.presence_penalty)?,
            frequency_penalty: penalty("frequency_penalty", self.frequency_penalty)?,
            seed: self.seed.unwrap_or_else(rand::random),
            ..SamplingParams::default()
        })
    }

    fn stop_rules(&self) -> Result<StopRules, Refusal> {
        let strings = match &self.stop {
            None => Vec::new(),
            Some(Stops::One(stop)) => vec![stop.clone()],
            Some(Stops::Many(stops)) => stops.clone(),
        };
        if strings.iter().any(String::is_empty) {
            return Err(wrong("stop", "must not hold an empty text"));
        }
        let ids = self.stop_token_ids.as_deref().unwrap_or(&[]);
        Ok(StopRules {
            strings,
            token_ids: ids.iter().map(|&id| TokenId(id)).collect(),
            include_stop_string: self.include_stop_str_in_output.unwrap_or(false),
            ignore_eos: self.ignore_eos.unwrap_or(false),
            min_tokens: 0,
        })
    }
}

/// A number within `from..=to`, or `default`.
fn within(
    field: &str,
    value: Option<f32>,
    from: f32,
    to: f32,
    default: f32,
) -> Result<f32, Refusal> {
    match value {
        Some(value) if value < from || value > to => {
            let what = match to {
                f32::MAX => format!("must be at least {from}, got {value}"),
                _ => format!("must be in [{from}, {to}], got {value}"),
            };
            Err(wrong(field, &what))
        }
        value => Ok(value.unwrap_or(default)),
    }
}

#[derive(Serialize)]
struct Texts {
    text: Vec<String>,
}

struct Frames {
    choices: u32,
}

impl Frames {
    /// The new text of one choice, with an empty one for each other.
    fn new_text(&self, choice: u32, text: String, out: &mut BytesMut) {
        if text.is_empty() {
            return;
        }
        let mut texts = vec![String::new(); self.choices as usize];
        if let Some(place) = texts.get_mut(choice as usize) {
            *place = text;
        }
        object(&Texts { text: texts }, out);
    }
}

/// An object and a zero byte.
fn object(value: &impl Serialize, out: &mut BytesMut) {
    match serde_json::to_vec(value) {
        Ok(json) => {
            out.extend_from_slice(&json);
            out.extend_from_slice(b"\0");
        }
        Err(error) => tracing::error!(%error, "an event cannot be written as JSON"),
    }
}

impl FrameWriter for Frames {
    fn event(&mut self, _: usize, event: GenerateEvent, out: &mut BytesMut) {
        match event {
            GenerateEvent::Tokens(event) => self.new_text(event.choice, event.text, out),
            GenerateEvent::Done(event) => self.new_text(event.choice, event.text, out),
            GenerateEvent::Started(_) | GenerateEvent::Failed(_) => {}
        }
    }

    fn end(&mut self, _: &mut BytesMut) {}

    fn failure(&mut self, refusal: &Refusal, out: &mut BytesMut) {
        object(&ErrorBody::of(refusal), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_known_by_its_prompt() {
        for (body, asked) in [
            (r#"{"prompt":"a"}"#, true),
            (r#"{"inputs":"a","prompt":"b"}"#, true),
            (r#"{"prompt":7}"#, true),
            (r#"{"inputs":"a"}"#, false),
            (r#"{"inputs":"a","prompt":null}"#, false),
            (r#"["prompt"]"#, false),
            (r#"{"prompt""#, false),
        ] {
            assert_eq!(is_asked_in(body.as_bytes()), asked, "{body}");
        }
    }

    #[test]
    fn choices_are_counted_and_bounded() {
        let shown = |more: &str| {
            let body = format!(r#"{{"prompt":"a"{more}}}"#);
            let body: Body = serde_json::from_str(&body).expect("a body");
            body.shown().map_err(|refusal| refusal.message)
        };
        assert_eq!(shown(""), Ok(1));
        assert_eq!(shown(r#","best_of":3"#), Ok(3));
        assert_eq!(shown(r#","n":2,"best_of":3"#), Ok(2));
        assert!(shown(r#","n":2,"best_of":1"#).is_err());
        assert!(shown(r#","n":0"#).is_err());
    }

    #[test]
    fn what_is_not_offered_is_refused_by_name() {
        let refused = |more: &str| {
            let body = format!(r#"{{"prompt":"a",{more}}}"#);
            let ignored = parse::<Body>(body.as_bytes()).expect("a body").ignored;
            check_unknown(body.as_bytes(), ignored)
        };
        assert!(refused(r#""use_beam_search":true"#).is_err());
        assert!(refused(r#""logprobs":1"#).is_err());
        assert_eq!(refused(r#""use_beam_search":false"#), Ok(Vec::new()));
        assert_eq!(refused(r#""x":1"#), Ok(vec!["x".to_owned()]));
    }
}
