//! Whether a body is a text at all, in parts that nobody reads as well: serde_json looks at strings only where they are wanted.
//! Not here: whether it is JSON (`json.rs`).

/// Checks that `body` is UTF-8 and that no escape of it is half a surrogate pair.
///
/// # Errors
/// Where it is not, in words.
pub fn check(body: &[u8]) -> Result<(), String> {
    if let Err(error) = std::str::from_utf8(body) {
        return Err(format!("invalid UTF-8 at byte {}", error.valid_up_to()));
    }
    match half_pair(body) {
        None => Ok(()),
        Some(at) => Err(format!("half of a surrogate pair at byte {at}")),
    }
}

/// The place of the first half pair. Backslashes stand in strings only, so nothing else need be known of JSON.
fn half_pair(body: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(next) = body[at..].iter().position(|&byte| byte == b'\\') {
        let start = at + next;
        at = match unit(&body[start..]) {
            Some(0xd800..=0xdbff) => match unit(&body[start + 6..]) {
                Some(0xdc00..=0xdfff) => start + 12,
                _ => return Some(start),
            },
            Some(0xdc00..=0xdfff) => return Some(start),
            Some(_) => start + 6,
            None => (start + 2).min(body.len()),
        };
    }
    None
}

/// The value of the `\u` escape that stands at the beginning.
fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |value: u16, &digit| {
        Some(value << 4 | char::from(digit).to_digit(16)? as u16)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_characters_pass() {
        for good in [
            r#""\ud83e\udd9c""#,
            r#""\\ud83d""#,
            r#""\u00e4\n\"""#,
            r#""\u12"#,
            "\\",
            "",
            "🦜",
        ] {
            assert_eq!(check(good.as_bytes()), Ok(()), "{good}");
        }
        for bad in [
            r#""\ud83d""#,
            r#""\ud83dx""#,
            r#""\ud83d\ud83d""#,
            r#""\udd9c\ud83e""#,
            r#""\\\uDD9C""#,
            r"\ud83d",
        ] {
            assert!(check(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(check(b"\xf0\x9f").is_err());
    }
}
