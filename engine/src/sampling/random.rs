//! Random numbers as a function of (seed, position): no state, so a sequence draws the same numbers wherever it goes on.
//!
//! Source: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// What the numbers are used for; each use has its own.
#[derive(Clone, Copy)]
enum Purpose {
    Draw = 0,
    ChoiceSeed = 1,
}

/// A number evenly spread over `[0, 1)`, a multiple of 2^-53: the one that output token `position` is drawn with.
pub fn uniform(seed: u64, position: u64) -> f64 {
    let bits = random_bits(seed, position, Purpose::Draw);
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// The seed of choice number `choice` of a request; the first choice has the request's own.
pub fn choice_seed(seed: u64, choice: u32) -> u64 {
    match choice {
        0 => seed,
        choice => random_bits(seed, u64::from(choice), Purpose::ChoiceSeed),
    }
}

fn random_bits(seed: u64, counter: u64, purpose: Purpose) -> u64 {
    let counter = [counter as u32, (counter >> 32) as u32, purpose as u32, 0];
    let words = philox(counter, [seed as u32, (seed >> 32) as u32]);
    u64::from(words[0]) | u64::from(words[1]) << 32
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let low = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let high = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (high >> 32) as u32 ^ counter[1] ^ key[0],
            high as u32,
            (low >> 32) as u32 ^ counter[3] ^ key[1],
            low as u32,
        ];
        key = [
            key[0].wrapping_add(KEY_STEPS[0]),
            key[1].wrapping_add(KEY_STEPS[1]),
        ];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of the authors' Random123 distribution (`kat_vectors`, philox 4x32 10).
    #[test]
    fn philox_gives_the_published_answers() {
        let zeros = philox([0; 4], [0; 2]);
        assert_eq!(zeros, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = philox([u32::MAX; 4], [u32::MAX; 2]);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = philox(
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
        );
        assert_eq!(pi, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn choices_have_different_seeds_and_the_first_keeps_its_own() {
        let mut seeds: Vec<u64> = (0..1000).map(|choice| choice_seed(7, choice)).collect();
        assert_eq!(seeds[0], 7);
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 1000);
        assert_ne!(choice_seed(8, 1), choice_seed(7, 1));
    }

    #[test]
    fn the_numbers_are_even_over_positions_and_over_seeds() {
        for number in [|i| uniform(1, i), |i| uniform(i, 5)] {
            let mut bins = [0u32; 16];
            (0..16_000).for_each(|i| bins[(number(i) * 16.0) as usize] += 1);
            let chi_square: f64 = bins
                .iter()
                .map(|&n| (f64::from(n) - 1000.0).powi(2) / 1000.0)
                .sum();
            assert!(
                chi_square < 37.7,
                "chi-square {chi_square} of 15 degrees, limit for 0.1 %"
            );
        }
    }
}
