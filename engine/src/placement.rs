//! Which device gets a sequence: the one that probably has its prompt in the prefix cache, unless that one is much busier
//! than others; then the one with the fewest sequences.

use crate::ids::{DeviceId, TokenId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What a device is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Prompts and decoding.
    #[default]
    Mixed,
    /// Prompts; takes new sequences.
    Prefill,
    /// Decoding of sequences handed over by a prefill device; takes no new ones.
    Decode,
}

impl Role {
    /// Whether new sequences may be placed on such a device.
    pub fn takes_new(self) -> bool {
        self != Role::Decode
    }
}

/// A device that could take the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The device.
    pub device: DeviceId,
    /// Sequences on it or on their way to it.
    pub sequences: u32,
    /// Blocks it may still be promised.
    pub blocks: u32,
}

/// Cached tokens that outweigh one more sequence on the device.
const TOKENS_PER_SEQUENCE: u32 = 256;

/// Chooses among the candidates; `cached` is a device that probably has so many of the prompt's tokens in its prefix cache.
pub fn choose(candidates: &[Candidate], cached: Option<(DeviceId, u32)>) -> Option<DeviceId> {
    let by_load = |c: &&Candidate| (c.sequences, std::cmp::Reverse(c.blocks), c.device);
    let least_loaded = candidates.iter().min_by_key(by_load)?;
    let cached = cached.and_then(|(device, tokens)| {
        let candidate = candidates
            .iter()
            .find(|candidate| candidate.device == device)?;
        let worth_it = least_loaded.sequences + tokens / TOKENS_PER_SEQUENCE + 1;
        (candidate.sequences <= worth_it).then_some(device)
    });
    Some(cached.unwrap_or(least_loaded.device))
}

/// Remembers which device last got which prompt prefix. Bounded: the least recently used half is forgotten now and then.
#[derive(Clone, Debug, Default)]
pub struct Affinity {
    recent: HashMap<u64, DeviceId>,
    older: HashMap<u64, DeviceId>,
}

impl Affinity {
    /// Prefixes are remembered at multiples of so many tokens.
    const STRIDE: usize = 64;
    /// And up to so many strides.
    const STRIDES: usize = 64;
    /// Prefixes in each half.
    const HALF: usize = 16_384;

    /// The device that last got the longest remembered prefix of the prompt, and that prefix's length in tokens.
    pub fn find(&self, prompt: &[TokenId], salt: u64) -> Option<(DeviceId, u32)> {
        let known = |hash| {
            self.recent
                .get(&hash)
                .or_else(|| self.older.get(&hash))
                .copied()
        };
        let prefixes = prefix_hashes(prompt, salt).zip(1u32..);
        let found = prefixes.map_while(|(hash, strides)| Some((known(hash)?, strides)));
        found
            .last()
            .map(|(device, strides)| (device, strides * Self::STRIDE as u32))
    }

    /// Notes that the device gets the prompt.
    pub fn note(&mut self, prompt: &[TokenId], salt: u64, device: DeviceId) {
        if self.recent.len() >= Self::HALF {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent
            .extend(prefix_hashes(prompt, salt).map(|hash| (hash, device)));
    }

    /// Forgets a device: its cache is lost.
    pub fn forget(&mut self, device: DeviceId) {
        self.recent.retain(|_, known| *known != device);
        self.older.retain(|_, known| *known != device);
    }
}

/// Hashes of the prompt's prefixes at every stride.
fn prefix_hashes(prompt: &[TokenId], salt: u64) -> impl Iterator<Item = u64> {
    let mut hasher = DefaultHasher::new();
    salt.hash(&mut hasher);
    prompt
        .chunks_exact(Affinity::STRIDE)
        .take(Affinity::STRIDES)
        .map(move |stride| {
            stride.hash(&mut hasher);
            hasher.finish()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(device: u16, sequences: u32, blocks: u32) -> Candidate {
        Candidate {
            device: DeviceId(device),
            sequences,
            blocks,
        }
    }

    fn prompt(len: u32, start: u32) -> Vec<TokenId> {
        (start..start + len).map(TokenId).collect()
    }

    #[test]
    fn the_least_loaded_device_is_chosen_then_the_one_with_more_blocks_then_the_first() {
        let check = |candidates: &[Candidate], expected: u16| {
            assert_eq!(choose(candidates, None), Some(DeviceId(expected)));
        };
        check(&[candidate(0, 3, 9), candidate(1, 2, 1)], 1);
        check(&[candidate(0, 2, 1), candidate(1, 2, 9)], 1);
        check(&[candidate(1, 2, 9), candidate(0, 2, 9)], 0);
        assert_eq!(choose(&[], None), None);
    }

    #[test]
    fn a_cached_prefix_draws_a_sequence_as_far_as_it_is_worth_the_wait() {
        let cached = |tokens| Some((DeviceId(0), tokens));
        let at = |sequences| [candidate(0, sequences, 9), candidate(1, 1, 9)];
        assert_eq!(choose(&at(2), cached(64)), Some(DeviceId(0)));
        assert_eq!(choose(&at(3), cached(64)), Some(DeviceId(1)));
        assert_eq!(choose(&at(5), cached(1024)), Some(DeviceId(0)));
        assert_eq!(
            choose(&[candidate(1, 9, 9)], cached(1024)),
            Some(DeviceId(1))
        );
    }

    #[test]
    fn the_longest_known_prefix_is_found_within_its_salt_until_the_device_is_forgotten() {
        let mut affinity = Affinity::default();
        affinity.note(&prompt(200, 0), 0, DeviceId(1));
        affinity.note(&prompt(70, 0), 0, DeviceId(2));
        assert_eq!(affinity.find(&prompt(500, 0), 0), Some((DeviceId(1), 192)));
        assert_eq!(affinity.find(&prompt(100, 0), 0), Some((DeviceId(2), 64)));
        assert_eq!(affinity.find(&prompt(63, 0), 0), None);
        assert_eq!(affinity.find(&prompt(500, 0), 7), None);
        assert_eq!(affinity.find(&prompt(500, 3), 0), None);
        affinity.forget(DeviceId(2));
        assert_eq!(affinity.find(&prompt(100, 0), 0), None);
    }
}
