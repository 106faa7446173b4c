//! The forms that `prompt` of `/v1/completions` and `input` of `/v1/embeddings` may have: a text, a list of texts, token ids, or a list of lists of token ids.

use super::checks::token_id;
use crate::http::refusal::Refusal;
use crate::http::state::Serving;
use ropeteam_engine::request::Prompt;
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Unexpected, Visitor};
use std::fmt;

/// Most prompts in one request.
const PROMPTS_MAX: usize = 2048;

/// `prompt` as it was sent.
#[derive(Debug, PartialEq)]
pub enum Prompts {
    /// Texts; a single string is a list of one.
    Texts(Vec<String>),
    /// Token ids, not yet checked; a single list is a list of one.
    Ids(Vec<Vec<i64>>),
}

impl Prompts {
    /// The prompts in the engine's terms; `field` is what holds them.
    ///
    /// # Errors
    /// No or too many prompts, an empty list of ids, an id that the model has not.
    pub fn checked(
        self,
        field: &str,
        add_special_tokens: bool,
        serving: &Serving,
    ) -> Result<Vec<Prompt>, Refusal> {
        let prompts: Vec<Prompt> = match self {
            Prompts::Texts(texts) => texts
                .into_iter()
                .map(|text| Prompt::Text {
                    text,
                    add_special_tokens,
                })
                .collect(),
            Prompts::Ids(lists) => lists
                .into_iter()
                .map(|ids| {
                    if ids.is_empty() {
                        let message = format!("{field} must not hold an empty list of token ids");
                        return Err(Refusal::invalid(field, message));
                    }
                    let ids = ids.into_iter().map(|id| token_id(field, id, serving));
                    Ok(Prompt::Ids(ids.collect::<Result<_, _>>()?))
                })
                .collect::<Result<_, _>>()?,
        };
        if prompts.is_empty() || prompts.len() > PROMPTS_MAX {
            return Err(Refusal::invalid(
                field,
                format!(
                    "{field} must hold from 1 to {PROMPTS_MAX} prompts, got {}",
                    prompts.len()
                ),
            ));
        }
        Ok(prompts)
    }
}

/// One element of the list.
enum Item {
    Text(String),
    Id(i64),
    Ids(Vec<i64>),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct ItemVisitor;
        impl<'de> Visitor<'de> for ItemVisitor {
            type Value = Item;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a token id or a list of token ids")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Item, E> {
                Ok(Item::Text(text.to_owned()))
            }
            fn visit_i64<E: Error>(self, id: i64) -> Result<Item, E> {
                Ok(Item::Id(id))
            }
            fn visit_u64<E: Error>(self, id: u64) -> Result<Item, E> {
                i64::try_from(id)
                    .map(Item::Id)
                    .map_err(|_| E::invalid_value(Unexpected::Unsigned(id), &"a token id"))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Item, A::Error> {
                let mut ids = Vec::new();
                while let Some(id) = list.next_element()? {
                    ids.push(id);
                }
                Ok(Item::Ids(ids))
            }
        }
        source.deserialize_any(ItemVisitor)
    }
}

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct PromptsVisitor;
        impl<'de> Visitor<'de> for PromptsVisitor {
            type Value = Prompts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a string, a list of strings, a list of token ids, or a list of such lists",
                )
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Prompts, E> {
                Ok(Prompts::Texts(vec![text.to_owned()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Prompts, A::Error> {
                let mut gathered = Gathered::default();
                while let Some(item) = list.next_element()? {
                    match item {
                        Item::Text(text) => gathered.texts.push(text),
                        Item::Id(id) => gathered.ids.push(id),
                        Item::Ids(ids) => gathered.lists.push(ids),
                    }
                }
                gathered
                    .prompts()
                    .ok_or_else(|| A::Error::custom("strings, token ids and lists cannot be mixed"))
            }
        }
        source.deserialize_any(PromptsVisitor)
    }
}

/// Elements by kind; only one kind may occur.
#[derive(Default)]
struct Gathered {
    texts: Vec<String>,
    ids: Vec<i64>,
    lists: Vec<Vec<i64>>,
}

impl Gathered {
    fn prompts(self) -> Option<Prompts> {
        match (
            self.texts.is_empty(),
            self.ids.is_empty(),
            self.lists.is_empty(),
        ) {
            (_, true, true) => Some(Prompts::Texts(self.texts)),
            (true, false, true) => Some(Prompts::Ids(vec![self.ids])),
            (true, true, false) => Some(Prompts::Ids(self.lists)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> Option<Prompts> {
        serde_json::from_str(json).ok()
    }

    #[test]
    fn all_four_forms_are_read() {
        let texts =
            |list: &[&str]| Some(Prompts::Texts(list.iter().map(|&t| t.to_owned()).collect()));
        assert_eq!(parsed(r#""C""#), texts(&["C"]));
        assert_eq!(parsed(r#"["C","A"]"#), texts(&["C", "A"]));
        assert_eq!(parsed("[67]"), Some(Prompts::Ids(vec![vec![67]])));
        assert_eq!(
            parsed("[[67],[65]]"),
            Some(Prompts::Ids(vec![vec![67], vec![65]]))
        );
        assert_eq!(parsed("[]"), texts(&[]));
        assert_eq!(parsed("[-1]"), Some(Prompts::Ids(vec![vec![-1]])));
    }

    #[test]
    fn what_is_no_prompt_is_refused() {
        for json in [
            "[67.5]",
            r#"["C",67]"#,
            r#"[[67],"C"]"#,
            "[null]",
            "[true]",
            r#"{"a":1}"#,
            "7",
            "[[[1]]]",
            "[18446744073709551615]",
        ] {
            assert_eq!(parsed(json), None, "{json}");
        }
    }
}
