//! The tokens that may still be drawn, with their processed logits.
//! Begins as the whole row; the truncating processors take tokens out.

use super::BadLogits;
use super::softmax;
use crate::ids::TokenId;

/// Candidates in ascending order of their ids, with room for the computations on them. Reused from row to row.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// Processed logits, one per candidate.
    pub(super) logits: Vec<f32>,
    /// Their ids; empty as long as nothing was taken out and candidate `i` is token `i`.
    ids: Vec<TokenId>,
    /// `exp(logit - highest logit)` per candidate, after [`weigh`](Self::weigh).
    pub(super) weights: Vec<f32>,
    /// Sums of runs of weights, during a draw.
    pub(super) run_sums: Vec<f64>,
    /// Candidates, as (rank, index), while they are being sorted.
    order: Vec<(f32, u32)>,
    /// Highest values of the stretches of a row, while its best ones are looked for.
    highest: Vec<f32>,
}

/// Length of the stretches of a row whose highest values tell where its best ones can be.
const STRETCH: usize = 64;

impl Candidates {
    /// Begins with all tokens of `row`, `[vocab]`.
    pub fn begin(&mut self, row: &[f32]) {
        self.ids.clear();
        self.logits.clear();
        self.logits.extend_from_slice(row);
    }

    /// Begins with the `k` best tokens of `row`, `[vocab]`, and a few others: all that could be tied with the k-th however the values
    /// are scaled. One pass over the row, and one over the stretches of it that hold any of them.
    ///
    /// # Errors
    /// When the row holds NaN.
    pub(super) fn begin_with_best(&mut self, row: &[f32], k: usize) -> Result<(), BadLogits> {
        if !softmax::highest_of_each(row, STRETCH, &mut self.highest) {
            return Err(BadLogits::NotANumber);
        }
        // Each of the k highest stretches has a value as high as the k-th of them, so the k-th best value is at least that.
        let lowest = match self.highest.len() {
            stretches if k < stretches => {
                self.order.clear();
                self.order.extend(self.highest.iter().map(|&h| (h, 0)));
                let by_value = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0);
                let (_, kth, _) = self.order.select_nth_unstable_by(k - 1, by_value);
                // A little below, where scaling could round to the same value.
                kth.0 - kth.0.abs() * 1e-6
            }
            _ => f32::NEG_INFINITY,
        };
        self.ids.clear();
        self.logits.clear();
        for (at, stretch) in row.chunks(STRETCH).enumerate() {
            if self.highest[at] < lowest {
                continue;
            }
            for (&logit, id) in stretch.iter().zip(at * STRETCH..) {
                if logit >= lowest {
                    self.logits.push(logit);
                    self.ids.push(TokenId(id as u32));
                }
            }
        }
        Ok(())
    }

    /// Begins with these tokens, ids ascending.
    pub(super) fn begin_among(&mut self, best: &[(TokenId, f32)]) {
        self.ids.clear();
        self.ids.extend(best.iter().map(|&(id, _)| id));
        self.logits.clear();
        self.logits.extend(best.iter().map(|&(_, logit)| logit));
    }

    /// How many candidates there are (those at minus infinity included).
    pub fn len(&self) -> usize {
        self.logits.len()
    }

    /// Whether nothing was begun.
    pub fn is_empty(&self) -> bool {
        self.logits.is_empty()
    }

    /// The whole row of logits for changes by token id; only before anything was taken out.
    pub fn row_mut(&mut self) -> &mut [f32] {
        assert!(
            self.ids.is_empty(),
            "tokens are addressed by id before any is taken out"
        );
        &mut self.logits
    }

    /// Token of candidate number `index`.
    pub fn id(&self, index: usize) -> TokenId {
        match self.ids.get(index) {
            Some(&id) => id,
            None => TokenId(index as u32),
        }
    }

    /// Token and logit of every candidate.
    pub fn iter(&self) -> impl Iterator<Item = (TokenId, f32)> {
        self.logits
            .iter()
            .enumerate()
            .map(|(index, &logit)| (self.id(index), logit))
    }

    /// The highest logit.
    ///
    /// # Errors
    /// When there is NaN or plus infinity, or nothing above minus infinity.
    pub fn max(&self) -> Result<f32, BadLogits> {
        softmax::max(&self.logits)
    }

    /// Token with the highest logit, the lowest id among equals.
    ///
    /// # Errors
    /// As [`max`](Self::max).
    pub fn best(&self) -> Result<TokenId, BadLogits> {
        Ok(self.id(softmax::argmax(&self.logits)?))
    }

    /// Computes the weights and returns their sum: a candidate's probability is its weight by that.
    ///
    /// # Errors
    /// As [`max`](Self::max).
    pub fn weigh(&mut self) -> Result<f64, BadLogits> {
        let max = self.max()?;
        Ok(softmax::exp_weights(&self.logits, max, &mut self.weights))
    }

    /// Keeps the candidates whose logit is at least `lowest`.
    pub fn keep_from(&mut self, lowest: f32) {
        let mut kept_ids = std::mem::take(&mut self.ids);
        let had_ids = !kept_ids.is_empty();
        let mut kept = 0;
        for index in 0..self.logits.len() {
            let logit = self.logits[index];
            if logit < lowest {
                continue;
            }
            self.logits[kept] = logit;
            match had_ids {
                true => kept_ids[kept] = kept_ids[index],
                false => kept_ids.push(TokenId(index as u32)),
            }
            kept += 1;
        }
        self.logits.truncate(kept);
        kept_ids.truncate(kept);
        self.ids = kept_ids;
    }

    /// Keeps the smallest set that has at least `mass` of the weights, taking candidates in the order of `rank`
    /// (lowest first, then by id). Candidates with a weight below `least_weight` must not be needed for that.
    /// The weights must have been computed.
    pub(super) fn keep_mass(&mut self, mass: f64, least_weight: f32, rank: impl Fn(f32) -> f32) {
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        let candidates = self.logits.iter().zip(&self.weights).zip(0u32..);
        let needed = candidates.filter(|((_, weight), _)| **weight >= least_weight);
        order.extend(needed.map(|((&logit, _), index)| (rank(logit), index)));
        let kept = self.smallest_prefix(&mut order, mass);
        order.truncate(kept);
        order.sort_unstable_by_key(|&(_, index)| index);
        self.keep_indices(&order);
        self.order = order;
    }

    /// Moves the (rank, index) pairs that come first and whose weights together reach `mass` to the front of `order`;
    /// returns how many they are. Halves the open part by selection instead of sorting all of it: O(n).
    fn smallest_prefix(&self, order: &mut [(f32, u32)], mass: f64) -> usize {
        /// Below this many sorting is quicker.
        const SORTED: usize = 64;
        let weight = |&(_, index): &(f32, u32)| f64::from(self.weights[index as usize]);
        let by_rank = |a: &(f32, u32), b: &(f32, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        let (mut low, mut high, mut reached) = (0, order.len(), 0.0);
        while high - low > SORTED {
            let middle = low + (high - low) / 2;
            order[low..high].select_nth_unstable_by(middle - low, by_rank);
            let front: f64 = order[low..middle].iter().map(weight).sum();
            if reached + front >= mass {
                high = middle;
            } else {
                reached += front;
                low = middle;
            }
        }
        order[low..high].sort_unstable_by(by_rank);
        while low < high && (reached < mass || low == 0) {
            reached += weight(&order[low]);
            low += 1;
        }
        low
    }

    /// Keeps the candidates with the ascending `indices`, the second of each pair.
    fn keep_indices(&mut self, indices: &[(f32, u32)]) {
        let mut ids = std::mem::take(&mut self.ids);
        let had_ids = !ids.is_empty();
        for (kept, &(_, index)) in indices.iter().enumerate() {
            self.logits[kept] = self.logits[index as usize];
            match had_ids {
                true => ids[kept] = ids[index as usize],
                false => ids.push(TokenId(index)),
            }
        }
        self.logits.truncate(indices.len());
        ids.truncate(indices.len());
        self.ids = ids;
    }
}
