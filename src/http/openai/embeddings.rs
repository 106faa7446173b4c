//! `POST /v1/embeddings`: one vector per input, from the hidden states of its tokens (`--pooling` says how). Every input is a request of
//! its own on the way that generations take, so that queue, batching, cancellation and replay hold for it, too.

use super::checks::whole;
use super::fields::{cache_salt, check_model, priority, truncate};
use super::prompts::Prompts;
use super::{told, unoffered};
use crate::http::answer::{Answer, incomplete};
use crate::http::json::{Parsed, parse};
use crate::http::refusal::Refusal;
use crate::http::request_log::LogLine;
use crate::http::state::{AppState, Serving};
use crate::http::{body, request_id, submit, wall_clock};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ropeteam_engine::request::{GenerateRequest, Prompt, StopRules, TruncationSide};
use ropeteam_engine::sampling::SamplingParams;
use serde::{Deserialize, Serialize};

/// Inputs of one call that run or wait at once: the rest of a long list does not fill the queue for everybody else.
const AT_ONCE: usize = 32;

#[derive(Debug, Deserialize)]
pub(super) struct Fields {
    input: Prompts,
    model: Option<String>,
    encoding_format: Option<Encoding>,
    dimensions: Option<i64>,
    normalize: Option<bool>,
    truncate_prompt_tokens: Option<i64>,
    truncation_side: Option<TruncationSide>,
    add_special_tokens: Option<bool>,
    priority: Option<i64>,
    cache_salt: Option<String>,
    request_id: Option<String>,
}

/// How vectors are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    /// As a list of numbers.
    Float,
    /// The numbers' bytes, f32, little-endian, in base64.
    Base64,
}

#[derive(Serialize)]
struct List<'a> {
    id: String,
    object: &'static str,
    created: u64,
    data: Vec<Embedding>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: Written,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Written {
    Numbers(Vec<f32>),
    Text(String),
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: u32,
    total_tokens: u32,
    completion_tokens: u32,
}

/// Answers `POST /v1/embeddings`.
pub async fn route(request: HttpRequest, payload: Payload, state: Data<AppState>) -> HttpResponse {
    let id = request_id::of(&request);
    let mut log = LogLine::new(state.request_log.as_ref(), &id, "/v1/embeddings");
    let answer = answer(&request, payload, &state, &mut log).await;
    answer.unwrap_or_else(|refusal| told(of_input(refusal), &state, &mut log))
}

/// The engine speaks of a prompt; here it is an input.
fn of_input(mut refusal: Refusal) -> Refusal {
    if refusal.field.as_deref() == Some("prompt") {
        refusal.field = Some("input".into());
        refusal.message = refusal.message.replacen("prompt", "input", 1);
    }
    refusal
}

async fn answer(
    request: &HttpRequest,
    payload: Payload,
    state: &AppState,
    log: &mut LogLine,
) -> Result<HttpResponse, Refusal> {
    let tenant = state.keys.tenant(request)?;
    let serving = state.serving()?;
    let bytes = body::read_json(request, payload, state).await?;
    let Parsed { value, ignored } = parse::<Fields>(&bytes)?;
    let unknown = unoffered::check(&bytes, ignored)?;
    drop(bytes);
    let ignored = submit::ignored_header(state, &unknown)?;
    check_model(value.model.as_deref(), serving)?;
    let id = match &value.request_id {
        Some(named) => request_id::or_named(request, named)?,
        None => request_id::of(request),
    };
    log.named(&id);
    let shape = Shape {
        encoding: value.encoding_format.unwrap_or(Encoding::Float),
        dimensions: value.dimensions(serving)?,
        normalize: value.normalize.unwrap_or(true),
    };
    let requests = value.requests(&id, &tenant, serving)?;
    log.prompt(|| {
        format!(
            "{:?}",
            requests.iter().map(|r| &r.prompt).collect::<Vec<_>>()
        )
    });
    let answers = submit::answers_in_turn(serving, requests, AT_ONCE, log).await?;
    let prompt_tokens = answers
        .iter()
        .map(|answer| answer.started.prompt_ids.len() as u32)
        .sum();
    let data = answers.into_iter().enumerate();
    let data = data.map(|(index, answer)| shape.embedding(index, answer));
    Ok(submit::ok(ignored).json(List {
        id: format!("embd-{id}"),
        object: "list",
        created: wall_clock::now(),
        data: data.collect::<Result<_, _>>()?,
        model: serving.model.name(),
        usage: Usage {
            prompt_tokens,
            total_tokens: prompt_tokens,
            completion_tokens: 0,
        },
    }))
}

