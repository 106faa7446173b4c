//! Penalties on tokens that occurred before.

use super::TokenCounts;

/// Makes every token of prompt and output less likely: a positive logit is divided by `penalty`, a negative one multiplied.
///
/// Source: Keskar et al., "CTRL", 2019, section 4.1, in the form of transformers' `RepetitionPenaltyLogitsProcessor`.
pub fn repetition_penalty(row: &mut [f32], counts: &TokenCounts, penalty: f32) {
    for (id, _) in counts.iter() {
        if let Some(logit) = row.get_mut(id.0 as usize)
            && logit.is_finite()
        {
            let penalised = if *logit > 0.0 {
                *logit / penalty
            } else {
                *logit * penalty
            };
            // An extreme penalty must not make an infinity of a finite logit.
            *logit = penalised.clamp(f32::MIN / 4.0, f32::MAX / 4.0);
        }
    }
}

/// Subtracts `penalty` once from every token of the output.
///
/// Source: the formula in OpenAI's API reference ("frequency and presence penalties").
pub fn presence_penalty(row: &mut [f32], counts: &TokenCounts, penalty: f32) {
    subtract(row, counts, |_| penalty);
}

/// Subtracts `penalty` from every token of the output as often as it occurred there. Source: as for presence.
pub fn frequency_penalty(row: &mut [f32], counts: &TokenCounts, penalty: f32) {
    subtract(row, counts, |count| penalty * count as f32);
}

fn subtract(row: &mut [f32], counts: &TokenCounts, penalty: impl Fn(u32) -> f32) {
    for (id, count) in counts.iter().filter(|&(_, count)| count > 0) {
        if let Some(logit) = row.get_mut(id.0 as usize) {
            *logit -= penalty(count);
        }
    }
}
