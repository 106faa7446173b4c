//! Zeroed memory in cache lines, in huge pages where the system has them: streams of weights then miss the TLB 512 times less.
//! Pages come untouched from the system, so whoever writes first (a worker that packs weights) also pays the faults.

use memmap2::{MmapMut, MmapOptions};
use std::fs::File;
use std::io;

/// Words of one cache line and of one panel step.
pub(crate) const LANES: usize = 16;

/// One 64-byte cache line of 32-bit words: what one panel holds per step.
pub(crate) type Line = [u32; LANES];

/// A fixed number of cache lines, aligned to 64 bytes.
pub(crate) struct AlignedLines {
    /// Starts at a page.
    map: MmapMut,
    lines: usize,
}

impl AlignedLines {
    /// `lines` zeroed lines.
    ///
    /// # Errors
    /// When the system gives no memory.
    pub(crate) fn zeroed(lines: usize) -> io::Result<Self> {
        let bytes = lines
            .checked_mul(size_of::<Line>())
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let map = MmapOptions::new().len(bytes.max(1)).map_anon()?;
        Ok(Self::advised(map, lines))
    }

    /// The first `lines` lines of a file in memory, which grows to that if it is shorter: what is written here outlives this process
    /// for as long as somebody holds the file.
    ///
    /// # Errors
    /// When the system gives no memory.
    pub(crate) fn in_file(file: &File, lines: usize) -> io::Result<Self> {
        let bytes = lines
            .checked_mul(size_of::<Line>())
            .ok_or(io::ErrorKind::OutOfMemory)?
            .max(1);
        if file.metadata()?.len() < bytes as u64 {
            file.set_len(bytes as u64)?;
        }
        // SAFETY: nobody shortens or writes the file meanwhile: it has no name, and whoever else holds it only hands it to the next
        // process when this one is gone (the caller's promise, see `KvCache::kept_in`).
        let map = unsafe { MmapOptions::new().len(bytes).map_mut(file) }?;
        Ok(Self::advised(map, lines))
    }

    fn advised(map: MmapMut, lines: usize) -> Self {
        // Only advice: a system without huge pages, or with them switched off, serves small ones.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Self { map, lines }
    }

    /// All lines.
    #[inline(always)]
    pub(crate) fn lines(&self) -> &[Line] {
        // SAFETY: the map is `lines` lines long (`zeroed`, `in_file`), starts at a page and so at a multiple of 64, and every bit pattern is
        // a valid word.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.lines) }
    }

    /// All lines, to write.
    #[inline(always)]
    pub(crate) fn lines_mut(&mut self) -> &mut [Line] {
        // SAFETY: as in `lines`; the map is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.lines) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_start_zeroed_at_cache_lines() {
        for n in [0, 1, 7, 1000, 100_000] {
            let mut memory = AlignedLines::zeroed(n).unwrap();
            assert_eq!(memory.lines_mut().len(), n);
            assert!(memory.lines().as_ptr().addr().is_multiple_of(64));
            assert!(memory.lines().iter().all(|l| *l == [0; LANES]));
        }
    }

    #[test]
    fn lines_in_a_file_are_there_for_who_maps_it_next() {
        let name = format!("ropeteam-lines-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let open = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let file = open.unwrap();
        std::fs::remove_file(&path).unwrap();
        AlignedLines::in_file(&file, 100).unwrap().lines_mut()[99] = [7; LANES];
        let again = AlignedLines::in_file(&file, 100).unwrap();
        assert_eq!(
            (again.lines()[0], again.lines()[99]),
            ([0; LANES], [7; LANES])
        );
    }

    #[test]
    fn more_than_there_can_be_is_an_error() {
        assert!(AlignedLines::zeroed(usize::MAX / 2).is_err());
    }
}
