//! How a byte-level vocabulary splits a text before it merges: the names that `tokenizer.ggml.pre` may have.
//! Not here: SentencePiece vocabularies, which do not split.
//!
//! Source of the names: <https://github.com/ggml-org/llama.cpp/blob/00ad355e009e83abf98f96a6ded7193b95763681/src/llama-vocab.cpp>;
//! of the patterns: tokenizer.json of the models that brought them up.

use serde_json::{Value, json};

use super::super::TokenizerError;

/// One way of splitting.
pub(super) struct PreTokenizer {
    names: &'static [&'static str],
    /// Each is applied to what the one before left; every match becomes a piece of its own.
    patterns: &'static [&'static str],
    /// After them, the pattern of GPT-2.
    gpt2: bool,
    /// The text is composed first (NFC).
    composes: bool,
    /// A piece that is a token is taken whole, without merging.
    pub whole_words_first: bool,
    /// The begin token is added unless the file says otherwise.
    pub adds_begin: bool,
}

impl PreTokenizer {
    const fn new(names: &'static [&'static str], patterns: &'static [&'static str]) -> Self {
        Self {
            names,
            patterns,
            gpt2: false,
            composes: false,
            whole_words_first: false,
            adds_begin: false,
        }
    }

    const fn then_gpt2(self) -> Self {
        Self { gpt2: true, ..self }
    }

    const fn composing(self) -> Self {
        Self {
            composes: true,
            ..self
        }
    }

    const fn whole_words_first_with_begin(self) -> Self {
        Self {
            whole_words_first: true,
            adds_begin: true,
            ..self
        }
    }

    /// The normalizer, as in tokenizer.json.
    pub fn normalizer(&self) -> Value {
        match self.composes {
            true => json!({"type": "NFC"}),
            false => json!({"type": "Sequence", "normalizers": []}),
        }
    }

    /// The pre-tokenizer, as in tokenizer.json.
    pub fn steps(&self) -> Value {
        let split = |pattern: &&str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        let mut steps: Vec<Value> = self.patterns.iter().map(split).collect();
        let mut bytes = byte_level();
        bytes["use_regex"] = self.gpt2.into();
        steps.push(bytes);
        json!({"type": "Sequence", "pretokenizers": steps})
    }
}

/// Bytes as characters, as in tokenizer.json.
pub(super) fn byte_level() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false})
}

const DIGIT: &str = r"\p{N}";
const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_3_5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT_4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK_3: [&str; 3] = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];
const GPT_2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// All that are known. A name that is missing in a file means "default".
static KNOWN: &[PreTokenizer] = &[
    PreTokenizer::new(
        &["default"],
        &[r"[\p{P}\$\+<=>\^~\|]+", GPT_2, r"\p{N}+", "[0-9][0-9][0-9]"],
    ),
    PreTokenizer::new(&["gpt-2", "phi-2", "mpt", "olmo"], &[]).then_gpt2(),
    PreTokenizer::new(
        &["smollm", "starcoder", "refact", "command-r", "codeshell"],
        &[DIGIT],
    )
    .then_gpt2(),
    PreTokenizer::new(&["llama-bpe", "llama3", "llama-v3"], &[LLAMA_3])
        .whole_words_first_with_begin(),
    PreTokenizer::new(&["glm4", "chatglm-bpe", "smaug-bpe", "dbrx"], &[LLAMA_3]),
    PreTokenizer::new(&["qwen2", "deepseek-r1-qwen", "megrez"], &[QWEN_2]).composing(),
    PreTokenizer::new(&["stablelm2"], &[QWEN_2]),
    PreTokenizer::new(&["qwen35"], &[QWEN_3_5]).composing(),
    PreTokenizer::new(&["tekken"], &[TEKKEN]).whole_words_first_with_begin(),
    PreTokenizer::new(&["gpt-4o", "llama4"], &[GPT_4O]),
    PreTokenizer::new(&["deepseek-v3"], &DEEPSEEK_3),
];

/// The way of splitting that a file names.
pub(super) fn find(
    name: Option<&str>,
    origin: &str,
) -> Result<&'static PreTokenizer, TokenizerError> {
    let name = name.unwrap_or_else(|| {
        tracing::warn!(
            file = origin,
            "the file does not say how it splits text, using the default"
        );
        "default"
    });
    KNOWN
        .iter()
        .find(|known| known.names.contains(&name))
        .ok_or_else(|| {
            let names: Vec<&str> = KNOWN.iter().flat_map(|k| k.names).copied().collect();
            TokenizerError::UnknownPreTokenizer {
                origin: origin.to_owned(),
                name: name.to_owned(),
                supported: names.join(", "),
            }
        })
}
