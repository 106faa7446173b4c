//! Random prompts. With a tokenizer they are words of its vocabulary whose text is checked to have the length asked for; without one,
//! token ids where the API takes them, else common words that most tokenizers know as one token each.

use super::{DatasetPlan, Prompt};
use crate::bench::tokens::Tokens;
use crate::start_error::StartError;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::fmt;
use std::str::FromStr;

/// How random prompts are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PromptAs {
    /// As text
    Text,
    /// As token ids
    Ids,
}

/// Token ids to draw from when there is no tokenizer, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// Lowest.
    pub low: u32,
    /// Highest.
    pub high: u32,
}

impl Default for IdRange {
    /// Inside the vocabulary of every model in use, above the special tokens and bytes that most have at its beginning.
    fn default() -> Self {
        IdRange {
            low: 1000,
            high: 30_000,
        }
    }
}

impl fmt::Display for IdRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.low, self.high)
    }
}

impl FromStr for IdRange {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let ends = word.split_once("..").and_then(|(low, high)| {
            let (low, high) = (low.parse().ok()?, high.parse().ok()?);
            (low <= high).then_some(IdRange { low, high })
        });
        ends.ok_or_else(|| format!("{word:?} is no range of ids: expected one like 1000..30000"))
    }
}

/// Seed of the shared prefix: the same in every run, so that a cache filled by one is found by the next.
const PREFIX_SEED: u64 = 7;

const WORDS: &[&str] = &[
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world",
    "school", "state", "family", "student", "group", "country", "problem", "hand", "part", "place",
    "case", "week", "company", "system", "program", "question", "work", "number", "night", "point",
    "home", "water", "room", "mother", "area", "money", "story", "fact", "month", "lot", "right",
    "study", "book", "eye", "job", "word", "business", "issue", "side", "kind", "head", "house",
    "service", "friend", "father", "power", "hour", "game", "line", "end", "member", "law", "car",
];

/// Makes prompts.
pub struct Maker<'a> {
    source: Source<'a>,
    prompt_as: PromptAs,
    prefix: Prefix,
}

enum Source<'a> {
    Tokenizer(&'a Tokens),
    Ids(IdRange),
    Words,
}

#[derive(Default)]
struct Prefix {
    text: String,
    ids: Vec<u32>,
}

impl<'a> Maker<'a> {
    /// Draws the shared prefix.
    ///
    /// # Errors
    /// When the vocabulary has no texts of that length.
    pub fn new(plan: &DatasetPlan, tokens: Option<&'a Tokens>) -> Result<Self, StartError> {
        let source = match (tokens, plan.prompt_as) {
            (Some(tokens), _) => Source::Tokenizer(tokens),
            (None, PromptAs::Ids) => Source::Ids(plan.ids),
            (None, PromptAs::Text) => Source::Words,
        };
        let mut maker = Maker {
            source,
            prompt_as: plan.prompt_as,
            prefix: Prefix::default(),
        };
        let mut rng = StdRng::seed_from_u64(PREFIX_SEED);
        maker.prefix = maker.draw(plan.shared_prefix, &mut rng)?;
        Ok(maker)
    }

    /// A prompt of `length` tokens after the shared prefix, and how many tokens it has where that is certain.
    ///
    /// # Errors
    /// When the vocabulary has no texts of that length.
    pub fn prompt(
        &mut self,
        length: u32,
        rng: &mut StdRng,
    ) -> Result<(Prompt, Option<u32>), StartError> {
        let Prefix { text, ids } = self.draw(length, rng)?;
        Ok(match (&self.source, self.prompt_as) {
            (_, PromptAs::Ids) => {
                let count = ids.len() as u32;
                (Prompt::Ids(ids), Some(count))
            }
            (Source::Tokenizer(tokens), PromptAs::Text) => {
                let count = tokens.count(&text, true);
                (Prompt::Text(text), Some(count))
            }
            (_, PromptAs::Text) => (Prompt::Text(text), None),
        })
    }

    fn draw(&self, length: u32, rng: &mut StdRng) -> Result<Prefix, StartError> {
        let (mut text, mut ids) = (self.prefix.text.clone(), self.prefix.ids.clone());
        match self.source {
            Source::Tokenizer(tokens) => {
                let made = tokens.random(length as usize, &ids, rng);
                (text, ids) = made.ok_or_else(|| {
                    let problem = "tokenizer: it has too few plain words to make prompts of; use a dataset from a file";
                    StartError::Usage(problem.to_owned())
                })?;
            }
            Source::Ids(IdRange { low, high }) => {
                ids.extend((0..length).map(|_| rng.random_range(low..=high)));
            }
            Source::Words => {
                for _ in 0..length {
                    text.push_str(if text.is_empty() { "" } else { " " });
                    text.push_str(WORDS.choose(rng).copied().unwrap_or("word"));
                }
            }
        }
        Ok(Prefix { text, ids })
    }
}
