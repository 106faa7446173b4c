//! Merges of a SentencePiece vocabulary, which lists scores instead: of two neighbours that join to a token, those
//! with the best score join first.

use std::collections::HashMap;

/// One way to join two tokens.
struct Merge<'v> {
    left: &'v str,
    right: &'v str,
    score: f32,
}

/// All merges between the given tokens (text and score, in the order of their ids), best first.
///
/// Among equal scores the longer left part goes first, as in the merges that Hugging Face's converter writes.
pub(super) fn from_scores<'v>(
    tokens: impl Iterator<Item = (&'v str, f32)>,
) -> Vec<(String, String)> {
    let scores: Vec<(&str, f32)> = tokens.collect();
    let rank: HashMap<&str, usize> = scores
        .iter()
        .enumerate()
        .map(|(i, &(token, _))| (token, i))
        .collect();
    let mut merges: Vec<Merge<'v>> = Vec::new();
    for &(token, score) in &scores {
        let first = merges.len();
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if rank.contains_key(left) && rank.contains_key(right) {
                merges.push(Merge { left, right, score });
            }
        }
        merges[first..].sort_by_key(|merge| (rank[merge.left], rank[merge.right]));
    }
    let chars = |text: &str| text.chars().count();
    merges.sort_by(|a, b| {
        let longer = |x: &str, y: &str| chars(y).cmp(&chars(x));
        b.score
            .total_cmp(&a.score)
            .then_with(|| longer(a.left, b.left))
            .then_with(|| longer(a.right, b.right))
    });
    merges
        .into_iter()
        .map(|merge| (merge.left.to_owned(), merge.right.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_score_merges_first() {
        let tokens = [
            ("a", 0.0),
            ("b", 0.0),
            ("ab", -2.0),
            ("aba", -1.0),
            ("x", 0.0),
        ];
        let merges = from_scores(tokens.into_iter());
        let merges: Vec<(&str, &str)> = merges.iter().map(|(l, r)| (&l[..], &r[..])).collect();
        assert_eq!(merges, [("ab", "a"), ("a", "b")]);
    }
}