impl Fields {
    /// The wanted width. Only the model's own is there: a cut of its vector would mean little.
    fn dimensions(&self, serving: &Serving) -> Result<Option<usize>, Refusal> {
        let Some(wanted) = self.dimensions else {
            return Ok(None);
        };
        let width = serving.model.hidden_size;
        whole("dimensions", wanted, 1, i64::from(u32::MAX))?;
        if wanted != i64::from(width) {
            let message = format!(
                "dimensions must be {width}, the width of this model's vectors, or left out; got {wanted}"
            );
            return Err(Refusal::invalid("dimensions", message));
        }
        Ok(Some(width as usize))
    }

    fn requests(
        self,
        id: &str,
        tenant: &str,
        serving: &Serving,
    ) -> Result<Vec<GenerateRequest>, Refusal> {
        let side = self.truncation_side.unwrap_or_default();
        let cut = truncate((self.truncate_prompt_tokens, side), None, serving)?;
        let salt = cache_salt(self.cache_salt.as_deref())?;
        let priority = priority(self.priority)?;
        let special = self.add_special_tokens.unwrap_or(true);
        let inputs = self.input.checked("input", special, serving)?;
        let is_empty =
            |input: &Prompt| matches!(input, Prompt::Text { text, .. } if text.is_empty());
        if inputs.iter().any(is_empty) {
            let message = "input must not hold an empty string";
            return Err(Refusal::invalid("input", message));
        }
        let requests = inputs.into_iter().map(|prompt| GenerateRequest {
            id: submit::engine_id(id),
            prompt,
            truncate: cut,
            choices: 1,
            sampling: SamplingParams::greedy(),
            constraint: None,
            stop: StopRules::default(),
            max_tokens: Some(1),
            logprobs: None,
            prompt_logprobs: None,
            pooling: Some(serving.pooling),
            skip_special_tokens: true,
            cache_salt: salt.clone(),
            tenant: tenant.to_owned(),
            priority,
            timeout: None,
        });
        Ok(requests.collect())
    }
}

/// How vectors are told.
#[derive(Clone, Copy)]
struct Shape {
    encoding: Encoding,
    dimensions: Option<usize>,
    normalize: bool,
}

impl Shape {
    fn embedding(self, index: usize, mut answer: Answer) -> Result<Embedding, Refusal> {
        let choice = answer.choices.pop();
        let vector = choice.and_then(|choice| choice.embedding);
        let mut vector = vector.ok_or_else(incomplete)?;
        if self.dimensions.is_some_and(|width| width != vector.len()) {
            return Err(incomplete());
        }
        if self.normalize {
            normalize(&mut vector);
        }
        Ok(Embedding {
            object: "embedding",
            index,
            embedding: match self.encoding {
                Encoding::Float => Written::Numbers(vector),
                Encoding::Base64 => Written::Text(base64(&vector)),
            },
        })
    }
}

/// To length 1; a vector of zeros stays as it is.
fn normalize(vector: &mut [f32]) {
    let squares: f64 = vector.iter().map(|&value| f64::from(value).powi(2)).sum();
    let length = squares.sqrt();
    if length > 0.0 {
        for value in vector {
            *value = (f64::from(*value) / length) as f32;
        }
    }
}

fn base64(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_get_length_one_and_are_written_little_endian() {
        let mut vector = vec![3.0, -4.0];
        normalize(&mut vector);
        assert_eq!(vector, [0.6, -0.8]);
        assert_eq!(base64(&[1.0, -2.0]), "AACAPwAAAMA=");
        let mut zeros = vec![0.0; 3];
        normalize(&mut zeros);
        assert_eq!(zeros, [0.0; 3]);
    }
}
