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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matcher(stops: &[&str]) -> StopMatcher {
        let stops: Vec<String> = stops.iter().map(|&stop| stop.to_owned()).collect();
        StopMatcher::new(&stops, false, 0).unwrap()
    }

    /// Feeds the pieces as tokens 1, 2, ...; returns all that is shown, the flushed rest included, and the match.
    fn run(mut matcher: StopMatcher, pieces: &[&str]) -> (String, Option<String>) {
        let mut shown = String::new();
        for (piece, token) in pieces.iter().zip(1..) {
            shown.push_str(&matcher.push(piece, token).text);
        }
        shown.push_str(&matcher.finish());
        (shown, matcher.matched().map(str::to_owned))
    }

    fn check(stops: &[&str], pieces: &[&str], shown: &str, matched: Option<&str>) {
        let expected = (shown.to_owned(), matched.map(str::to_owned));
        assert_eq!(run(matcher(stops), pieces), expected);
    }

    #[test]
    fn the_match_that_is_complete_first_wins() {
        check(&["45"], &["0123", "4", "5", "6"], "0123", Some("45"));
        check(&["5", "34"], &["012345"], "012", Some("34"));
        check(&["345", "4"], &["012345"], "0123", Some("4"));
        check(&["4", "34"], &["012345"], "012", Some("34"));
    }

    #[test]
    fn text_that_turns_out_not_to_match_is_delivered() {
        check(&["9.Z"], &["8", "9", "."], "89.", None);
        check(&["aab"], &["a", "a", "a", "c"], "aaac", None);
    }

    #[test]
    fn half_a_stop_string_is_held_back() {
        let mut matcher = matcher(&["</s>"]);
        assert_eq!(matcher.push("a</", 1).text, "a");
        assert_eq!(matcher.push("s", 2).text, "");
        assert_eq!(matcher.push("t", 3).text, "</st");
    }

    #[test]
    fn the_stop_string_stays_if_wanted_but_nothing_after_it() {
        let matcher = StopMatcher::new(&["45".to_owned()], true, 0).unwrap();
        let expected = ("012345".to_owned(), Some("45".to_owned()));
        assert_eq!(run(matcher, &["01234", "56"]), expected);
    }

    #[test]
    fn the_text_of_the_first_tokens_takes_no_part() {
        let matcher = StopMatcher::new(&["3".to_owned(), "45".to_owned()], false, 5).unwrap();
        let pieces = ["0", "1", "2", "3", "4", "5", "3", "6"];
        let expected = ("012345".to_owned(), Some("3".to_owned()));
        assert_eq!(run(matcher, &pieces), expected);
    }

    #[test]
    fn an_empty_stop_string_is_refused() {
        assert!(StopMatcher::new(&["a".to_owned(), String::new()], false, 0).is_err());
    }

    /// Reads the whole text byte by byte.
    fn naive(stops: &[String], text: &str) -> (String, Option<String>) {
        for end in 1..=text.len() {
            let ending = stops
                .iter()
                .filter(|stop| text.as_bytes()[..end].ends_with(stop.as_bytes()));
            if let Some(stop) = ending.max_by_key(|stop| stop.len()) {
                return (text[..end - stop.len()].to_owned(), Some(stop.clone()));
            }
        }
        (text.to_owned(), None)
    }

    proptest! {
        #[test]
        fn any_chunking_gives_what_a_search_in_the_whole_text_gives(
            pieces in prop::collection::vec("[abé🦜]{0,4}", 0..12),
            stops in prop::collection::vec("[abé🦜]{1,4}", 0..4),
        ) {
            let mut matcher = StopMatcher::new(&stops, false, 0).unwrap();
            let (expected, stop) = naive(&stops, &pieces.concat());
            let mut shown = String::new();
            for (piece, token) in pieces.iter().zip(1..) {
                shown.push_str(&matcher.push(piece, token).text);
                prop_assert!(expected.starts_with(&shown), "nothing is shown too early");
            }
            shown.push_str(&matcher.finish());
            prop_assert_eq!((shown, matcher.matched().map(str::to_owned)), (expected, stop));
        }
    }
}
