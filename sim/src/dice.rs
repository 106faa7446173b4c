//! Chance from a seed: the same seed throws the same dice.

/// SplitMix64 (Steele, Lea, Flood 2014); enough to vary scenarios.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice of that seed.
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// The next number.
    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.throw() % bound
    }

    /// Once in `n` throws.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
