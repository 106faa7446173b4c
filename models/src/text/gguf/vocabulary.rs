//! The vocabulary in a GGUF file's metadata, and the tokenizer built from it.
//! Not here: which pattern splits a text (`pre_tokenizers.rs`), merges from scores (`merges.rs`).

use ropeteam_engine::ids::TokenId;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
    Tokenizer,
};

use super::super::{SpecialTokens, TokenizerError};
use super::merges;
use super::pre_tokenizers::{self, PreTokenizer};
use crate::checkpoint::GgufMetadata;

/// How a token is to be treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    /// Fills a gap in the numbering; the model was never taught it.
    Unused,
    Byte,
}

impl Kind {
    fn of(number: i64) -> Option<Self> {
        [
            Self::Normal,
            Self::Unknown,
            Self::Control,
            Self::UserDefined,
            Self::Unused,
            Self::Byte,
        ]
        .get(usize::try_from(number).ok()?.checked_sub(1)?)
        .copied()
    }
}

/// Names of tokens that end a turn, for files whose end tokens do not name it.
const TURN_ENDS: [&str; 4] = ["<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|endoftext|>"];

/// The tokenizer part of the metadata, checked.
pub(super) struct Vocabulary<'m> {
    metadata: &'m GgufMetadata,
    origin: &'m str,
    tokens: &'m [String],
    kinds: Vec<Kind>,
    /// `None` for a SentencePiece vocabulary.
    pre_tokenizer: Option<&'static PreTokenizer>,
}

impl<'m> Vocabulary<'m> {
    /// Reads and checks the tokenizer's keys.
    pub fn read(metadata: &'m GgufMetadata, origin: &'m str) -> Result<Self, TokenizerError> {
        let invalid = |detail: String| TokenizerError::Invalid {
            origin: origin.to_owned(),
            detail,
        };
        let model = metadata
            .text("tokenizer.ggml.model")
            .ok_or_else(|| invalid("tokenizer.ggml.model is missing".to_owned()))?;
        let pre_tokenizer = match model {
            "gpt2" => Some(pre_tokenizers::find(
                metadata.text("tokenizer.ggml.pre"),
                origin,
            )?),
            "llama" => None,
            name => {
                return Err(TokenizerError::UnknownModel {
                    origin: origin.to_owned(),
                    name: name.to_owned(),
                });
            }
        };
        let tokens = metadata
            .texts("tokenizer.ggml.tokens")
            .ok_or_else(|| invalid("tokenizer.ggml.tokens is missing".to_owned()))?;
        let numbers = metadata.ints("tokenizer.ggml.token_type");
        let kinds: Option<Vec<Kind>> = match numbers {
            Some(numbers) => numbers.iter().map(|&n| Kind::of(n)).collect(),
            None => Some(vec![Kind::Normal; tokens.len()]),
        };
        match kinds {
            Some(kinds) if kinds.len() == tokens.len() => Ok(Self {
                metadata,
                origin,
                tokens,
                kinds,
                pre_tokenizer,
            }),
            _ => Err(invalid(format!(
                "tokenizer.ggml.token_type must hold {} numbers from 1 to 6",
                tokens.len()
            ))),
        }
    }

