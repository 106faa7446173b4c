//! A device's KV space: the pool and the prefix index together, so that neither is changed without the other.

use crate::blocks::BlockPool;
use crate::ids::{BlockId, TokenId};
use crate::ledger::{BlockLedger, KnownBlock};
use crate::prefix::{PrefixIndex, Registered};
use std::collections::{HashMap, HashSet};

/// Blocks, and what is known about their content.
#[derive(Debug)]
pub struct KvSpace {
    pool: BlockPool,
    /// `None`: the prefix cache is off.
    index: Option<PrefixIndex>,
    /// Told of all changes of the index.
    ledger: Option<Box<dyn BlockLedger>>,
}

impl KvSpace {
    /// An empty space of `blocks` blocks of `block_size` tokens.
    pub fn new(blocks: u32, block_size: u32, prefix_cache: bool) -> Self {
        KvSpace {
            pool: BlockPool::new(blocks, block_size),
            index: prefix_cache.then(|| PrefixIndex::new(blocks, block_size)),
            ledger: None,
        }
    }

    /// Takes over the blocks that an earlier life entered in `ledger`, and keeps it from now on. To be done before anything is held.
    /// Entries without their parents, or that are not whole, are struck. Returns how many blocks are known.
    pub fn adopt(&mut self, known: Vec<KnownBlock>, mut ledger: Box<dyn BlockLedger>) -> usize {
        let Some(index) = &mut self.index else {
            return 0;
        };
        let mut left: HashSet<BlockId> = known.iter().map(|k| k.block).collect();
        let mut children: HashMap<Option<BlockId>, Vec<KnownBlock>> = HashMap::new();
        for entry in known {
            children.entry(entry.parent).or_default().push(entry);
        }
        let mut adopted = Vec::new();
        let mut next = children.remove(&None).unwrap_or_default();
        while let Some(entry) = next.pop() {
            let KnownBlock { block, parent, .. } = entry;
            let new = index.register(block, parent, &entry.tokens, entry.salt) == Registered::New;
            if new && index.known(block).is_some_and(|made| made == entry) {
                left.remove(&block);
                adopted.push(block);
                next.extend(children.remove(&Some(block)).unwrap_or_default());
            } else if new {
                index.forget(block);
            }
        }
        left.into_iter().for_each(|block| ledger.strike(block));
        // Children go before their parents.
        adopted.reverse();
        self.pool.keep(&adopted);
        self.ledger = Some(ledger);
        adopted.len()
    }

    /// The pool, for reading.
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Whether prefixes are cached.
    pub fn caches_prefixes(&self) -> bool {
        self.index.is_some()
    }

    /// Writes the blocks of the longest cached prefix of `tokens` into `found`; nothing is held by that.
    pub fn lookup(&self, tokens: &[TokenId], salt: u64, found: &mut Vec<BlockId>) {
        found.clear();
        if let Some(index) = &self.index {
            index.lookup(tokens, salt, found);
        }
    }

    /// Blocks that remain available once the `found` ones are held.
    pub fn available_beside(&self, found: &[BlockId]) -> u32 {
        let kept = found
            .iter()
            .filter(|&&block| self.pool.references(block) == 0)
            .count();
        self.pool.available() - kept as u32
    }

    /// Holds the `found` blocks.
    pub fn acquire(&mut self, found: &[BlockId]) {
        for &block in found {
            self.pool.acquire(block);
        }
    }

    /// Appends one block to a block table. Returns false, and changes nothing, if none is available.
    pub fn grow(&mut self, table: &mut Vec<BlockId>) -> bool {
        let Some(allocated) = self.pool.allocate() else {
            return false;
        };
        if let (true, Some(index)) = (allocated.evicted, &mut self.index) {
            index.forget(allocated.block);
            if let Some(ledger) = &mut self.ledger {
                ledger.strike(allocated.block);
            }
        }
        table.push(allocated.block);
        true
    }

    /// Releases a whole block table, last block first, so that of two kept blocks the child is evicted before its parent.
    pub fn release(&mut self, table: &mut Vec<BlockId>) {
        while let Some(block) = table.pop() {
            self.pool.release(block);
        }
    }

    /// Makes block number `at` of a table, full and computed, known to others. All blocks before it must be known.
    /// If an equal block is known already, the table holds that one from now on. Returns false if it cannot be shared.
    pub fn share(
        &mut self,
        table: &mut [BlockId],
        at: usize,
        tokens: &[TokenId],
        salt: u64,
    ) -> bool {
        let Some(index) = &mut self.index else {
            return false;
        };
        let block = table[at];
        let parent = at.checked_sub(1).map(|before| table[before]);
        match index.register(block, parent, tokens, salt) {
            Registered::New => {
                self.pool.mark_cached(block);
                if let (Some(ledger), Some(known)) = (&mut self.ledger, index.known(block)) {
                    ledger.enter(&known);
                }
            }
            Registered::Existing(equal) => {
                self.pool.acquire(equal);
                self.pool.release(block);
                table[at] = equal;
            }
            Registered::Collision => return false,
        }
        true
    }

    /// Checks pool and index, and that the `tables` hold exactly what the pool says is held. O(blocks).
    ///
    /// # Errors
    /// What does not hold.
    pub fn check<'a>(&self, tables: impl Iterator<Item = &'a [BlockId]>) -> Result<(), String> {
        self.pool.check()?;
        if let Some(index) = &self.index {
            index.check()?;
        }
        let mut holders = vec![0u32; self.pool.total() as usize];
        for &block in tables.flatten() {
            holders[block.0 as usize] += 1;
        }
        for (at, &holders) in holders.iter().enumerate() {
            let references = self.pool.references(BlockId(at as u32));
            if holders != references {
                return Err(format!(
                    "block {at} has {references} references and {holders} holders"
                ));
            }
        }
        Ok(())
    }
}
