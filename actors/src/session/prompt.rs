//! From a request to prompt ids: tokenising, truncation and every check that needs the limits. Off the arbiters, on a blocking thread,
//! except for prompts so short that the way there and back would cost more.

use super::context::SessionContext;
use crate::config::{EngineConfig, Hosting};
use crate::generation::RequestError;
use crate::state::Limits;
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::request::{GenerateRequest, Prompt, Truncation, TruncationSide};
use ropeteam_engine::text::TextCodec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Most choices of one request, whatever its dialect allows: each one is a sequence with a state of its own.
const MAX_CHOICES: u32 = 1024;

/// Longest text, in bytes, that is tokenised in place: tokenizers take some MB a second, so it stays well under 100 µs.
const IN_PLACE_BYTES: usize = 256;

/// A request that can be served.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub prompt: Arc<[TokenId]>,
    /// Most tokens to generate per choice, at least 1.
    pub max_tokens: u32,
}

/// Waits for the limits (that is, for the first device), then tokenises: what is not short on a blocking thread, a few at a time.
pub(crate) async fn prepared(
    shared: Arc<SessionContext>,
    request: Arc<GenerateRequest>,
) -> Result<Prepared, RequestError> {
    let mut state = shared.state.clone();
    let known = state
        .wait_for(|s| s.limits.is_some() || s.is_hopeless() || s.draining)
        .await;
    // The scheduler holds the other end; without it the engine has stopped.
    let known = known.map_err(|_| RequestError::Draining)?.clone();
    if known.draining {
        return Err(RequestError::Draining);
    }
    if known.is_hopeless() {
        return Err(RequestError::NoDevice);
    }
    let limits = known.limits.ok_or(RequestError::NoDevice)?;
    // In a simulation a real thread would bring real time, and with it chance.
    let simulated = matches!(shared.config.hosting, Hosting::Simulated { .. });
    if simulated || is_short(&request.prompt) {
        let work = || prepare(&request, &shared, &limits);
        return catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(tokenizer_failed()));
    }
    let permit = shared.tokenising.clone().acquire_owned().await;
    let work = move || {
        let _permit = permit;
        prepare(&request, &shared, &limits)
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(tokenizer_failed()))
}

fn tokenizer_failed() -> RequestError {
    invalid("prompt", "the tokenizer failed on it")
}

fn is_short(prompt: &Prompt) -> bool {
    match prompt {
        Prompt::Text { text, .. } => text.len() <= IN_PLACE_BYTES,
        Prompt::Ids(_) => true,
    }
}

/// Tokenises and checks.
fn prepare(
    request: &GenerateRequest,
    shared: &SessionContext,
    limits: &Limits,
) -> Result<Prepared, RequestError> {
    check_fields(request, limits)?;
    let mut ids = prompt_ids(&request.prompt, &*shared.codec, limits)?;
    if let Some(Truncation { keep, side }) = request.truncate {
        let keep = (keep as usize).min(ids.len());
        match side {
            TruncationSide::Left => drop(ids.drain(..ids.len() - keep)),
            TruncationSide::Right => ids.truncate(keep),
        }
    }
    let max_tokens = output_limit(ids.len(), request.max_tokens, limits, &shared.config)?;
    Ok(Prepared {
        prompt: ids.into(),
        max_tokens,
    })
}

fn invalid(field: &'static str, message: impl Into<String>) -> RequestError {
    RequestError::Invalid {
        field,
        message: message.into(),
    }
}

