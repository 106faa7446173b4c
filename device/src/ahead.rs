//! What a device that runs by itself needs beside single operators: steps that follow each other without the host in between, and
//! counts of what they cost it.

use std::time::Duration;

/// The ids of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids<'a> {
    /// Known to the host.
    Given(&'a [u32]),
    /// So many, which the last `find_best` finds.
    Found(usize),
}

impl Ids<'_> {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Ids::Given(ids) => ids.len(),
            Ids::Found(count) => *count,
        }
    }
}

/// What a `find_best` will have found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Which of them.
    pub number: u64,
    /// Its rows.
    pub rows: usize,
}

/// What a device cost the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Operators and graphs that were launched; 0 where the host computes itself.
    pub launches: u64,
    /// How long the host waited for the device.
    pub waited: Duration,
}
