//! Whose blocks of a KV cache are whose, where a test says so: a sequence that reads a block of another through a wrong table, or
//! writes one that several share, is caught.

use std::collections::BTreeMap;

/// Owner of a block that several sequences read and none writes.
pub const SHARED: u64 = 0;

/// What a test said.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// Owner of a block, by address of the cache's first byte and number of the block.
    blocks: BTreeMap<(u64, usize), u64>,
    /// Owners behind the sequences of the next attentions, in their order.
    pub readers: Vec<u64>,
}

impl Owners {
    /// A block belongs to an owner from now on.
    pub fn tag(&mut self, cache: u64, block: usize, owner: u64) {
        self.blocks.insert((cache, block), owner);
    }

    /// What is wrong with a sequence's reading a block.
    pub fn misread(&self, readers: &[u64], sequence: usize, place: (u64, usize)) -> Option<String> {
        let owner = *self.blocks.get(&place)?;
        let reader = *readers.get(sequence)?;
        let wrong = owner != SHARED && owner != reader;
        wrong.then(|| {
            let block = place.1;
            format!("sequence {sequence}, of owner {reader}, reads block {block} of owner {owner}")
        })
    }

    /// What is wrong with writing a block.
    pub fn miswritten(&self, place: (u64, usize)) -> Option<String> {
        let is_shared = self.blocks.get(&place) == Some(&SHARED);
        is_shared.then(|| {
            format!(
                "block {}, which several sequences share, is written",
                place.1
            )
        })
    }
}
