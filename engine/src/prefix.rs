//! The prefix index: which blocks hold the K and V of which token prefixes.
//!
//! A full block is named by a hash over its parent's hash, its token ids and the salt. A hash only finds a block; the index then
//! compares salt, parent and tokens, so that two prefixes with one hash can never be mixed up.
//! Parents outlive their children here: whoever holds a block holds its parents, and blocks are released last one first.

use crate::ids::{BlockId, TokenId};
use crate::ledger::KnownBlock;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Hash of a block from its parent's (0 for the first block), its tokens and the salt.
type BlockHash = fn(u64, &[TokenId], u64) -> u64;

/// Content of the cached blocks of one pool.
#[derive(Clone, Debug)]
pub struct PrefixIndex {
    block_size: usize,
    hash: BlockHash,
    by_hash: HashMap<u64, BlockId>,
    /// By block; `None` for blocks that are not cached.
    contents: Vec<Option<Content>>,
    /// Token ids of the cached blocks, `[blocks, block_size]`.
    tokens: Vec<TokenId>,
}

/// What a cached block holds, apart from its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Content {
    hash: u64,
    parent: Option<BlockId>,
    salt: u64,
}

/// What came of the wish to register a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// The block is in the index now.
    New,
    /// Another block with the same content is in the index already; it can take this one's place.
    Existing(BlockId),
    /// Its hash belongs to another content: it stays out of the index, and so do its children.
    Collision,
}

impl PrefixIndex {
    /// An empty index for a pool of `blocks` blocks of `block_size` tokens.
    pub fn new(blocks: u32, block_size: u32) -> Self {
        Self::with_hash(blocks, block_size, chain_hash)
    }

    fn with_hash(blocks: u32, block_size: u32, hash: BlockHash) -> Self {
        let (blocks, block_size) = (blocks as usize, block_size as usize);
        PrefixIndex {
            block_size,
            hash,
            by_hash: HashMap::new(),
            contents: vec![None; blocks],
            tokens: vec![TokenId(0); blocks * block_size],
        }
    }

    /// Appends to `found` the blocks that hold the longest cached prefix of `tokens`. The last token is never part of it:
    /// it must be computed, because its logits are needed.
    pub fn lookup(&self, tokens: &[TokenId], salt: u64, found: &mut Vec<BlockId>) {
        let all_but_last = &tokens[..tokens.len().saturating_sub(1)];
        let mut parent = None;
        for chunk in all_but_last.chunks_exact(self.block_size) {
            let Some(&block) = self.by_hash.get(&self.hash_of(parent, chunk, salt)) else {
                break;
            };
            if !self.holds(block, parent, chunk, salt) {
                break;
            }
            found.push(block);
            parent = Some(block);
        }
    }

    /// Registers a computed full block behind `parent`, which must be in the index.
    pub fn register(
        &mut self,
        block: BlockId,
        parent: Option<BlockId>,
        tokens: &[TokenId],
        salt: u64,
    ) -> Registered {
        assert_eq!(tokens.len(), self.block_size, "only full blocks are shared");
        let hash = self.hash_of(parent, tokens, salt);
        match self.by_hash.entry(hash) {
            Entry::Occupied(known) => {
                let known = *known.get();
                match self.holds(known, parent, tokens, salt) {
                    true => Registered::Existing(known),
                    false => Registered::Collision,
                }
            }
            Entry::Vacant(place) => {
                place.insert(block);
                let at = block.0 as usize;
                self.contents[at] = Some(Content { hash, parent, salt });
                self.tokens[at * self.block_size..][..self.block_size].copy_from_slice(tokens);
                Registered::New
            }
        }
    }

    /// Forgets an evicted block.
    pub fn forget(&mut self, block: BlockId) {
        if let Some(content) = self.contents[block.0 as usize].take() {
            self.by_hash.remove(&content.hash);
        }
    }

    /// What is known of a block in the index.
    pub fn known(&self, block: BlockId) -> Option<KnownBlock> {
        let at = block.0 as usize;
        let Content { hash, parent, salt } = self.contents[at]?;
        Some(KnownBlock {
            block,
            parent,
            salt,
            tokens: self.tokens[at * self.block_size..][..self.block_size].to_vec(),
            hash,
        })
    }

    /// Blocks in the index.
    pub fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// Whether no block is in the index.
    pub fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    /// Whether the block is in the index.
    pub fn contains(&self, block: BlockId) -> bool {
        self.contents[block.0 as usize].is_some()
    }

