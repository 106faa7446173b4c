//! Zeroed memory in cache lines. Large buffers come from the system as untouched zero pages, so that whoever writes first
//! (a worker that packs weights) also pays the page faults.

/// Words of one cache line and of one panel step.
pub(crate) const LANES: usize = 16;

/// One 64-byte cache line of 32-bit words: what one panel holds per step.
pub(crate) type Line = [u32; LANES];

/// A fixed number of cache lines, aligned to 64 bytes.
pub(crate) struct AlignedLines {
    /// One line more than needed, so that an aligned start exists. Never resized: it must not move.
    words: Vec<u32>,
    start: usize,
    lines: usize,
}

impl AlignedLines {
    /// `lines` zeroed lines.
    pub(crate) fn zeroed(lines: usize) -> Self {
        let words = vec![0u32; (lines + 1) * LANES];
        let start = words.as_ptr().align_offset(64).min(LANES);
        Self {
            words,
            start,
            lines,
        }
    }

    /// All lines.
    pub(crate) fn lines(&self) -> &[Line] {
        self.words[self.start..][..self.lines * LANES].as_chunks().0
    }

    /// All lines, to write.
    pub(crate) fn lines_mut(&mut self) -> &mut [Line] {
        self.words[self.start..][..self.lines * LANES]
            .as_chunks_mut()
            .0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_start_at_cache_lines() {
        for n in [0, 1, 7, 1000] {
            let mut memory = AlignedLines::zeroed(n);
            assert_eq!(memory.lines_mut().len(), n);
            assert!(memory.lines().as_ptr().addr().is_multiple_of(64));
            assert!(memory.lines().iter().all(|l| *l == [0; LANES]));
        }
    }
}
