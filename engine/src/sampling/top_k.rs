//! Top-k: only the k best tokens stay, and all that are tied with the k-th.

use super::Candidates;

/// Keeps the `k` best candidates and those tied with the last of them; `k` 0: off.
///
/// Source: `TopKLogitsWarper` of transformers.
pub fn top_k(candidates: &mut Candidates, k: u32) {
    let k = k as usize;
    if k == 0 || k >= candidates.len() {
        return;
    }
    let best = largest(&candidates.logits, k);
    candidates.keep_from(best.last().map_or(f32::NEG_INFINITY, |&(logit, _)| logit));
}

/// The `k` largest values with their indices, best first, the lower index first among equals.
/// One pass with a threshold that rises as better values come: O(n) for small `k`.
pub(super) fn largest(values: &[f32], k: usize) -> Vec<(f32, u32)> {
    let by_value = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    if k == 0 {
        return Vec::new();
    }
    let room = (2 * k).max(64).min(values.len());
    let mut best: Vec<(f32, u32)> = Vec::with_capacity(room);
    let mut threshold = f32::NEG_INFINITY;
    for (index, &value) in values.iter().enumerate() {
        // The first k come in whatever they are; later ones must beat the k-th best (an equal one loses by its index).
        if best.len() >= k && value <= threshold {
            continue;
        }
        best.push((value, index as u32));
        if best.len() == room && room > k {
            best.select_nth_unstable_by(k - 1, by_value);
            best.truncate(k);
            threshold = best[k - 1].0;
        }
    }
    best.sort_unstable_by(by_value);
    best.truncate(k);
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_largest_are_those_of_a_full_sort(
            values in prop::collection::vec((-20i32..20).prop_map(|v| v as f32), 1..400),
            k in 0usize..100,
        ) {
            let mut sorted: Vec<(f32, u32)> = values.iter().copied().zip(0..).collect();
            sorted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            sorted.truncate(k);
            prop_assert_eq!(largest(&values, k), sorted);
        }
    }
}
