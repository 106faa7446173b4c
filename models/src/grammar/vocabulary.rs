//! A model's tokens as the compiler wants them: bytes, and which of them end a text. Also its limits.

use super::GrammarError;
use llguidance::ParserFactory;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::text::TextCodec;
use std::sync::Arc;

/// Begins the bytes of a token that is no text; it occurs in no UTF-8.
const NO_TEXT: u8 = TokTrie::SPECIAL_TOKEN_MARKER;
/// States of a sequence's lexer, at about 2 kB each.
const LEXER_STATES_MAX: usize = 20_000;
/// Symbols of a compiled grammar.
const GRAMMAR_SIZE_MAX: usize = 200_000;

/// What makes parsers for texts of these tokens. Tokens are not forced: where only one text can come, the model still chooses how to cut it.
pub(super) fn factory(
    codec: &dyn TextCodec,
    eos_ids: &[TokenId],
) -> Result<ParserFactory, GrammarError> {
    if !codec.has_exact_bytes() {
        let why = "its tokenizer does not say what bytes a token stands for";
        return Err(GrammarError::Model(why.to_owned()));
    }
    let known: Vec<u32> = eos_ids
        .iter()
        .map(|id| id.0)
        .filter(|&id| id < codec.vocab_size())
        .collect();
    let Some(&first) = known.first() else {
        let why = "it has no token that ends a text";
        return Err(GrammarError::Model(why.to_owned()));
    };
    let words: Vec<Vec<u8>> = (0..codec.vocab_size())
        .map(|id| word(codec, TokenId(id), known.contains(&id)))
        .collect();
    let info = TokRxInfo::new(codec.vocab_size(), first);
    let trie = TokTrie::from(&info, &words).with_eos_tokens(&known);
    let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let slices = SlicedBiasComputer::general_slices();
    let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
        .map_err(|error| GrammarError::Model(error.to_string()))?;
    factory.quiet();
    let limits = factory.limits_mut();
    limits.verbose_errors = false;
    limits.max_lexer_states = LEXER_STATES_MAX;
    limits.max_grammar_size = GRAMMAR_SIZE_MAX;
    Ok(factory)
}

/// The bytes of a token; none for an id without one.
fn word(codec: &dyn TextCodec, id: TokenId, ends: bool) -> Vec<u8> {
    let bytes = codec.token_bytes(id).unwrap_or_default();
    if ends || codec.is_special(id) {
        return [&[NO_TEXT][..], &bytes].concat();
    }
    match bytes.first() {
        Some(&NO_TEXT) => Vec::new(),
        _ => bytes,
    }
}
