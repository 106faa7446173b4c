//! vLLM's `prompt_logprobs`: per prompt token what was likely in its place, by token id; null for the first one.

use super::logprobs::TokenNames;
use ropeteam_actors::generation::{PromptLogprob, Started};
use ropeteam_engine::ids::TokenId;
use serde::{Serialize, Serializer};

/// `prompt_logprobs`.
#[derive(Debug, Serialize)]
pub struct PromptLogprobs(Vec<Option<Place>>);

/// What was likely in one place, the prompt's own token first; written as a map by id.
#[derive(Debug)]
struct Place(Vec<(TokenId, Likely)>);

#[derive(Debug, Serialize)]
struct Likely {
    logprob: f32,
    /// 1 for the best.
    rank: u32,
    decoded_token: String,
}

impl PromptLogprobs {
    /// Of a prompt, with the `top` best alternatives per token; `None` when they were not asked for.
    pub fn of(started: &Started, top: Option<u32>, names: &TokenNames) -> Option<Self> {
        let (top, known) = (top?, started.prompt_logprobs.as_ref()?);
        let pairs = started.prompt_ids.iter().zip(known);
        Some(PromptLogprobs(
            pairs
                .map(|(&id, found)| place(id, found, top, names))
                .collect(),
        ))
    }
}

fn place(id: TokenId, found: &PromptLogprob, top: u32, names: &TokenNames) -> Option<Place> {
    let likely = |id, logprob, rank| {
        let decoded_token = names.codec().token_text(id).unwrap_or_default();
        (
            id,
            Likely {
                logprob,
                rank,
                decoded_token,
            },
        )
    };
    let mut all = vec![likely(id, found.logprob?, found.rank?)];
    let best = found.top.iter().take(top as usize).zip(1..);
    let others = best.filter(|((other, _), _)| *other != id);
    all.extend(others.map(|(&(other, logprob), rank)| likely(other, logprob, rank)));
    Some(Place(all))
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(id, likely)| (id.0, likely)))
    }
}