    /// The tokenizer that the metadata describe.
    pub fn tokenizer(&self) -> Result<Tokenizer, TokenizerError> {
        let model = self.model()?;
        let mut tokenizer = Tokenizer::new(model);
        match self.pre_tokenizer {
            Some(pre_tokenizer) => {
                let normalizer: NormalizerWrapper = self.part(pre_tokenizer.normalizer())?;
                let steps: PreTokenizerWrapper = self.part(pre_tokenizer.steps())?;
                let decoder: DecoderWrapper = self.part(pre_tokenizers::byte_level())?;
                self.set(tokenizer.with_normalizer(Some(normalizer)))?;
                tokenizer.with_pre_tokenizer(Some(steps));
                tokenizer.with_decoder(Some(decoder));
            }
            None => {
                let prefix = self.flag("add_space_prefix", true);
                let normalizer: NormalizerWrapper = self.part(sentencepiece_normalizer(prefix))?;
                let decoder: DecoderWrapper = self.part(sentencepiece_decoder(prefix))?;
                self.set(tokenizer.with_normalizer(Some(normalizer)))?;
                tokenizer.with_decoder(Some(decoder));
            }
        }
        let post_processor: PostProcessorWrapper = self.part(self.post_processor())?;
        tokenizer.with_post_processor(Some(post_processor));
        for (token, &kind) in self.tokens.iter().zip(&self.kinds) {
            let special = match kind {
                Kind::Control | Kind::Unknown => true,
                Kind::UserDefined => false,
                Kind::Normal | Kind::Unused | Kind::Byte => continue,
            };
            let added = AddedToken::from(token.clone(), special).normalized(false);
            self.set(tokenizer.add_tokens([added]))?;
        }
        Ok(tokenizer)
    }

    fn model(&self) -> Result<BPE, TokenizerError> {
        let vocabulary: Vocab = self
            .tokens
            .iter()
            .zip(0..)
            .zip(&self.kinds)
            .filter(|(_, kind)| **kind != Kind::Unused)
            .map(|((token, id), _)| (token.clone(), id))
            .collect();
        let builder = match self.pre_tokenizer {
            Some(pre_tokenizer) => BPE::builder()
                .vocab_and_merges(vocabulary, self.listed_merges()?)
                .ignore_merges(pre_tokenizer.whole_words_first),
            None => {
                let builder = BPE::builder()
                    .vocab_and_merges(vocabulary, self.scored_merges()?)
                    .byte_fallback(true)
                    .fuse_unk(true);
                match self.named("unknown", Some(0)) {
                    Some(unknown) => builder.unk_token(unknown.to_owned()),
                    None => builder,
                }
            }
        };
        builder.build().map_err(|e| self.invalid(&*e))
    }

    /// Merges as the file lists them: two tokens with a blank between, best first.
    fn listed_merges(&self) -> Result<Merges, TokenizerError> {
        let merges = self
            .metadata
            .texts("tokenizer.ggml.merges")
            .ok_or_else(|| self.invalid("tokenizer.ggml.merges is missing"))?;
        merges
            .iter()
            .map(|merge| match merge.split_once(' ') {
                Some((left, right)) => Ok((left.to_owned(), right.to_owned())),
                None => Err(self.invalid(&format!("the merge {merge:?} is no pair"))),
            })
            .collect()
    }

    fn scored_merges(&self) -> Result<Merges, TokenizerError> {
        let scores = self
            .metadata
            .floats("tokenizer.ggml.scores")
            .filter(|scores| scores.len() == self.tokens.len())
            .ok_or_else(|| self.invalid("tokenizer.ggml.scores must hold one score per token"))?;
        let takes_part = |id: usize| matches!(self.kinds[id], Kind::Normal | Kind::UserDefined);
        let pieces = (0..self.tokens.len()).filter(|&id| takes_part(id));
        Ok(merges::from_scores(
            pieces.map(|id| (self.tokens[id].as_str(), scores[id])),
        ))
    }

    /// Adds the begin and end tokens that the file asks for.
    fn post_processor(&self) -> Value {
        let is_llama = self.pre_tokenizer.is_none();
        let adds_begin = self.pre_tokenizer.is_none_or(|p| p.adds_begin);
        let begin = self
            .flag("add_bos_token", adds_begin)
            .then(|| self.id("bos", is_llama.then_some(1)))
            .flatten();
        let end = self
            .flag("add_eos_token", false)
            .then(|| self.id("eos", is_llama.then_some(2)))
            .flatten();
        let special =
            |id: usize, kind: u8| json!({"SpecialToken": {"id": self.tokens[id], "type_id": kind}});
        let sequence = |name: &str, kind: u8| {
            let mut parts: Vec<Value> = begin.iter().map(|&id| special(id, kind)).collect();
            parts.push(json!({"Sequence": {"id": name, "type_id": kind}}));
            parts.extend(end.iter().map(|&id| special(id, kind)));
            parts
        };
        let tokens: serde_json::Map<String, Value> = begin
            .iter()
            .chain(&end)
            .map(|&id| {
                let token = &self.tokens[id];
                let entry = json!({"id": token, "ids": [id], "tokens": [token]});
                (token.clone(), entry)
            })
            .collect();
        let pair = [sequence("A", 0), sequence("B", 1)].concat();
        json!({
            "type": "TemplateProcessing",
            "single": sequence("A", 0),
            "pair": pair,
            "special_tokens": tokens,
        })
    }

