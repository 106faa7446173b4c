//! The numbers that name things, each its own type so that two of them cannot be swapped.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// One sequence (a prompt and what was generated from it) in this process, never reused.
    SeqId(u64)
);
id!(
    /// One block of a device's KV pool.
    BlockId(u32)
);
id!(
    /// One entry of a model's vocabulary.
    TokenId(u32)
);
id!(
    /// One supervised device.
    DeviceId(u16)
);
id!(
    /// The how-many-eth life of a device; grows by one at each restart, so that late messages of an earlier life are known.
    Epoch(u32)
);
