//! From one token after the other to text, never with half a character: what tokenizers' whole-sequence decoding gives,
//! in pieces. Each token costs the same however long the sequence is. Not here: stop strings (engine).
//!
//! A piece is held back while a character is incomplete, and also while the text ends in U+FFFD, since what follows
//! may show that it was not yet decided; this is what Hugging Face's streams do. So that broken output cannot stall a
//! stream, no more than [`HELD_BYTES`] are held.
//!
//! One deviation from whole-sequence decoding, which no stream can avoid: SentencePiece decoding turns a whole run of
//! byte tokens into U+FFFD when any of them is invalid, also characters that were complete and sent before.

use std::sync::Arc;

use ropeteam_engine::ids::TokenId;
use ropeteam_engine::text::TokenDecoder;

use super::pieces::{Piece, Scheme};
use super::vocabulary::Vocabulary;

/// Text that ends in U+FFFD is held back up to this length.
const HELD_BYTES: usize = 256;

/// Tokens that are decoded again to see the next one in its context, for tokenizers that need it.
const WINDOW: usize = 16;

/// Decodes one sequence.
pub(super) struct Decoder {
    vocabulary: Arc<Vocabulary>,
    skip_special: bool,
    joiner: Joiner,
    /// Decided text that is not yet given out.
    held: String,
}

/// What turns pieces into decided text; holds what is not decided.
enum Joiner {
    Bytes(OpenBytes),
    Runs { run: ByteRun, strip_blank: bool },
    Window { ids: Vec<u32>, given: String },
}

/// The bytes of an incomplete character.
#[derive(Default)]
struct OpenBytes {
    bytes: Vec<u8>,
    /// They all belong to the prompt: if no continuation byte follows, they give no output.
    from_context: bool,
}

/// The undecided end of a run of byte tokens.
#[derive(Default)]
struct ByteRun {
    open: OpenBytes,
    /// A byte of the run was invalid: all that follow in it are U+FFFD.
    broken: bool,
}

impl Decoder {
    /// A decoder for text that follows `context`.
    pub fn new(vocabulary: Arc<Vocabulary>, context: &[TokenId], skip_special: bool) -> Self {
        let joiner = match vocabulary.scheme {
            Scheme::ByteLevel => {
                Joiner::Bytes(OpenBytes::after(&vocabulary, context, skip_special))
            }
            Scheme::SentencePiece { strip_blank } => Joiner::Runs {
                run: ByteRun {
                    open: OpenBytes::after(&vocabulary, context, skip_special),
                    broken: false,
                },
                strip_blank: strip_blank && !gives_text(&vocabulary, context, skip_special),
            },
            Scheme::Other => {
                let from = context.len().saturating_sub(WINDOW);
                let ids: Vec<u32> = context[from..].iter().map(|id| id.0).collect();
                let given = vocabulary.decode(&ids, skip_special);
                Joiner::Window { ids, given }
            }
        };
        Self {
            vocabulary,
            skip_special,
            joiner,
            held: String::new(),
        }
    }

    fn release(&mut self) -> String {
        let undecided = self.joiner.is_open() || self.held.ends_with(char::REPLACEMENT_CHARACTER);
        if undecided && self.held.len() < HELD_BYTES {
            return String::new();
        }
        std::mem::take(&mut self.held)
    }
}

impl TokenDecoder for Decoder {
    fn push(&mut self, id: TokenId) -> String {
        if let Joiner::Window { ids, given } = &mut self.joiner {
            ids.push(id.0);
            let text = self.vocabulary.decode(ids, self.skip_special);
            return slide(ids, given, text, |ids| {
                self.vocabulary.decode(ids, self.skip_special)
            });
        }
        if let Some(piece) = self.vocabulary.piece(id, self.skip_special) {
            self.joiner.take(piece, &mut self.held);
        }
        self.release()
    }

    fn finish(&mut self) -> String {
        if let Joiner::Window { ids, given } = &mut self.joiner {
            let text = self.vocabulary.decode(ids, self.skip_special);
            let rest = text[common_prefix(given, &text)..].to_owned();
            *given = text;
            return rest;
        }
        self.joiner.close(&mut self.held);
        std::mem::take(&mut self.held)
    }
}

impl Joiner {
    fn is_open(&self) -> bool {
        match self {
            Self::Bytes(open) => open.is_open(),
            Self::Runs { run, .. } => run.open.is_open(),
            Self::Window { .. } => false,
        }
    }

    /// Takes a piece and appends what is decided now.
    fn take(&mut self, piece: Piece, text: &mut String) {
        match (self, piece) {
            (Self::Bytes(open), Piece::Bytes(bytes)) => open.take(&bytes, text),
            (Self::Runs { run, strip_blank }, Piece::Byte(byte)) => {
                append(text, &run.take(byte), strip_blank);
            }
            (Self::Runs { run, strip_blank }, Piece::Text(more)) => {
                append(text, &run.end(), strip_blank);
                append(text, &more, strip_blank);
            }
            (_, Piece::Text(more)) => text.push_str(&more),
            (_, Piece::Bytes(bytes)) => text.push_str(&String::from_utf8_lossy(&bytes)),
            (_, Piece::Byte(_)) => text.push(char::REPLACEMENT_CHARACTER),
        }
    }