    /// Checks that hashes and contents name each other and that no parent is missing.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), String> {
        let cached = self.contents.iter().flatten().count();
        if cached != self.by_hash.len() {
            let hashes = self.by_hash.len();
            return Err(format!("{cached} cached blocks have {hashes} hashes"));
        }
        for (&hash, &block) in &self.by_hash {
            match self.contents[block.0 as usize] {
                Some(content) if content.hash == hash => {
                    if content.parent.is_some_and(|parent| !self.contains(parent)) {
                        return Err(format!(
                            "the parent of cached block {block} was evicted first"
                        ));
                    }
                }
                _ => {
                    return Err(format!(
                        "block {block} is found by a hash that is not its own"
                    ));
                }
            }
        }
        Ok(())
    }

    fn hash_of(&self, parent: Option<BlockId>, tokens: &[TokenId], salt: u64) -> u64 {
        let parent = parent.and_then(|block| self.contents[block.0 as usize]);
        (self.hash)(parent.map_or(0, |content| content.hash), tokens, salt)
    }

    fn holds(
        &self,
        block: BlockId,
        parent: Option<BlockId>,
        tokens: &[TokenId],
        salt: u64,
    ) -> bool {
        let at = block.0 as usize;
        self.contents[at].is_some_and(|content| content.parent == parent && content.salt == salt)
            && self.tokens[at * self.block_size..][..self.block_size] == *tokens
    }
}

fn chain_hash(parent: u64, tokens: &[TokenId], salt: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parent, tokens, salt).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(tokens: &[u32]) -> Vec<TokenId> {
        tokens.iter().copied().map(TokenId).collect()
    }

    fn found(index: &PrefixIndex, tokens: &[u32], salt: u64) -> Vec<u32> {
        let mut blocks = Vec::new();
        index.lookup(&ids(tokens), salt, &mut blocks);
        blocks.into_iter().map(|block| block.0).collect()
    }

    fn filled(hash: BlockHash) -> PrefixIndex {
        let mut index = PrefixIndex::with_hash(8, 2, hash);
        assert_eq!(
            index.register(BlockId(5), None, &ids(&[1, 2]), 0),
            Registered::New
        );
        let child = index.register(BlockId(3), Some(BlockId(5)), &ids(&[3, 4]), 0);
        assert_ne!(child, Registered::Existing(BlockId(5)));
        index
    }

    #[test]
    fn the_longest_cached_prefix_is_found_but_never_the_last_token() {
        let index = filled(chain_hash);
        assert_eq!(found(&index, &[1, 2, 3, 4, 9], 0), [5, 3]);
        assert_eq!(found(&index, &[1, 2, 3, 4], 0), [5]);
        assert_eq!(found(&index, &[1, 2, 3, 9, 9], 0), [5]);
        assert_eq!(found(&index, &[1, 2], 0), [0u32; 0]);
        assert_eq!(found(&index, &[1], 0), [0u32; 0]);
        assert_eq!(found(&index, &[], 0), [0u32; 0]);
    }

    #[test]
    fn another_salt_another_start_or_another_place_is_another_prefix() {
        let index = filled(chain_hash);
        assert_eq!(found(&index, &[1, 2, 3, 4, 9], 7), [0u32; 0]);
        assert_eq!(found(&index, &[3, 4, 9], 0), [0u32; 0]);
        assert_eq!(found(&index, &[1, 2, 1, 2, 9], 0), [5]);
    }

    #[test]
    fn a_hash_collision_never_gives_a_wrong_block() {
        let mut index = filled(|_, _, _| 42);
        assert_eq!(found(&index, &[8, 8, 9], 0), [0u32; 0]);
        assert_eq!(found(&index, &[1, 2, 9], 7), [0u32; 0]);
        assert_eq!(found(&index, &[1, 2, 3, 4, 9], 0), [5]);
        let other = index.register(BlockId(1), None, &ids(&[8, 8]), 0);
        assert_eq!(other, Registered::Collision);
        index.check().unwrap();
    }

    #[test]
    fn equal_content_is_registered_once_and_forgotten_with_its_block() {
        let mut index = filled(chain_hash);
        let again = index.register(BlockId(1), None, &ids(&[1, 2]), 0);
        assert_eq!(again, Registered::Existing(BlockId(5)));
        index.forget(BlockId(3));
        assert_eq!(found(&index, &[1, 2, 3, 4, 9], 0), [5]);
        index.check().unwrap();
        index.forget(BlockId(5));
        assert!(index.is_empty());
    }
}
