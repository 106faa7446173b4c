//! What is known of each byte of an allocation besides its value: whether it was ever written, by whom last, and who read it since.
//! From this come reads of memory never written and accesses that nothing orders.

use crate::clock::{Clock, Epoch};
use std::collections::BTreeMap;
use std::ops::Range;

/// The bytes of one allocation, in segments of equal history.
#[derive(Debug)]
pub struct Shadow {
    /// By first byte; together they cover the allocation without gaps.
    segments: BTreeMap<usize, Segment>,
}

#[derive(Clone, Debug)]
struct Segment {
    end: usize,
    written: bool,
    write: Option<Epoch>,
    reads: Vec<Epoch>,
}

/// What is wrong with an access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// First range read that was never written.
    pub unwritten: Option<Range<usize>>,
    /// An earlier access that nothing orders before this one.
    pub race: Option<Epoch>,
}

impl Shadow {
    /// Of `len` bytes; `written` where the caller cannot be watched writing (host memory).
    pub fn new(len: usize, written: bool) -> Self {
        let whole = Segment {
            end: len,
            written,
            write: None,
            reads: Vec::new(),
        };
        Self {
            segments: BTreeMap::from([(0, whole)]),
        }
    }

    /// Notes a read by `at`, which knows what `clock` knows.
    pub fn read(&mut self, bytes: Range<usize>, at: Epoch, clock: &Clock) -> Findings {
        let mut findings = Findings::default();
        self.cut(bytes.start);
        self.cut(bytes.end);
        for (start, segment) in self.segments.range_mut(bytes) {
            if !segment.written && findings.unwritten.is_none() {
                findings.unwritten = Some(*start..segment.end);
            }
            if let Some(write) = segment.write.filter(|write| !clock.knows(write)) {
                findings.race.get_or_insert(write);
            }
            segment.reads.retain(|read| !clock.knows(read));
            segment.reads.push(at);
        }
        findings
    }

    /// Notes a write by `at`, which knows what `clock` knows.
    pub fn write(&mut self, bytes: Range<usize>, at: Epoch, clock: &Clock) -> Findings {
        let mut findings = Findings::default();
        if bytes.is_empty() {
            return findings;
        }
        self.cut(bytes.start);
        self.cut(bytes.end);
        let starts: Vec<usize> = self
            .segments
            .range(bytes.clone())
            .map(|(s, _)| *s)
            .collect();
        for start in starts {
            let Some(segment) = self.segments.remove(&start) else {
                continue;
            };
            let unknown = segment.write.into_iter().chain(segment.reads);
            if let Some(epoch) = unknown.into_iter().find(|epoch| !clock.knows(epoch)) {
                findings.race.get_or_insert(epoch);
            }
        }
        let segment = Segment {
            end: bytes.end,
            written: true,
            write: Some(at),
            reads: Vec::new(),
        };
        self.segments.insert(bytes.start, segment);
        findings
    }

    /// Forgets that a range was written: its values are undefined from now on.
    pub fn forget(&mut self, bytes: Range<usize>) {
        self.cut(bytes.start);
        self.cut(bytes.end);
        for (_, segment) in self.segments.range_mut(bytes) {
            segment.written = false;
        }
    }

    /// Makes `at` the border of two segments.
    fn cut(&mut self, at: usize) {
        let Some((_, segment)) = self.segments.range_mut(..at).next_back() else {
            return;
        };
        if segment.end > at {
            let right = segment.clone();
            segment.end = at;
            self.segments.insert(at, right);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same rules, byte by byte.
    #[derive(Clone, Default)]
    struct Byte {
        written: bool,
        write: Option<Epoch>,
        reads: Vec<Epoch>,
    }

    fn naive(bytes: &mut [Byte], write: bool, at: Epoch, clock: &Clock) -> (bool, bool) {
        let (mut unwritten, mut race) = (false, false);
        for byte in bytes {
            unwritten |= !write && !byte.written;
            race |= byte.write.is_some_and(|w| !clock.knows(&w));
            if write {
                race |= byte.reads.iter().any(|r| !clock.knows(r));
                *byte = Byte {
                    written: true,
                    write: Some(at),
                    reads: Vec::new(),
                };
            } else {
                byte.reads.push(at);
            }
        }
        (unwritten, race)
    }

    proptest! {
        /// Two actors access ranges of 24 bytes and now and then learn of each other.
        #[test]
        fn segments_find_what_single_bytes_find(
            steps in prop::collection::vec((0usize..24, 1usize..8, any::<bool>(), 1u32..3, any::<bool>()), 1..40)
        ) {
            let mut shadow = Shadow::new(32, false);
            let mut bytes = vec![Byte::default(); 32];
            let mut clocks = [Clock::default(), Clock::default(), Clock::default()];
            for (start, len, write, actor, meet) in steps {
                if meet {
                    let other = clocks[3 - actor as usize].clone();
                    clocks[actor as usize].join(&other);
                }
                let clock = &mut clocks[actor as usize];
                let at = Epoch { actor, tick: clock.advance(actor), call: "test" };
                let range = start..start + len;
                let findings = match write {
                    true => shadow.write(range.clone(), at, clock),
                    false => shadow.read(range.clone(), at, clock),
                };
                let expected = naive(&mut bytes[range], write, at, clock);
                prop_assert_eq!((findings.unwritten.is_some(), findings.race.is_some()), expected);
            }
        }
    }
}
