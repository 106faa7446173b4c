//! `GET /health/deep`: whether a token really comes. One is generated, before all that wait.

use super::answer;
use super::refusal::{Kind, Refusal};
use super::state::{AppState, Serving};
use super::submit;
use actix_web::HttpResponse;
use actix_web::web::Data;
use ropeteam_engine::request::{GenerateRequest, Prompt, StopRules};
use ropeteam_engine::sampling::SamplingParams;
use serde::Serialize;
use std::time::Duration;

/// How long a token may take.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct Told {
    status: &'static str,
    /// What was wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// How long the token took.
    took_ms: u128,
    /// How long ago that was.
    age_ms: u128,
}

/// Answers `GET /health/deep`: 503 when no token comes, also when the queue is full. An alarm, not a reason to restart the process.
pub async fn route(state: Data<AppState>) -> HttpResponse {
    let probe = async {
        let result = match state.serving() {
            Ok(serving) => one_token(serving, PATIENCE).await,
            Err(refusal) => Err(refusal),
        };
        result.err().map(|refusal| refusal.message)
    };
    let probed = state.probe.found(probe).await;
    let (mut response, status) = match probed.problem {
        None => (HttpResponse::Ok(), "ok"),
        Some(_) => (HttpResponse::ServiceUnavailable(), "no token"),
    };
    response.json(Told {
        status,
        took_ms: probed.took.as_millis(),
        age_ms: probed.at.elapsed().as_millis(),
        problem: probed.problem,
    })
}

/// Generates one token before all that wait.
///
/// # Errors
/// Why none came in that time.
pub async fn one_token(serving: &Serving, within: Duration) -> Result<(), Refusal> {
    let request = GenerateRequest {
        id: submit::engine_id("probe"),
        prompt: Prompt::Text {
            text: "1".to_owned(),
            add_special_tokens: true,
        },
        truncate: None,
        choices: 1,
        sampling: SamplingParams {
            temperature: 0.0,
            ..SamplingParams::default()
        },
        constraint: None,
        stop: StopRules::default(),
        max_tokens: Some(1),
        logprobs: None,
        prompt_logprobs: None,
        pooling: None,
        skip_special_tokens: true,
        cache_salt: String::new(),
        tenant: String::new(),
        priority: i32::MIN,
        timeout: Some(within),
    };
    let answer = answer::collect(serving.engine.generate(request), 1);
    match tokio::time::timeout(within, answer).await {
        Ok(result) => result.map(drop),
        Err(_) => Err(Refusal::new(
            Kind::Incomplete,
            format!("the probe got no token within {} s", within.as_secs()),
        )),
    }
}