    /// The tokens that the metadata name by their use.
    pub fn special_tokens(&self) -> SpecialTokens {
        let is_llama = self.pre_tokenizer.is_none();
        let names = [
            ("bos_token", "bos", 1),
            ("eos_token", "eos", 2),
            ("unk_token", "unknown", 0),
        ]
        .map(|(name, key, usual)| (name, self.named(key, is_llama.then_some(usual))));
        let others = [("pad_token", "padding"), ("sep_token", "seperator")]
            .map(|(name, key)| (name, self.named(key, None)));
        SpecialTokens::from_pairs(
            names
                .into_iter()
                .chain(others)
                .filter_map(|(name, token)| Some((name, token?))),
        )
    }

    /// Tokens that end an answer.
    pub fn end_ids(&self) -> Vec<TokenId> {
        let is_llama = self.pre_tokenizer.is_none();
        let named = ["eos", "eot", "eom"].map(|key| {
            let usual = (key == "eos" && is_llama).then_some(2);
            self.id(key, usual)
        });
        let by_text = (0..self.tokens.len()).filter(|&id| {
            self.kinds[id] == Kind::Control && TURN_ENDS.contains(&self.tokens[id].as_str())
        });
        let mut ids: Vec<TokenId> = Vec::new();
        for id in named.into_iter().flatten().chain(by_text) {
            let id = TokenId(id as u32);
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids
    }

    /// The id under `tokenizer.ggml.KEY_token_id`, if it is one of the vocabulary.
    fn id(&self, key: &str, usual: Option<usize>) -> Option<usize> {
        let found = self
            .metadata
            .int(&format!("tokenizer.ggml.{key}_token_id"))
            .and_then(|id| usize::try_from(id).ok());
        found.or(usual).filter(|&id| id < self.tokens.len())
    }

    fn named(&self, key: &str, usual: Option<usize>) -> Option<&'m str> {
        self.id(key, usual).map(|id| self.tokens[id].as_str())
    }

    fn flag(&self, key: &str, usual: bool) -> bool {
        self.metadata
            .flag(&format!("tokenizer.ggml.{key}"))
            .unwrap_or(usual)
    }

    /// The tokenizer's own objection, if it has one.
    fn set<T>(&self, result: tokenizers::Result<T>) -> Result<(), TokenizerError> {
        result.map(drop).map_err(|e| self.invalid(&*e))
    }

    /// A part of the tokenizer from its description as in tokenizer.json.
    fn part<P: DeserializeOwned>(&self, description: Value) -> Result<P, TokenizerError> {
        serde_json::from_value(description).map_err(|e| self.invalid(&e))
    }

    fn invalid(&self, detail: &(impl ToString + ?Sized)) -> TokenizerError {
        TokenizerError::Invalid {
            origin: self.origin.to_owned(),
            detail: detail.to_string(),
        }
    }
}

fn sentencepiece_normalizer(prefix: bool) -> Value {
    let mut steps = vec![json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})];
    if prefix {
        steps.insert(0, json!({"type": "Prepend", "prepend": "▁"}));
    }
    json!({"type": "Sequence", "normalizers": steps})
}

fn sentencepiece_decoder(prefix: bool) -> Value {
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefix {
        steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    json!({"type": "Sequence", "decoders": steps})
}
