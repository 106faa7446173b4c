//! Finds stop strings in a growing text and never shows a part of one.
//!
//! The rule: the text is read byte by byte; the first byte at which any stop string is complete ends it, and if several are
//! complete there the longest counts. So the outcome does not depend on how the text was cut into pieces.
//! The text of the first `min_tokens` tokens takes no part in it.

use thiserror::Error;

/// A stop string that would end everything at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a stop string must not be empty")]
pub struct EmptyStopString;

/// The state of the search in one sequence.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    strings: Vec<String>,
    include_stop_string: bool,
    min_tokens: u32,
    /// Not shown yet: a stop string may begin with it.
    held: String,
    matched: Option<usize>,
}

/// What a piece of text brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopStep {
    /// Text that may be shown now.
    pub text: String,
    /// Index of the stop string that ended the sequence; nothing is shown after it.
    pub matched: Option<usize>,
}

impl StopMatcher {
    /// A matcher at the beginning of the output.
    ///
    /// # Errors
    /// If a stop string is empty.
    pub fn new(
        strings: &[String],
        include_stop_string: bool,
        min_tokens: u32,
    ) -> Result<Self, EmptyStopString> {
        if strings.iter().any(String::is_empty) {
            return Err(EmptyStopString);
        }
        Ok(StopMatcher {
            strings: strings.to_vec(),
            include_stop_string,
            min_tokens,
            held: String::new(),
            matched: None,
        })
    }

    /// Takes the text that output token number `token` (the first is 1) completed, possibly none.
    pub fn push(&mut self, text: &str, token: u32) -> StopStep {
        if self.matched.is_some() {
            return StopStep {
                text: String::new(),
                matched: self.matched,
            };
        }
        if self.strings.is_empty() || token <= self.min_tokens {
            return StopStep {
                text: text.to_owned(),
                matched: None,
            };
        }
        self.held.push_str(text);
        match self.first_completed() {
            Some(found) => {
                self.matched = Some(found.string);
                let mut shown = std::mem::take(&mut self.held);
                shown.truncate(if self.include_stop_string {
                    found.end
                } else {
                    found.start
                });
                StopStep {
                    text: shown,
                    matched: self.matched,
                }
            }
            None => StopStep {
                text: self.release(),
                matched: None,
            },
        }
    }

    /// The text ended otherwise: returns what was held back.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// The stop string that ended the sequence.
    pub fn matched(&self) -> Option<&str> {
        self.matched.map(|index| self.strings[index].as_str())
    }

    /// The stop string that is complete first; among those that end at the same byte the longest.
    fn first_completed(&self) -> Option<Found> {
        let finds = self
            .strings
            .iter()
            .enumerate()
            .filter_map(|(string, stop)| {
                let start = self.held.find(stop.as_str())?;
                Some(Found {
                    string,
                    start,
                    end: start + stop.len(),
                })
            });
        finds.min_by_key(|found| (found.end, found.start, found.string))
    }

    /// Gives the text free that cannot be part of a match any more: all but the longest end that begins a stop string.
    fn release(&mut self) -> String {
        let longest = self.strings.iter().map(String::len).max().unwrap_or(0);
        let earliest = (self.held.len() + 1).saturating_sub(longest);
        let begins_a_stop = |&at: &usize| {
            self.strings
                .iter()
                .any(|stop| stop.as_bytes().starts_with(&self.held.as_bytes()[at..]))
        };
        let keep_from = (earliest..self.held.len())
            .filter(|&at| self.held.is_char_boundary(at))
            .find(begins_a_stop);
        let kept = self.held.split_off(keep_from.unwrap_or(self.held.len()));
        std::mem::replace(&mut self.held, kept)
    }
}

/// A complete stop string within the held text, in bytes.
struct Found {
    string: usize,
    start: usize,
    end: usize,
}
