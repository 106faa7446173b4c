//! The blocks of a device's KV pool: who holds them, which are free, which are kept by the prefix cache though nobody holds them.
//! What is in a block is not known here (`prefix.rs`), nor which sequence holds which (`device_core`).

use crate::ids::BlockId;

/// Marks the ends of the list of kept blocks.
const NONE: u32 = u32::MAX;

/// Every block is in exactly one state: held (references above 0), kept (nobody holds it, the prefix cache has its content)
/// or free. All operations are O(1).
#[derive(Clone, Debug)]
pub struct BlockPool {
    block_size: u32,
    blocks: Vec<Block>,
    free: Vec<BlockId>,
    /// Kept blocks as a doubly linked list, least recently used first.
    oldest_kept: u32,
    newest_kept: u32,
    kept: u32,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    references: u32,
    /// The prefix cache knows its content: without holders it is kept, not freed.
    cached: bool,
    /// Neighbours in the list of kept blocks.
    older: u32,
    newer: u32,
}

/// A block that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// The block, with one reference.
    pub block: BlockId,
    /// It was kept until now: the prefix cache must forget it.
    pub evicted: bool,
}

impl BlockPool {
    /// A pool of `blocks` free blocks of `block_size` tokens.
    pub fn new(blocks: u32, block_size: u32) -> Self {
        assert!(block_size > 0, "a block holds at least one token");
        let empty = Block {
            references: 0,
            cached: false,
            older: NONE,
            newer: NONE,
        };
        BlockPool {
            block_size,
            blocks: vec![empty; blocks as usize],
            free: (0..blocks).rev().map(BlockId).collect(),
            oldest_kept: NONE,
            newest_kept: NONE,
            kept: 0,
        }
    }