    /// The sequence ends: what is undecided becomes U+FFFD.
    fn close(&mut self, text: &mut String) {
        match self {
            Self::Bytes(open) => text.push_str(&String::from_utf8_lossy(&open.end())),
            Self::Runs { run, strip_blank } => append(text, &run.end(), strip_blank),
            Self::Window { .. } => {}
        }
    }
}

/// Appends `more`; the first text of all loses its first blank if `strip_blank`.
fn append(text: &mut String, more: &str, strip_blank: &mut bool) {
    if more.is_empty() {
        return;
    }
    let strip = std::mem::take(strip_blank);
    text.push_str(match more.strip_prefix(' ') {
        Some(rest) if strip => rest,
        _ => more,
    });
}

impl OpenBytes {
    /// The bytes of the character that `context` leaves incomplete.
    fn after(vocabulary: &Vocabulary, context: &[TokenId], skip_special: bool) -> Self {
        let mut tail = Vec::new();
        for &id in context.iter().rev() {
            match vocabulary.piece(id, skip_special) {
                Some(Piece::Bytes(bytes)) => tail.splice(..0, bytes),
                Some(Piece::Byte(byte)) => tail.splice(..0, vec![byte]),
                Some(Piece::Text(_)) => break,
                None => continue,
            };
            // No incomplete character is longer than three bytes.
            if tail.len() >= 3 {
                break;
            }
        }
        let bytes = tail.split_off(tail.len() - incomplete_suffix(&tail));
        Self {
            from_context: !bytes.is_empty(),
            bytes,
        }
    }

    fn is_open(&self) -> bool {
        !self.bytes.is_empty() && !self.from_context
    }

    /// Takes bytes of valid or invalid UTF-8 and appends all but an incomplete last character.
    fn take(&mut self, bytes: &[u8], text: &mut String) {
        let Some(&first) = bytes.first() else { return };
        self.join_context(first);
        self.bytes.extend_from_slice(bytes);
        let decided = self.bytes.len() - incomplete_suffix(&self.bytes);
        text.push_str(&String::from_utf8_lossy(&self.bytes[..decided]));
        self.bytes.drain(..decided);
    }

    /// The first byte after the context decides whether the context's incomplete character goes on.
    fn join_context(&mut self, first: u8) {
        let goes_on = matches!(first, 0x80..=0xBF);
        if std::mem::take(&mut self.from_context) && !goes_on {
            self.bytes.clear();
        }
    }

    /// The bytes that stay incomplete; none of the context's.
    fn end(&mut self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.bytes);
        if std::mem::take(&mut self.from_context) {
            return Vec::new();
        }
        bytes
    }
}

impl ByteRun {
    /// Takes the run's next byte; returns what is decided.
    fn take(&mut self, byte: u8) -> String {
        if self.broken {
            return char::REPLACEMENT_CHARACTER.to_string();
        }
        self.open.join_context(byte);
        self.open.bytes.push(byte);
        match std::str::from_utf8(&self.open.bytes) {
            Ok(text) => {
                let text = text.to_owned();
                self.open.bytes.clear();
                text
            }
            Err(e) if e.error_len().is_none() => String::new(),
            Err(_) => {
                self.broken = true;
                replacements(self.open.end().len())
            }
        }
    }

    /// The run ends: each byte that is still open is one U+FFFD.
    fn end(&mut self) -> String {
        self.broken = false;
        replacements(self.open.end().len())
    }
}

fn replacements(n: usize) -> String {
    char::REPLACEMENT_CHARACTER.to_string().repeat(n)
}

/// Length of the incomplete character that `bytes` ends in, 0 to 3.
fn incomplete_suffix(bytes: &[u8]) -> usize {
    let last = bytes.len().saturating_sub(3);
    (last..bytes.len())
        .rev()
        .find(|&i| !matches!(bytes[i], 0x80..=0xBF))
        .map(|lead| &bytes[lead..])
        .filter(|c| std::str::from_utf8(c).is_err_and(|e| e.error_len().is_none()))
        .map_or(0, <[u8]>::len)
}

/// Whether the context shows any text of its own.
fn gives_text(vocabulary: &Vocabulary, context: &[TokenId], skip_special: bool) -> bool {
    context
        .iter()
        .rev()
        .any(|&id| match vocabulary.piece(id, skip_special) {
            Some(Piece::Text(text)) => !text.is_empty(),
            Some(_) => true,
            None => false,
        })
}

/// One step of decoding by window: `text` decodes all of `ids`, of which `given` was given out before.
fn slide(
    ids: &mut Vec<u32>,
    given: &mut String,
    text: String,
    decode: impl Fn(&[u32]) -> String,
) -> String {
    let undecided = text.len() <= given.len() || text.ends_with(char::REPLACEMENT_CHARACTER);
    if undecided && ids.len() < 2 * WINDOW {
        return String::new();
    }
    let new = text[common_prefix(given, &text)..].to_owned();
    let from = ids.len().saturating_sub(WINDOW);
    ids.drain(..from);
    *given = if from == 0 { text } else { decode(ids) };
    new
}

/// Length of the longest common prefix that ends between two characters.
fn common_prefix(a: &str, b: &str) -> usize {
    a.char_indices()
        .zip(b.chars())
        .find(|((_, x), y)| x != y)
        .map_or(a.len().min(b.len()), |((i, _), _)| i)
}
