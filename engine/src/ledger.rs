//! What a device writes down about its cached blocks, so that a later life that finds the same memory can go on with them.
//! Where it is written is the device's host's business.

use crate::ids::{BlockId, TokenId};
use std::fmt::Debug;

/// A full block and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownBlock {
    /// The block.
    pub block: BlockId,
    /// The block before it; `None` for the first of a prefix.
    pub parent: Option<BlockId>,
    /// Keeps prefixes of different users apart.
    pub salt: u64,
    /// Its tokens.
    pub tokens: Vec<TokenId>,
    /// The prefix index's hash of all that, its parents included: an entry that was half written is told by it.
    pub hash: u64,
}

/// Keeps the entries. Every moment counts: what it holds must be true whenever the device is cut off.
pub trait BlockLedger: Debug + Send {
    /// The block is computed and known from now on.
    fn enter(&mut self, known: &KnownBlock);

    /// The block is about to be written anew.
    fn strike(&mut self, block: BlockId);
}