    /// Tokens per block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// All blocks.
    pub fn total(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Blocks without content.
    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Blocks that nobody holds but that the prefix cache keeps.
    pub fn kept(&self) -> u32 {
        self.kept
    }

    /// Blocks that can be allocated: free and kept ones.
    pub fn available(&self) -> u32 {
        self.free() + self.kept
    }

    /// Blocks that `tokens` tokens need.
    pub fn blocks_for(&self, tokens: usize) -> u32 {
        tokens.div_ceil(self.block_size as usize) as u32
    }

    /// How many hold the block.
    pub fn references(&self, block: BlockId) -> u32 {
        self.blocks[block.0 as usize].references
    }

    /// Hands out a free block, or the kept block that was not used for the longest time; `None` if all are held.
    pub fn allocate(&mut self) -> Option<Allocated> {
        let (block, evicted) = match self.free.pop() {
            Some(block) => (block, false),
            None if self.oldest_kept != NONE => (BlockId(self.oldest_kept), true),
            None => return None,
        };
        if evicted {
            self.unlink(block);
            self.blocks[block.0 as usize].cached = false;
        }
        self.blocks[block.0 as usize].references = 1;
        Some(Allocated { block, evicted })
    }

    /// Adds a holder to a block that is held or kept.
    pub fn acquire(&mut self, block: BlockId) {
        let entry = self.blocks[block.0 as usize];
        assert!(
            entry.references > 0 || entry.cached,
            "only a held or kept block can be acquired"
        );
        if entry.references == 0 {
            self.unlink(block);
        }
        self.blocks[block.0 as usize].references += 1;
    }

    /// Takes a holder away. The last one's block is kept if the prefix cache knows it, else free.
    pub fn release(&mut self, block: BlockId) {
        let entry = &mut self.blocks[block.0 as usize];
        assert!(entry.references > 0, "only a held block can be released");
        entry.references -= 1;
        match (entry.references, entry.cached) {
            (0, true) => self.link_newest(block),
            (0, false) => self.free.push(block),
            _ => {}
        }
    }

    /// The prefix cache knows the content of this held block from now on.
    pub fn mark_cached(&mut self, block: BlockId) {
        let entry = &mut self.blocks[block.0 as usize];
        assert!(entry.references > 0, "only a held block can become cached");
        entry.cached = true;
    }

    /// Has free blocks kept from now on, those first that shall be evicted first.
    pub fn keep(&mut self, blocks: &[BlockId]) {
        for &block in blocks {
            let entry = &mut self.blocks[block.0 as usize];
            assert!(
                entry.references == 0 && !entry.cached,
                "only a free block can be kept"
            );
            entry.cached = true;
            self.link_newest(block);
        }
        let blocks = &self.blocks;
        self.free.retain(|block| !blocks[block.0 as usize].cached);
    }

    fn link_newest(&mut self, block: BlockId) {
        let entry = &mut self.blocks[block.0 as usize];
        entry.older = self.newest_kept;
        entry.newer = NONE;
        match self.newest_kept {
            NONE => self.oldest_kept = block.0,
            newest => self.blocks[newest as usize].newer = block.0,
        }
        self.newest_kept = block.0;
        self.kept += 1;
    }

    fn unlink(&mut self, block: BlockId) {
        let Block { older, newer, .. } = self.blocks[block.0 as usize];
        match older {
            NONE => self.oldest_kept = newer,
            older => self.blocks[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest_kept = older,
            newer => self.blocks[newer as usize].older = older,
        }
        self.kept -= 1;
    }

    /// Checks that every block is held, kept or free, and only one of them. O(blocks).
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), String> {
        let mut listed = vec![false; self.blocks.len()];
        let mut list = |block: BlockId, place: &str| {
            let seen = std::mem::replace(&mut listed[block.0 as usize], true);
            let references = self.blocks[block.0 as usize].references;
            match (seen, references) {
                (false, 0) => Ok(()),
                (true, _) => Err(format!("block {block} is listed twice, lastly as {place}")),
                (_, held) => Err(format!(
                    "block {block} is {place} but has {held} references"
                )),
            }
        };
        for &block in &self.free {
            list(block, "free")?;
        }
        let mut at = self.oldest_kept;
        while at != NONE {
            list(BlockId(at), "kept")?;
            at = self.blocks[at as usize].newer;
        }
        let held = self.blocks.iter().filter(|b| b.references > 0).count() as u32;
        if held + self.kept + self.free() != self.total() {
            let (kept, free, total) = (self.kept, self.free(), self.total());
            return Err(format!(
                "{held} held, {kept} kept and {free} free blocks are not {total}"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocate(pool: &mut BlockPool) -> BlockId {
        pool.allocate().expect("a block is available").block
    }

    #[test]
    fn a_block_is_handed_out_once_until_it_is_released() {
        let mut pool = BlockPool::new(2, 16);
        let (a, b) = (allocate(&mut pool), allocate(&mut pool));
        assert_ne!(a, b);
        assert_eq!(pool.allocate(), None);
        pool.release(a);
        assert_eq!(allocate(&mut pool), a);
        pool.check().unwrap();
    }

    #[test]
    fn a_shared_block_stays_until_its_last_holder_leaves() {
        let mut pool = BlockPool::new(1, 16);
        let block = allocate(&mut pool);
        pool.acquire(block);
        pool.release(block);
        assert_eq!(pool.available(), 0);
        pool.release(block);
        assert_eq!(pool.free(), 1);
    }

    #[test]
    fn kept_blocks_are_evicted_in_the_order_of_their_release_and_after_all_free_ones() {
        let mut pool = BlockPool::new(3, 16);
        let blocks = [
            allocate(&mut pool),
            allocate(&mut pool),
            allocate(&mut pool),
        ];
        pool.mark_cached(blocks[0]);
        pool.mark_cached(blocks[1]);
        for block in [blocks[1], blocks[2], blocks[0]] {
            pool.release(block);
        }
        assert_eq!((pool.free(), pool.kept()), (1, 2));
        pool.check().unwrap();
        let order: Vec<_> = std::iter::from_fn(|| pool.allocate()).collect();
        let expected = [(blocks[2], false), (blocks[1], true), (blocks[0], true)];
        assert_eq!(
            order,
            expected.map(|(block, evicted)| Allocated { block, evicted })
        );
    }

    #[test]
    fn a_kept_block_that_is_acquired_again_is_not_evicted() {
        let mut pool = BlockPool::new(2, 16);
        let (a, b) = (allocate(&mut pool), allocate(&mut pool));
        for block in [a, b] {
            pool.mark_cached(block);
            pool.release(block);
        }
        pool.acquire(a);
        assert_eq!(allocate(&mut pool), b);
        assert_eq!(pool.allocate(), None);
        pool.check().unwrap();
    }
}
