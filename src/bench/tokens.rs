//! The model's tokenizer on the client's side: to make prompts of exact lengths and to check the server's counts.

use crate::start_error::StartError;
use rand::Rng;
use rand::seq::IndexedRandom;
use ropeteam_engine::ids::TokenId;
use ropeteam_engine::text::TextCodec;
use ropeteam_models::Checkpoint;
use ropeteam_models::text::{Codec, GgufText};
use std::path::Path;

/// Texts whose tokens melt together are drawn anew this often.
const ATTEMPTS: usize = 100;

/// A tokenizer, and those of its tokens that random prompts are made of.
pub struct Tokens {
    codec: Codec,
    /// Tokens that are a lower-case English word with a space before it: side by side they stay what they are.
    words: Vec<TokenId>,
}

impl Tokens {
    /// Opens a model's folder, its tokenizer.json, or a GGUF file.
    ///
    /// # Errors
    /// When there is no tokenizer that can be used.
    pub fn open(path: &Path) -> Result<Self, StartError> {
        let wrong =
            |error: &dyn std::fmt::Display| StartError::Usage(format!("tokenizer: {error}"));
        let codec = if path.is_dir() {
            Codec::from_folder(path).map_err(|error| wrong(&error))?
        } else if path.extension().is_some_and(|kind| kind == "gguf") {
            from_gguf(path).map_err(|problem| wrong(&problem))?
        } else {
            let name = path.display().to_string();
            let json = std::fs::read(path).map_err(|error| wrong(&format!("{name}: {error}")))?;
            Codec::from_json(&json, &name).map_err(|error| wrong(&error))?
        };
        let words = words(&codec);
        Ok(Tokens { codec, words })
    }

    /// Tokens of a text as a server counts them, its own begin token included if `special`. 0 for a text that it refuses.
    pub fn count(&self, text: &str, special: bool) -> u32 {
        let encoded = self.codec.encode(text, special);
        encoded.map_or(0, |ids| ids.len() as u32)
    }

    /// A random text of exactly `length` tokens after `prefix`, and all its ids; `None` when the vocabulary has no such texts.
    pub fn random(
        &self,
        length: usize,
        prefix: &[u32],
        rng: &mut impl Rng,
    ) -> Option<(String, Vec<u32>)> {
        for _ in 0..ATTEMPTS {
            let mut ids: Vec<_> = prefix.iter().copied().map(TokenId).collect();
            for _ in 0..length {
                ids.push(*self.words.choose(rng)?);
            }
            let text = self.codec.decode(&ids, false);
            if self.count(&text, false) as usize == ids.len() {
                return Some((text, ids.into_iter().map(|id| id.0).collect()));
            }
        }
        None
    }
}

fn from_gguf(path: &Path) -> Result<Codec, String> {
    let checkpoint = Checkpoint::open(path).map_err(|error| error.to_string())?;
    let name = path.display().to_string();
    let metadata = checkpoint
        .gguf()
        .ok_or_else(|| format!("{name}: no GGUF file"))?;
    let text = GgufText::from_metadata(metadata, &name).map_err(|error| error.to_string())?;
    Ok(text.codec)
}

fn words(codec: &Codec) -> Vec<TokenId> {
    let is_word = |id: &TokenId| {
        let Some(text) = codec.token_text(*id).filter(|_| !codec.is_special(*id)) else {
            return false;
        };
        let word = text.strip_prefix([' ', '\u{2581}']);
        word.is_some_and(|word| word.len() > 2 && word.bytes().all(|b| b.is_ascii_lowercase()))
    };
    (0..codec.vocab_size())
        .map(TokenId)
        .filter(is_word)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use std::path::PathBuf;

    #[test]
    fn random_prompts_have_the_length_asked_for_in_every_tokenizer() {
        let folder =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/text/tokenizers");
        for name in ["qwen2", "mistral", "llama3", "glm4", "gemma"] {
            let tokens = Tokens::open(&folder.join(name)).unwrap();
            let mut rng = StdRng::seed_from_u64(4);
            for length in [1, 7, 64] {
                let Some((text, ids)) = tokens.random(length, &[], &mut rng) else {
                    assert!(tokens.words.len() < 2, "{name}: no text of {length} tokens");
                    continue;
                };
                assert_eq!(ids.len(), length, "{name}: {text}");
                assert_eq!(
                    tokens.count(&text, false) as usize,
                    length,
                    "{name}: {text}"
                );
                let (longer, all) = tokens.random(5, &ids, &mut rng).unwrap();
                assert!(longer.starts_with(&text) && all.starts_with(&ids), "{name}");
            }
        }
    }

    #[test]
    fn what_is_no_tokenizer_is_refused_by_name() {
        let error = Tokens::open(Path::new("nowhere/tokenizer.json"))
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("nowhere/tokenizer.json"),
            "{error}"
        );
    }
}
