//! Who does which tasks of a job. Each thread has a share of neighbouring tasks and walks through it in order, so that what it looks
//! ahead for in memory is its own; whoever is done takes from the end of another's share.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A thread claims this part of what is left of its share: many tasks at first, single ones at the end, so that claims are few and
/// there is something to take over from a slow thread.
const PART: u32 = 4;

/// The tasks of one job that nobody has claimed yet. Ordering between jobs is the pool's affair.
pub(super) struct Shares(Vec<Share>);

/// What is left of the share of one thread, `first << 32 | end`, in a cache line of its own.
#[repr(align(64))]
struct Share(AtomicU64);

impl Shares {
    /// Empty shares.
    pub(super) fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Share(AtomicU64::new(0))).collect())
    }

    /// Shares out tasks `0 .. tasks` evenly. Nobody may claim meanwhile.
    ///
    /// # Panics
    /// When there are 2^32 tasks or more.
    pub(super) fn share_out(&self, tasks: usize) {
        let threads = self.0.len();
        assert!(u32::try_from(tasks).is_ok(), "{tasks} tasks");
        let bound = |thread: usize| (tasks as u64 * thread as u64 / threads as u64) as u32;
        for (thread, share) in self.0.iter().enumerate() {
            let packed = pack(bound(thread), bound(thread + 1));
            share.0.store(packed, Ordering::Relaxed);
        }
    }

    /// Leaves nothing to claim.
    pub(super) fn clear(&self) {
        for share in &self.0 {
            share.0.store(0, Ordering::Relaxed);
        }
    }

    /// Some tasks for a thread; `None` when all are claimed.
    pub(super) fn claim(&self, thread: usize) -> Option<Range<usize>> {
        self.0[thread].take_first().or_else(|| {
            let (before, after) = self.0.split_at(thread);
            let mut others = after.iter().skip(1).chain(before);
            others.find_map(Share::take_last)
        })
    }
}

impl Share {
    /// The owner's next tasks.
    fn take_first(&self) -> Option<Range<usize>> {
        self.take(|first, end| {
            let next = first + ((end - first) / PART).max(1);
            (first..next, next..end)
        })
    }

    /// The last half of what is left.
    fn take_last(&self) -> Option<Range<usize>> {
        self.take(|first, end| {
            let middle = first + (end - first) / 2;
            (middle..end, first..middle)
        })
    }

    /// Takes the first of the two ranges that `cut` makes of what is left, unless nothing is.
    fn take(&self, cut: impl Fn(u32, u32) -> (Range<u32>, Range<u32>)) -> Option<Range<usize>> {
        let order = Ordering::Relaxed;
        let mut taken = 0..0;
        let left = |packed| {
            let (first, end) = unpack(packed);
            let kept;
            (taken, kept) = (first < end).then(|| cut(first, end))?;
            Some(pack(kept.start, kept.end))
        };
        self.0.fetch_update(order, order, left).ok()?;
        Some(taken.start as usize..taken.end as usize)
    }
}

fn pack(first: u32, end: u32) -> u64 {
    u64::from(first) << 32 | u64::from(end)
}

fn unpack(packed: u64) -> (u32, u32) {
    ((packed >> 32) as u32, packed as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(shares: &Shares, thread: usize) -> Vec<Range<usize>> {
        std::iter::from_fn(|| shares.claim(thread)).collect()
    }

    #[test]
    fn a_thread_walks_through_its_share_and_then_takes_from_the_end_of_others() {
        let shares = Shares::new(2);
        shares.share_out(16);
        let claimed = claims(&shares, 1);
        assert_eq!(claimed[..5], [8..10, 10..11, 11..12, 12..13, 13..14]);
        assert_eq!(claimed[7..], [4..8, 2..4, 1..2, 0..1]);
        assert_eq!(shares.claim(0), None);
    }

    #[test]
    fn every_task_is_claimed_once_however_threads_take_turns() {
        for (threads, tasks) in [(1, 9), (3, 2), (3, 100), (4, 0), (7, 50)] {
            let shares = Shares::new(threads);
            shares.share_out(tasks);
            let mut seen = vec![0; tasks];
            let mut turn = 0;
            while let Some(range) = shares.claim(turn * turn % threads) {
                assert!(!range.is_empty());
                range.for_each(|task| seen[task] += 1);
                turn += 1;
            }
            assert_eq!(seen, vec![1; tasks], "{tasks} tasks, {threads} threads");
        }
    }

    #[test]
    fn cleared_shares_have_nothing_to_claim() {
        let shares = Shares::new(2);
        shares.share_out(10);
        shares.clear();
        assert_eq!(shares.claim(0), None);
    }
}
