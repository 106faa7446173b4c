//! Log-probabilities in the two shapes of the OpenAI dialect. Values are natural logs under the model's unmodified distribution; minus
//! infinity is written as -9999. Not here: where they come from (the engine's sampling).

use ropeteam_actors::generation::{PromptLogprob, TokenOut};
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::text::TextCodec;
use serde::{Serialize, Serializer};
use std::sync::Arc;

/// Written for minus infinity.
const LOWEST: f32 = -9999.0;

/// How tokens are named.
#[derive(Clone)]
pub struct TokenNames {
    text: Arc<dyn TextCodec>,
    as_ids: bool,
}

impl TokenNames {
    /// By their texts, or as `token_id:7` if `as_ids` says so.
    pub fn new(text: Arc<dyn TextCodec>, as_ids: bool) -> Self {
        TokenNames { text, as_ids }
    }

    /// What texts are made with.
    pub fn codec(&self) -> &dyn TextCodec {
        &*self.text
    }

    fn text(&self, id: TokenId) -> String {
        match self.as_ids {
            true => format!("token_id:{id}"),
            false => self.text.token_text(id).unwrap_or_default(),
        }
    }

    /// As `text`, but `bytes:\xf0\x9f` for a token that is no text by itself, so that two of them are not taken for one.
    fn unique(&self, id: TokenId) -> String {
        if self.as_ids {
            return self.text(id);
        }
        let bytes = self.text.token_bytes(id).unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_else(|error| {
            let hex = error.as_bytes().iter().map(|byte| format!("\\x{byte:02x}"));
            format!("bytes:{}", hex.collect::<String>())
        })
    }
}

/// `logprobs` of a chat choice.
#[derive(Debug, Serialize)]
pub struct ChatLogprobs {
    content: Vec<ChatToken>,
}

#[derive(Debug, Serialize)]
struct ChatToken {
    #[serde(flatten)]
    token: Scored,
    top_logprobs: Vec<Scored>,
}

#[derive(Debug, Serialize)]
struct Scored {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

impl ChatLogprobs {
    /// Of `tokens`, each with its `top` best alternatives.
    pub fn of(tokens: &[TokenOut], top: u32, names: &TokenNames) -> Self {
        let content = tokens.iter().map(|token| ChatToken {
            token: scored(token.id, token.logprob.unwrap_or(LOWEST), names),
            top_logprobs: token
                .top
                .iter()
                .take(top as usize)
                .map(|&(id, logprob)| scored(id, logprob, names))
                .collect(),
        });
        ChatLogprobs {
            content: content.collect(),
        }
    }
}

fn scored(id: TokenId, logprob: f32, names: &TokenNames) -> Scored {
    Scored {
        token: names.text(id),
        logprob: written(logprob),
        bytes: names.codec().token_bytes(id).unwrap_or_default(),
    }
}

/// `logprobs` of a text completion choice: four lists of the same length.
#[derive(Debug, Default, Serialize)]
pub struct CompletionLogprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<Option<Alternatives>>,
    text_offset: Vec<usize>,
}

impl CompletionLogprobs {
    /// Adds the prompt's tokens, whose texts are `pieces`. The first one has no probability. Returns the offset behind them.
    pub fn add_prompt(&mut self, prompt: &Prompt<'_>, top: u32, names: &TokenNames) -> usize {
        let mut offset = 0;
        for (index, (&id, piece)) in prompt.ids.iter().zip(prompt.pieces).enumerate() {
            let known = prompt.logprobs.get(index).filter(|_| index > 0);
            let logprob = known.and_then(|entry| entry.logprob);
            let alternatives = known.map_or(&[][..], |entry| &entry.top);
            self.add(
                Entry {
                    id,
                    logprob,
                    alternatives,
                    offset,
                },
                top,
                names,
            );
            offset += piece.chars().count();
        }
        offset
    }

    /// Adds generated tokens, the first of which begins at `offset` (in characters). Returns the offset behind them.
    pub fn add_tokens(
        &mut self,
        tokens: &[TokenOut],
        top: u32,
        mut offset: usize,
        names: &TokenNames,
    ) -> usize {
        for token in tokens {
            let entry = Entry {
                id: token.id,
                logprob: token.logprob,
                alternatives: &token.top,
                offset,
            };
            self.add(entry, top, names);
            offset += token.text.chars().count();
        }
        offset
    }

    fn add(&mut self, entry: Entry<'_>, top: u32, names: &TokenNames) {
        self.tokens.push(names.unique(entry.id));
        self.token_logprobs.push(entry.logprob.map(written));
        self.top_logprobs.push(entry.logprob.map(|own| {
            let mut alternatives = Alternatives::default();
            alternatives.add(names.unique(entry.id), own);
            for &(id, logprob) in entry.alternatives.iter().take(top as usize) {
                alternatives.add(names.unique(id), logprob);
            }
            alternatives
        }));
        self.text_offset.push(entry.offset);
    }
}

/// Token texts with their log-probabilities, written as a map: as with vLLM the token itself comes first, then the best.
#[derive(Debug, Default)]
struct Alternatives(Vec<(String, f32)>);

impl Alternatives {
    /// Adds a token; of two with the same text the first stays.
    fn add(&mut self, token: String, logprob: f32) {
        if self.0.iter().all(|(known, _)| *known != token) {
            self.0.push((token, written(logprob)));
        }
    }
}

impl Serialize for Alternatives {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(token, logprob)| (token, logprob)))
    }
}

/// The tokens of a prompt with what is known about them.
#[derive(Debug)]
pub struct Prompt<'a> {
    /// The ids.
    pub ids: &'a [TokenId],
    /// The text each completes.
    pub pieces: &'a [String],
    /// One entry per id, or none at all.
    pub logprobs: &'a [PromptLogprob],
}

struct Entry<'a> {
    id: TokenId,
    logprob: Option<f32>,
    alternatives: &'a [(TokenId, f32)],
    offset: usize,
}

fn written(logprob: f32) -> f32 {
    if logprob.is_finite() {
        logprob.clamp(LOWEST, 0.0)
    } else {
        LOWEST
    }
}
