//! `POST /v1/completions`: prompts in any of four forms, `echo`, log-probabilities, `best_of`. With `max_tokens` 0 (only beside `echo`) one
//! token is generated and not shown: the engine always makes one. Not here: shapes of answers (`completions_wire.rs`).

use super::checks::whole;
use super::completions_wire::{CompletionFrames, Head};
use super::fields::{RouteParts, SharedFields};
use super::logprobs::TokenNames;
use super::prompts::Prompts;
use super::{told, top_count, unoffered};
use crate::http::answer::{Answer, Choice};
use crate::http::refusal::Refusal;
use crate::http::request_log::LogLine;
use crate::http::state::{AppState, Serving};
use crate::http::{body, json, request_id, sse, submit, wall_clock};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use ropeteam_engine::request::{GenerateRequest, Prompt};
use serde::Deserialize;

/// OpenAI's default.
const MAX_TOKENS: i64 = 16;
/// OpenAI's bound.
const BEST_OF_MAX: i64 = 20;

/// Fields of this route alone.
#[derive(Debug, Deserialize)]
pub(super) struct CompletionFields {
    prompt: Prompts,
    max_tokens: Option<i64>,
    echo: Option<bool>,
    logprobs: Option<i64>,
    best_of: Option<i64>,
}

/// Answers `POST /v1/completions`.
pub async fn route(request: HttpRequest, payload: Payload, state: Data<AppState>) -> HttpResponse {
    let id = request_id::of(&request);
    let mut log = LogLine::new(state.request_log.as_ref(), &id, "/v1/completions");
    match answer(&request, payload, &state, &mut log).await {
        Ok(response) => response,
        Err(refusal) => told(refusal, &state, &mut log),
    }
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
    let (own, shared) = json::parse_pair::<CompletionFields, SharedFields>(&bytes)?;
    let unknown = unoffered::check(&bytes, shared.ignored)?;
    drop(bytes);
    let ignored = submit::ignored_header(state, &unknown)?;
    let shared = shared.value;
    shared.check_model(serving)?;
    let wanted = shared.streaming()?;
    let id = shared.id(request)?;
    log.named(&id);
    let mut plan = own.plan(&shared, &id, tenant, serving)?;
    submit::check_count(serving, &plan.requests)?;
    let asked = shared.structured().asked()?;
    serving
        .grammars
        .constrain(asked, &mut plan.requests)
        .await?;
    log.prompt(|| {
        format!(
            "{:?}",
            plan.requests.iter().map(|r| &r.prompt).collect::<Vec<_>>()
        )
    });
    if let Some(wanted) = wanted {
        plan.check_streamable()?;
        let frames = CompletionFrames::new(plan.head, wanted);
        let running = submit::start(serving, plan.requests, log.take());
        return sse::respond(running, frames, submit::keep_alive(state, serving), ignored).await;
    }
    let mut answers = submit::answers(serving, plan.requests, log).await?;
    if plan.best_of > plan.head.choices {
        answers.iter_mut().for_each(best_first);
    }
    Ok(submit::ok(ignored).json(plan.head.whole(&answers)))
}

/// What to run and how to show it.
struct Plan {
    requests: Vec<GenerateRequest>,
    head: Head,
    best_of: u32,
}

impl Plan {
    fn check_streamable(&self) -> Result<(), Refusal> {
        if self.best_of > self.head.choices {
            return Err(Refusal::invalid(
                "best_of",
                "best_of greater than n cannot be streamed",
            ));
        }
        Ok(())
    }
}

impl CompletionFields {
    fn plan(
        self,
        shared: &SharedFields,
        id: &str,
        tenant: String,
        serving: &Serving,
    ) -> Result<Plan, Refusal> {
        let echo = self.echo.unwrap_or(false);
        let choices = shared.choices()?;
        let best_of = self.best_of(choices)?;
        let logprobs = self
            .logprobs
            .map(|top| top_count("logprobs", top))
            .transpose()?;
        let logprobs_shown = shared.logprobs_shown(logprobs)?;
        let prompt_logprobs = shared.prompt_logprobs()?;
        let shown = shared.shown();
        let max_tokens = self.max_tokens(echo)?;
        let parts = RouteParts {
            id: String::new(),
            tenant,
            max_tokens: Some(max_tokens.max(1)),
            logprobs: if best_of > choices {
                Some(logprobs.unwrap_or(0))
            } else {
                logprobs
            },
            prompt_logprobs: prompt_logprobs.max(logprobs.filter(|_| echo)),
        };
        let prompts =
            self.prompt
                .checked("prompt", shared.add_special_tokens.unwrap_or(true), serving)?;
        let keep = shared
            .truncate(parts.max_tokens, serving)?
            .map(|cut| cut.keep);
        let echoed = echo.then(|| {
            let texts = prompts
                .iter()
                .map(|prompt| uncut_text(prompt, keep, serving));
            texts.collect()
        });
        let requests = prompts.into_iter().map(|prompt| {
            let parts = RouteParts {
                id: submit::engine_id(id),
                tenant: parts.tenant.clone(),
                ..parts
            };
            shared
                .request(prompt, &parts, serving)
                .map(|request| GenerateRequest {
                    choices: best_of,
                    ..request
                })
        });
        Ok(Plan {
            requests: requests.collect::<Result<_, _>>()?,
            best_of,
            head: Head {
                id: format!("cmpl-{id}"),
                created: wall_clock::now(),
                model: serving.model.name().to_owned(),
                logprobs: logprobs_shown,
                prompt_logprobs,
                token_ids: shown.token_ids,
                names: TokenNames::new(serving.text.clone(), shown.names_are_ids),
                echo: echoed,
                prompt_only: max_tokens == 0,
                choices,
            },
        })
    }

    fn best_of(&self, choices: u32) -> Result<u32, Refusal> {
        let Some(best_of) = self.best_of else {
            return Ok(choices);
        };
        let best_of = whole("best_of", best_of, 1, BEST_OF_MAX.max(choices.into()))? as u32;
        if best_of < choices {
            return Err(Refusal::invalid(
                "best_of",
                format!("best_of must be at least n = {choices}, got {best_of}"),
            ));
        }
        Ok(best_of)
    }

    fn max_tokens(&self, echo: bool) -> Result<u32, Refusal> {
        let low = if echo { 0 } else { 1 };
        Ok(whole(
            "max_tokens",
            self.max_tokens.unwrap_or(MAX_TOKENS),
            low,
            u32::MAX.into(),
        )? as u32)
    }
}

/// The prompt's text as it was sent; `None` when it came as ids, or when only `keep` of its tokens are used and it has more.
fn uncut_text(prompt: &Prompt, keep: Option<u32>, serving: &Serving) -> Option<String> {
    let Prompt::Text {
        text,
        add_special_tokens,
    } = prompt
    else {
        return None;
    };
    let is_cut = keep.is_some_and(|keep| {
        let ids = serving.text.encode(text, *add_special_tokens);
        ids.is_ok_and(|ids| ids.len() > keep as usize)
    });
    (!is_cut).then(|| text.clone())
}

/// Orders choices by log-probability per token, best first; equals keep their order.
fn best_first(answer: &mut Answer) {
    answer
        .choices
        .sort_by(|a, b| mean_logprob(b).total_cmp(&mean_logprob(a)));
}

fn mean_logprob(choice: &Choice) -> f32 {
    let sum: f32 = choice.tokens.iter().filter_map(|token| token.logprob).sum();
    sum / choice.tokens.len().max(1) as f32
}