fn check_fields(request: &GenerateRequest, limits: &Limits) -> Result<(), RequestError> {
    if !(1..=MAX_CHOICES).contains(&request.choices) {
        let message = format!("{}; 1 to {MAX_CHOICES} are expected", request.choices);
        return Err(invalid("choices", message));
    }
    if request.max_tokens == Some(0) {
        return Err(invalid("max_tokens", "0; at least 1 is expected"));
    }
    if request.truncate.is_some_and(|cut| cut.keep == 0) {
        return Err(invalid("truncate", "0; at least 1 is expected"));
    }
    if request.stop.strings.iter().any(String::is_empty) {
        return Err(invalid("stop", "an empty stop string"));
    }
    let strange = request
        .sampling
        .logit_bias
        .iter()
        .find(|(id, _)| id.0 >= limits.vocab);
    match strange {
        Some((id, _)) => Err(invalid("logit_bias", outside(*id, limits))),
        None => Ok(()),
    }
}

fn outside(id: TokenId, limits: &Limits) -> String {
    format!(
        "token id {id} is outside the vocabulary of {} tokens",
        limits.vocab
    )
}

fn prompt_ids(
    prompt: &Prompt,
    codec: &dyn TextCodec,
    limits: &Limits,
) -> Result<Vec<TokenId>, RequestError> {
    let ids = match prompt {
        Prompt::Ids(ids) => ids.clone(),
        Prompt::Text {
            text,
            add_special_tokens,
        } => {
            let encoded = codec.encode(text, *add_special_tokens);
            encoded.map_err(|error| invalid("prompt", error.to_string()))?
        }
    };
    if ids.is_empty() {
        return Err(invalid("prompt", "it has no tokens"));
    }
    match ids.iter().find(|id| id.0 >= limits.vocab) {
        Some(id) => Err(invalid("prompt", outside(*id, limits))),
        None => Ok(ids),
    }
}

/// Most output tokens: what the request asks for, or what the length limit leaves, but not more than the engine's own bound. The pool may end
/// a sequence before.
fn output_limit(
    prompt_len: usize,
    wanted: Option<u32>,
    limits: &Limits,
    config: &EngineConfig,
) -> Result<u32, RequestError> {
    // One place is left for the first generated token.
    let room = limits.longest_sequence() as usize - 1;
    let (longest, which) = match config.max_prompt_tokens {
        Some(most) if (most as usize) < room => (most as usize, "the limit of prompts"),
        _ => (room, limits.which()),
    };
    if prompt_len > longest {
        return Err(RequestError::TooLong {
            what: "prompt",
            given: prompt_len,
            limit: longest,
            which,
        });
    }
    let left = limits.max_model_len - prompt_len as u32;
    match wanted {
        Some(wanted) if wanted > left => Err(RequestError::TooLong {
            what: "prompt and output together",
            given: prompt_len + wanted as usize,
            limit: limits.max_model_len as usize,
            which: "the model's length limit",
        }),
        wanted => {
            let most = config.max_output_tokens.unwrap_or(u32::MAX);
            Ok(wanted.unwrap_or(left).min(most))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_own_bounds_hold_beside_the_models() {
        let limits = Limits {
            max_model_len: 100,
            pool_tokens: 1000,
            block_size: 16,
            vocab: 10,
        };
        let config = |prompt, output| EngineConfig {
            max_prompt_tokens: prompt,
            max_output_tokens: output,
            ..EngineConfig::default()
        };
        let check = |prompt_len, wanted, config: EngineConfig, expected: Result<u32, usize>| {
            let found = output_limit(prompt_len, wanted, &limits, &config);
            let found = found.map_err(|error| match error {
                RequestError::TooLong { limit, .. } => limit,
                other => panic!("{other}"),
            });
            assert_eq!(found, expected, "{prompt_len} {wanted:?}");
        };
        check(50, None, config(None, None), Ok(50));
        check(50, None, config(Some(50), Some(8)), Ok(8));
        check(50, Some(9), config(None, Some(8)), Ok(8));
        check(50, Some(7), config(None, Some(8)), Ok(7));
        check(51, Some(1), config(Some(50), None), Err(50));
        check(100, None, config(Some(500), None), Err(99));
        check(50, Some(51), config(None, Some(8)), Err(100));
    }
}
