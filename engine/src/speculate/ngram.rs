//! The guess: what followed the last time the sequence ended like this.

use super::DRAFTS_MAX;
use crate::ids::TokenId;

/// Shortest end of the text that must have occurred before; one token alone says too little.
const NGRAM_MIN: usize = 2;
/// Longest end that is compared; a longer match is no better.
const NGRAM_MAX: usize = 4;

/// Appends at most `count` tokens to `drafts`: those that follow the latest earlier occurrence of the longest end (of 2 to 4 tokens) of
/// `prompt` and `output` together. A text that runs in a circle is guessed to go on so, beyond its own end. O(length).
pub fn guess(prompt: &[TokenId], output: &[TokenId], count: u32, drafts: &mut Vec<TokenId>) {
    let text = Text { prompt, output };
    let Some(mut next) = text.place_after_match() else {
        return;
    };
    for _ in 0..count.min(DRAFTS_MAX) {
        let token = match next.checked_sub(text.len()) {
            None => text.token(next),
            Some(guessed) => drafts[guessed],
        };
        drafts.push(token);
        next += 1;
    }
}

/// A sequence's tokens, in two parts.
struct Text<'a> {
    prompt: &'a [TokenId],
    output: &'a [TokenId],
}

impl Text<'_> {
    fn len(&self) -> usize {
        self.prompt.len() + self.output.len()
    }

    fn token(&self, at: usize) -> TokenId {
        match at.checked_sub(self.prompt.len()) {
            None => self.prompt[at],
            Some(at) => self.output[at],
        }
    }

    /// The place behind the latest of the longest matches.
    fn place_after_match(&self) -> Option<usize> {
        let last = self.len().checked_sub(1)?;
        let token = self.token(last);
        let (mut place, mut longest) = (None, NGRAM_MIN - 1);
        let backwards = self.prompt.iter().chain(self.output).rev();
        let before = backwards.zip((0..=last).rev()).skip(1);
        for (_, end) in before.filter(|(earlier, _)| **earlier == token) {
            let matched = self.matched(end);
            if matched > longest {
                (place, longest) = (Some(end + 1), matched);
            }
            if longest == NGRAM_MAX {
                break;
            }
        }
        place
    }

    /// How many tokens up to `end` (included) are those that the text ends with, at most [`NGRAM_MAX`].
    fn matched(&self, end: usize) -> usize {
        let last = self.len() - 1;
        let most = NGRAM_MAX.min(end + 1);
        let equal = |back: &usize| self.token(end - back) == self.token(last - back);
        (0..most).take_while(equal).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids(tokens: &[u32]) -> Vec<TokenId> {
        tokens.iter().copied().map(TokenId).collect()
    }

    /// Checks the guess for every way to cut the text into prompt and output.
    fn check(text: &[u32], count: u32, expected: &[u32]) {
        let text = ids(text);
        for split in 0..=text.len() {
            let mut drafts = Vec::new();
            guess(&text[..split], &text[split..], count, &mut drafts);
            assert_eq!(drafts, ids(expected), "cut at {split}");
        }
    }

    #[test]
    fn what_followed_the_last_time_is_guessed() {
        check(&[1, 2, 3, 4, 5, 1, 2], 3, &[3, 4, 5]);
        check(&[1, 2, 3, 1, 2, 4, 1, 2], 1, &[4]);
    }

    #[test]
    fn a_longer_match_counts_more_than_a_later_one() {
        check(&[7, 1, 2, 3, 9, 1, 2, 4, 7, 1, 2], 1, &[3]);
    }

    #[test]
    fn one_common_token_is_no_reason_to_guess() {
        check(&[1, 2, 3, 2], 4, &[]);
        check(&[5], 4, &[]);
        check(&[], 4, &[]);
    }

    #[test]
    fn a_circle_is_followed_beyond_the_end_of_the_text() {
        check(&[8, 8, 8], 4, &[8, 8, 8, 8]);
        check(&[1, 2, 1, 2], 5, &[1, 2, 1, 2, 1]);
    }

    proptest! {
        #[test]
        fn a_guess_is_as_long_as_asked_for_or_nothing(
            text in prop::collection::vec(0u32..4, 0..40), split in 0usize..40, count in 0u32..10,
        ) {
            let text = ids(&text);
            let (prompt, output) = text.split_at(split.min(text.len()));
            let mut drafts = Vec::new();
            guess(prompt, output, count, &mut drafts);
            prop_assert!([0, count.min(DRAFTS_MAX) as usize].contains(&drafts.len()));
        }
    }
}
