//! Splits a stream of bytes into the data of server-sent events, as they come in pieces of any size.
//! Not here: what the data means (`api/`).

use memchr::memchr;

/// An event larger than this is no token of any server: a stream without line ends must not fill the memory.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// Reads lines and joins the `data:` lines of each event. Comments and other fields are passed over.
#[derive(Debug, Default)]
pub struct SseReader {
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
    /// Data of the event that has not ended yet.
    data: Vec<u8>,
    has_data: bool,
}

/// The stream holds an event beyond all bounds.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLarge;

impl SseReader {
    /// Takes the next bytes and calls `event` with the data of each event that is complete now.
    ///
    /// # Errors
    /// When an event or a line has no end.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        event: &mut impl FnMut(&[u8]),
    ) -> Result<(), TooLarge> {
        while let Some(end) = memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            if self.partial.is_empty() {
                self.line(line, event);
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                self.line(&whole, event);
                whole.clear();
                self.partial = whole;
            }
        }
        self.partial.extend_from_slice(bytes);
        match self.partial.len() + self.data.len() > MAX_EVENT_BYTES {
            true => Err(TooLarge),
            false => Ok(()),
        }
    }

    /// Whether the stream stopped within an event.
    pub fn is_within_event(&self) -> bool {
        self.has_data || !self.partial.is_empty()
    }

    fn line(&mut self, line: &[u8], event: &mut impl FnMut(&[u8])) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if self.has_data {
                event(&self.data);
            }
            self.data.clear();
            self.has_data = false;
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data
                .extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
            self.has_data = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let (mut reader, mut found) = (SseReader::default(), Vec::new());
        for piece in pieces {
            let mut event = |data: &[u8]| found.push(String::from_utf8_lossy(data).into_owned());
            reader.feed(piece, &mut event).unwrap();
        }
        found
    }

    #[test]
    fn both_spellings_comments_and_line_ends_are_understood() {
        let stream = b": hello\n\ndata: a\n\ndata:b\r\n\r\nid: 7\nevent: x\ndata: c\ndata: d\n\n\n\ndata: cut";
        assert_eq!(events(&[stream]), ["a", "b", "c\nd"]);
    }

    #[test]
    fn a_stream_that_stops_within_an_event_is_noticed() {
        let mut reader = SseReader::default();
        reader.feed(b"data: a\n\n", &mut |_| ()).unwrap();
        assert!(!reader.is_within_event());
        reader.feed(b"data: b\n", &mut |_| ()).unwrap();
        assert!(reader.is_within_event());
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let mut reader = SseReader::default();
        let piece = vec![b'x'; MAX_EVENT_BYTES / 2 + 1];
        assert_eq!(reader.feed(&piece, &mut |_| ()), Ok(()));
        assert_eq!(reader.feed(&piece, &mut |_| ()), Err(TooLarge));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(cuts in proptest::collection::vec(0usize..60, 0..8)) {
            let stream = b"data: {\"a\":1}\n\ndata:two\n\n: c\n\ndata: x\ndata: y\r\n\r\ndata: [DONE]\n\n";
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.sort_unstable();
            cuts.push(stream.len());
            let mut from = 0;
            let pieces: Vec<_> = cuts.iter().map(|&cut| {
                let piece = &stream[from..cut];
                from = cut;
                piece
            }).collect();
            prop_assert_eq!(events(&pieces), events(&[stream]));
        }
    }
}
