//! Reads a GGUF header front to back. Nothing is taken for granted about its numbers: every length is held against the
//! bytes that are left before anything is allocated.

/// A place in a file's bytes.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at the front.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let rest = &self.bytes[self.at..];
        if len > rest.len() {
            return Err(format!(
                "{len} bytes are due at byte {}, {} are left",
                self.at,
                rest.len()
            ));
        }
        self.at += len;
        Ok(&rest[..len])
    }

    /// The next `N` bytes, for `from_le_bytes`.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// A number of 32 bits.
    pub fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number of 64 bits.
    pub fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    /// How many things follow that take at least `min_bytes` each; refused when so many cannot be left.
    pub fn count(&mut self, min_bytes: usize) -> Result<usize, String> {
        let count = self.u64()?;
        let left = (self.bytes.len() - self.at) / min_bytes;
        match usize::try_from(count) {
            Ok(count) if count <= left => Ok(count),
            _ => Err(format!(
                "{count} entries are announced at byte {}, at most {left} fit",
                self.at
            )),
        }
    }

    /// A length and so many bytes of UTF-8.
    pub fn text(&mut self) -> Result<&'a str, String> {
        let len = self.count(1)?;
        let start = self.at;
        std::str::from_utf8(self.take(len)?).map_err(|e| format!("string at byte {start}: {e}"))
    }
}
