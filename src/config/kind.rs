//! What values an option takes, and how a value is read from a file (JSON) or from a word (flag, environment).

use serde_json::Value;
use std::fmt;

/// The values an option takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A whole number from .. to, both included.
    Int(i64, i64),
    /// `true`/`false` in a file, `on`/`off` in a word.
    Switch,
    /// Any text but the empty one.
    Text,
    /// A file or folder.
    Path,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Bytes ("4GiB", "512MB") or a share of the free memory ("25%").
    Memory,
    /// The kind, or `null` in a file and this word elsewhere.
    Or(&'static str, &'static Kind),
}

impl Kind {
    /// Checks a value from a file.
    ///
    /// # Errors
    /// What was found and what is expected.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let fits = match (self, value) {
            (Kind::Int(from, to), Value::Number(n)) => {
                n.as_i64().is_some_and(|n| (*from..=*to).contains(&n))
            }
            (Kind::Switch, Value::Bool(_)) => true,
            (Kind::Text | Kind::Path, Value::String(text)) => !text.is_empty(),
            (Kind::Choice(words), Value::String(text)) => words.contains(&text.as_str()),
            (Kind::Memory, Value::String(text)) => text.parse::<MemoryBudget>().is_ok(),
            (Kind::Or(_, _), Value::Null) => true,
            (Kind::Or(_, kind), value) => {
                return kind.check(value).map_err(|_| self.expected(value));
            }
            _ => false,
        };
        if fits {
            Ok(())
        } else {
            Err(self.expected(value))
        }
    }

    /// Reads a word from a flag or the environment.
    ///
    /// # Errors
    /// What was found and what is expected.
    pub fn read(&self, word: &str) -> Result<Value, String> {
        let value = match self {
            Kind::Int(_, _) => word.parse::<i64>().map_or(Value::from(word), Value::from),
            Kind::Switch => match word {
                "on" | "true" => Value::Bool(true),
                "off" | "false" => Value::Bool(false),
                _ => Value::from(word),
            },
            Kind::Or(null, _) if word == *null => Value::Null,
            Kind::Or(_, kind) => kind
                .read(word)
                .map_err(|_| self.expected(&Value::from(word)))?,
            _ => Value::from(word),
        };
        self.check(&value)
            .map(|()| value)
            .map_err(|_| self.expected(&Value::from(word)))
    }

    /// A checked value as a word, the way a flag would spell it.
    pub fn word(&self, value: &Value) -> String {
        match (self, value) {
            (Kind::Or(null, _), Value::Null) => (*null).to_owned(),
            (Kind::Or(_, kind), value) => kind.word(value),
            (Kind::Switch, Value::Bool(on)) => if *on { "on" } else { "off" }.to_owned(),
            (_, Value::String(text)) => text.clone(),
            (_, value) => value.to_string(),
        }
    }

    /// The placeholder of the value in `--help`.
    pub fn placeholder(&self) -> String {
        match self {
            Kind::Int(0, 1) => "0|1".to_owned(),
            Kind::Int(_, _) => "N".to_owned(),
            Kind::Switch => "on|off".to_owned(),
            Kind::Text => "TEXT".to_owned(),
            Kind::Path => "PATH".to_owned(),
            Kind::Choice(words) => words.join("|"),
            Kind::Memory => "BYTES|SHARE%".to_owned(),
            Kind::Or(null, kind) => format!("{}|{null}", kind.placeholder()),
        }
    }

    fn expected(&self, found: &Value) -> String {
        format!("{found} is not {self}")
    }
}

/// "a whole number from 1 to 5", as it stands in error messages and the reference.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Int(from, to) => write!(f, "a whole number from {from} to {to}"),
            Kind::Switch => write!(f, "true or false (on or off on the command line)"),
            Kind::Text => write!(f, "a text"),
            Kind::Path => write!(f, "a path"),
            Kind::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Kind::Memory => {
                write!(
                    f,
                    "a size such as \"4GiB\" or a share of the free memory such as \"25%\""
                )
            }
            Kind::Or(null, kind) => write!(f, "{kind}, or null (\"{null}\" on the command line)"),
        }
    }
}

/// How much memory something may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryBudget {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of what is free, 1 to 95.
    Percent(u8),
}

impl MemoryBudget {
    /// The budget in bytes, where `free` bytes are free.
    pub fn of(self, free: u64) -> u64 {
        match self {
            MemoryBudget::Bytes(bytes) => bytes,
            MemoryBudget::Percent(percent) => free / 100 * u64::from(percent),
        }
    }
}

impl std::str::FromStr for MemoryBudget {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some(number) = text.strip_suffix('%') {
            let percent: u8 = number.parse().map_err(drop)?;
            return if (1..=95).contains(&percent) {
                Ok(MemoryBudget::Percent(percent))
            } else {
                Err(())
            };
        }
        let digits = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let factor = match &text[digits..] {
            "" | "B" => 1,
            "KB" => 1000,
            "MB" => 1000 * 1000,
            "GB" => 1000 * 1000 * 1000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(()),
        };
        let number: u64 = text[..digits].parse().map_err(drop)?;
        number
            .checked_mul(factor)
            .filter(|bytes| *bytes > 0)
            .map(MemoryBudget::Bytes)
            .ok_or(())
    }
}

impl<'de> serde::Deserialize<'de> for MemoryBudget {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse()
            .map_err(|()| serde::de::Error::custom(Kind::Memory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn memory_is_bytes_or_a_share() {
        let check = |text: &str, expected| assert_eq!(text.parse().ok(), expected, "{text}");
        check("4GiB", Some(MemoryBudget::Bytes(4 << 30)));
        check("512MB", Some(MemoryBudget::Bytes(512_000_000)));
        check("1000", Some(MemoryBudget::Bytes(1000)));
        check("25%", Some(MemoryBudget::Percent(25)));
        for wrong in [
            "",
            "%",
            "0%",
            "96%",
            "-1",
            "0",
            "GiB",
            "1.5GiB",
            "4 GiB",
            "99999999999GiB",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn a_word_and_its_json_mean_the_same() {
        const PORT: Kind = Kind::Or("off", &Kind::Int(0, 65535));
        let check = |kind: Kind, word: &str, value: Value| {
            assert_eq!(kind.read(word), Ok(value.clone()), "{word}");
            assert_eq!(kind.word(&value), word);
            assert_eq!(kind.check(&value), Ok(()));
        };
        check(Kind::Int(1, 9), "7", json!(7));
        check(Kind::Switch, "on", json!(true));
        check(Kind::Choice(&["a", "b"]), "b", json!("b"));
        check(PORT, "off", json!(null));
        check(PORT, "8080", json!(8080));
    }

    #[test]
    fn a_wrong_value_is_told_with_what_is_expected() {
        const PORT: Kind = Kind::Or("off", &Kind::Int(0, 65535));
        let range = "a whole number from 0 to 65535";
        let check = |kind: Kind, value: Value, message: String| {
            assert_eq!(kind.check(&value), Err(message))
        };
        check(
            Kind::Int(0, 65535),
            json!("8080"),
            format!("\"8080\" is not {range}"),
        );
        check(
            Kind::Int(0, 65535),
            json!(70000),
            format!("70000 is not {range}"),
        );
        check(
            Kind::Int(0, 65535),
            json!(1.5),
            format!("1.5 is not {range}"),
        );
        check(
            PORT,
            json!(-1),
            format!("-1 is not {range}, or null (\"off\" on the command line)"),
        );
        assert!(PORT.read("many").is_err());
        assert!(Kind::Switch.check(&json!("on")).is_err());
        assert!(Kind::Text.read("").is_err());
    }
}
