//! Which device gets a sequence: prefix affinity first, then the one with the fewest sequences.

use serde::{Deserialize, Serialize};

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
