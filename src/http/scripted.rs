//! Event scripts for the tests of the dialects: what an engine might say, without an engine.

use ropeteam_actors::generation::{
    DoneEvent, GenerateEvent, RequestError, Started, TokenOut, TokensEvent, Usage,
};
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::request::FinishReason;
use std::time::Duration;

/// The prompt was taken.
pub fn started(ids: &[u32]) -> GenerateEvent {
    let prompt_ids = ids.iter().map(|&id| TokenId(id)).collect();
    GenerateEvent::Started(Started {
        prompt_ids,
        prompt_logprobs: None,
    })
}

/// Tokens of one choice; the first carries the text.
pub fn tokens(choice: u32, text: &str, ids: &[u32]) -> GenerateEvent {
    let tokens = ids
        .iter()
        .enumerate()
        .map(|(index, &id)| TokenOut {
            id: TokenId(id),
            text: if index == 0 {
                text.to_owned()
            } else {
                String::new()
            },
            special: false,
            logprob: Some(-0.5),
            top: vec![(TokenId(id), -0.5)],
        })
        .collect();
    GenerateEvent::Tokens(TokensEvent {
        choice,
        text: text.to_owned(),
        tokens,
    })
}

/// The end of one choice.
pub fn done(choice: u32, text: &str, reason: FinishReason) -> GenerateEvent {
    GenerateEvent::Done(DoneEvent {
        choice,
        text: text.to_owned(),
        reason,
        usage: usage(),
        embedding: None,
    })
}

/// The end of all.
pub fn failed(error: RequestError) -> GenerateEvent {
    GenerateEvent::Failed(error)
}

/// Three prompt tokens (one cached), two generated ones.
pub fn usage() -> Usage {
    Usage {
        prompt_tokens: 3,
        cached_tokens: 1,
        completion_tokens: 2,
        queue_time: Duration::from_millis(1),
        first_token_time: Duration::from_millis(5),
        total_time: Duration::from_millis(9),
        seed: 42,
    }
}
