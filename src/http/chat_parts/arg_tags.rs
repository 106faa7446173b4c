//! The arguments of a call as GLM-4.5 writes them: `<arg_key>city</arg_key><arg_value>Oslo</arg_value>`, one pair for each, turned into JSON.
//! A pair is told when it is whole. Values of parameters that the tool declares as strings are texts as they stand; others are JSON where
//! they can be read as such.

use super::first_marker;
use serde::de::IgnoredAny;
use serde_json::Value;

const KEY: &str = "<arg_key>";
const KEY_END: &str = "</arg_key>";
const VALUE: &str = "<arg_value>";
const VALUE_END: &str = "</arg_value>";

/// Where the reading stands.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// Before a key or the end.
    Key,
    InKey,
    /// Before the value of `key`.
    Value,
    InValue,
}

/// How far the arguments have come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More text is needed.
    Open,
    /// They ended with the call's own end.
    Complete,
    /// What stands there belongs to no call.
    Wrong,
}

/// Reads the arguments of one call.
#[derive(Debug)]
pub(super) struct TaggedArguments {
    place: Place,
    key: String,
    begun: bool,
    /// Names of parameters that are strings.
    texts: Vec<String>,
}

impl TaggedArguments {
    /// For a call whose parameters `texts` are strings.
    pub fn new(texts: Vec<String>) -> Self {
        TaggedArguments {
            place: Place::Key,
            key: String::new(),
            begun: false,
            texts,
        }
    }

    /// Takes from `held` what can be read, and adds to `json` what it says. `end` ends the call.
    pub fn read(&mut self, held: &mut String, end: &str, json: &mut String) -> Progress {
        loop {
            let next = match self.place {
                Place::Key => self.tag(held, &[KEY, end]),
                Place::Value => self.tag(held, &[VALUE]),
                Place::InKey => match text_before(held, KEY_END) {
                    None => return Progress::Open,
                    Some(key) => {
                        key.trim().clone_into(&mut self.key);
                        self.place = Place::Value;
                        continue;
                    }
                },
                Place::InValue => match text_before(held, VALUE_END) {
                    None => return Progress::Open,
                    Some(value) => {
                        self.tell(value, json);
                        self.place = Place::Key;
                        continue;
                    }
                },
            };
            match (next, &self.place) {
                (Ok(None), _) => return Progress::Open,
                (Err(NoTag), _) => return Progress::Wrong,
                (Ok(Some(0)), Place::Key) => self.place = Place::InKey,
                (Ok(Some(_)), Place::Key) => {
                    json.push_str(if self.begun { "}" } else { "{}" });
                    return Progress::Complete;
                }
                (Ok(Some(_)), _) => self.place = Place::InValue,
            }
        }
    }

    /// Takes blanks and one of the tags; its index, or `None` while that is open.
    fn tag(&self, held: &mut String, tags: &[&str]) -> Result<Option<usize>, NoTag> {
        let blanks = held.len() - held.trim_start().len();
        match first_marker(&held[blanks..], tags) {
            (0, Some(index)) => {
                held.drain(..blanks + tags[index].len());
                Ok(Some(index))
            }
            (0, None) => Ok(None),
            _ => Err(NoTag),
        }
    }

    fn tell(&mut self, value: String, json: &mut String) {
        json.push_str(if self.begun { ", " } else { "{" });
        self.begun = true;
        json.push_str(&format!("{}: ", Value::from(self.key.as_str())));
        let is_json = || serde_json::from_str::<IgnoredAny>(&value).is_ok();
        match !self.texts.contains(&self.key) && is_json() {
            true => json.push_str(value.trim()),
            false => json.push_str(&Value::String(value).to_string()),
        }
    }
}

/// None of the tags can stand there.
struct NoTag;

/// Takes a text and the tag behind it, once that is there.
fn text_before(held: &mut String, tag: &str) -> Option<String> {
    let at = held.find(tag)?;
    let text = held[..at].to_owned();
    held.drain(..at + tag.len());
    Some(text)
}
