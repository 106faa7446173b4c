//! What one token contributes to the text: bytes, part of a run of byte tokens, or text.
//! Which of these holds follows from the decoder that tokenizer.json declares. Not here: joining them (`decode.rs`).

use std::sync::OnceLock;

use serde_json::Value;
use tokenizers::Tokenizer;

/// How a tokenizer's tokens turn into text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// Each character of a token stands for one byte (the GPT-2 alphabet); the bytes of all tokens together are UTF-8.
    ByteLevel,
    /// `▁` stands for a blank, `<0x..>` for one byte; with `strip_blank` the text's first blank is dropped.
    SentencePiece { strip_blank: bool },
    /// Any other decoder: only the tokenizer itself can join tokens.
    Other,
}

/// What one token contributes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Bytes that continue those of the tokens before.
    Bytes(Vec<u8>),
    /// One byte of a character that the vocabulary lacks.
    Byte(u8),
    /// Whole text.
    Text(String),
}

impl Scheme {
    /// The scheme of a tokenizer, from its declared decoder.
    pub fn of(tokenizer: &Tokenizer) -> Self {
        let Some(decoder) = tokenizer.get_decoder() else {
            return Self::Other;
        };
        match serde_json::to_value(decoder) {
            Ok(declared) => Self::of_declared(&declared),
            Err(_) => Self::Other,
        }
    }

    fn of_declared(decoder: &Value) -> Self {
        let steps = match decoder["decoders"].as_array() {
            Some(steps) => steps.as_slice(),
            None => std::slice::from_ref(decoder),
        };
        let kinds: Vec<&str> = steps.iter().filter_map(|s| s["type"].as_str()).collect();
        match kinds.as_slice() {
            ["ByteLevel"] => Self::ByteLevel,
            ["Replace", "ByteFallback", "Fuse"] if turns_into_blank(&steps[0]) => {
                Self::SentencePiece { strip_blank: false }
            }
            ["Replace", "ByteFallback", "Fuse", "Strip"]
                if turns_into_blank(&steps[0]) && strips_one_blank(&steps[3]) =>
            {
                Self::SentencePiece { strip_blank: true }
            }
            _ => Self::Other,
        }
    }

    /// What `token` contributes; its text as the vocabulary has it.
    pub fn piece(self, token: &str) -> Piece {
        match self {
            Self::ByteLevel => Piece::Bytes(byte_level(token)),
            Self::SentencePiece { .. } => {
                let text = token.replace('▁', " ");
                match fallback_byte(&text) {
                    Some(byte) => Piece::Byte(byte),
                    None => Piece::Text(text),
                }
            }
            Self::Other => Piece::Text(token.to_owned()),
        }
    }
}

fn turns_into_blank(replace: &Value) -> bool {
    replace["pattern"]["String"] == "▁" && replace["content"] == " "
}

fn strips_one_blank(strip: &Value) -> bool {
    strip["content"] == " " && strip["start"] == 1 && strip["stop"] == 0
}

/// The byte that `<0x0A>` stands for.
fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// The bytes that a token stands for. A token with any character outside the alphabet (an added one) stands for itself.
fn byte_level(token: &str) -> Vec<u8> {
    let alphabet = byte_alphabet();
    let byte = |c: char| alphabet.get(c as usize).copied().flatten();
    token
        .chars()
        .map(byte)
        .collect::<Option<Vec<u8>>>()
        .unwrap_or_else(|| token.as_bytes().to_vec())
}

/// Character to byte: printable Latin-1 stands for itself, the other bytes for the characters from U+0100 on, in order.
///
/// Source: <https://github.com/openai/gpt-2/blob/9b63575ef42771a015060c964af2c3da4cf7c8ab/src/encoder.py>, `bytes_to_unicode`.
fn byte_alphabet() -> &'static [Option<u8>] {
    static ALPHABET: OnceLock<Vec<Option<u8>>> = OnceLock::new();
    ALPHABET.get_or_init(|| {
        let mut alphabet = vec![None; 0x200];
        let mut next = 0x100;
        for byte in 0..=255_u8 {
            if matches!(byte, 33..=126 | 161..=172 | 174..=255) {
                alphabet[byte as usize] = Some(byte);
            } else {
                alphabet[next] = Some(byte);
                next += 1;
            }
        }
        alphabet
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn byte_level_tokens_are_bytes_and_added_ones_themselves() {
        let piece = |t| Scheme::ByteLevel.piece(t);
        assert_eq!(piece("Ġhi"), Piece::Bytes(b" hi".to_vec()));
        assert_eq!(piece("Ċ"), Piece::Bytes(b"\n".to_vec()));
        assert_eq!(piece("ä½"), Piece::Bytes(vec![0xE4, 0xBD]));
        assert_eq!(
            piece("<｜User｜>"),
            Piece::Bytes("<｜User｜>".as_bytes().to_vec())
        );
    }

    #[test]
    fn sentencepiece_tokens_are_text_or_one_byte() {
        let piece = |t| Scheme::SentencePiece { strip_blank: true }.piece(t);
        assert_eq!(piece("▁a▁b"), Piece::Text(" a b".into()));
        assert_eq!(piece("<0xE4>"), Piece::Byte(0xE4));
        assert_eq!(piece("<0xE4"), Piece::Text("<0xE4".into()));
        assert_eq!(piece("<0xé>"), Piece::Text("<0xé>".into()));
    }

    #[test]
    fn an_unusual_decoder_is_left_to_the_tokenizer() {
        let scheme = |v: Value| Scheme::of_declared(&v);
        assert_eq!(
            scheme(json!({"type": "Sequence", "decoders": [{"type": "ByteLevel"}]})),
            Scheme::ByteLevel
        );
        assert_eq!(
            scheme(json!({"type": "Metaspace", "replacement": "▁"})),
            Scheme::Other
        );
        assert_eq!(
            scheme(json!({"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "_"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"}]})),
            Scheme::Other
        );
    }
}
