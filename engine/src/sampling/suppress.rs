//! Tokens that must not come: the request's suppressed ones, the end ids before `min_tokens`, all but the allowed ones, and those that
//! would complete a bad sequence.

use crate::ids::TokenId;

/// Sets the tokens' logits to minus infinity. Ids beyond the row are ignored.
pub fn suppress_tokens(row: &mut [f32], tokens: &[TokenId]) {
    for id in tokens {
        if let Some(logit) = row.get_mut(id.0 as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Sets all logits but those of `allowed` to minus infinity; none allowed means all are. Ids beyond the row are ignored.
pub fn allow_tokens(row: &mut [f32], allowed: &[TokenId]) {
    if allowed.is_empty() {
        return;
    }
    let kept = |id: &TokenId| row.get(id.0 as usize).map(|&logit| (id.0 as usize, logit));
    let kept: Vec<(usize, f32)> = allowed.iter().filter_map(kept).collect();
    row.fill(f32::NEG_INFINITY);
    for (index, logit) in kept {
        row[index] = logit;
    }
}

/// Suppresses the last token of every sequence whose others are the end of `output`.
pub fn bad_sequences(row: &mut [f32], output: &[TokenId], sequences: &[Vec<TokenId>]) {
    for sequence in sequences {
        if let Some((last, others)) = sequence.split_last()
            && output.ends_with(others)
        {
            suppress_tokens(row, &[*last]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().map(|&id| TokenId(id)).collect()
    }

    fn open(row: &[f32]) -> Vec<usize> {
        let finite = row
            .iter()
            .enumerate()
            .filter(|(_, logit)| logit.is_finite());
        finite.map(|(index, _)| index).collect()
    }

    #[test]
    fn only_allowed_tokens_are_left_with_their_logits() {
        let mut row = [0.5, 1.5, 2.5, 3.5];
        allow_tokens(&mut row, &ids(&[2, 0, 2, 9]));
        assert_eq!(open(&row), [0, 2]);
        assert_eq!((row[0], row[2]), (0.5, 2.5));
        let mut row = [0.5; 4];
        allow_tokens(&mut row, &[]);
        assert_eq!(open(&row).len(), 4, "no rule");
    }

    #[test]
    fn a_bad_sequence_is_broken_off_before_its_last_token_only() {
        let sequences = [ids(&[3]), ids(&[1, 2]), ids(&[0, 1, 0])];
        let left = |output: &[u32]| {
            let mut row = [0.0; 4];
            bad_sequences(&mut row, &ids(output), &sequences);
            open(&row)
        };
        assert_eq!(left(&[]), [0, 1, 2]);
        assert_eq!(left(&[1]), [0, 1]);
        assert_eq!(left(&[0, 1]), [1]);
        assert_eq!(left(&[1, 0]), [0, 1, 2]);
    }
}
