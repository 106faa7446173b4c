//! EBNF as llama.cpp writes it (GBNF), into Lark: `root ::= "a" [b-d]* item{1,3}`. Rules get names of their own, since Lark gives upper and
//! lower case different meanings and knows no dashes.
//!
//! Source: <https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md>.

use super::GrammarError;
use super::spec::quoted;
use std::collections::HashMap;
use std::fmt::Write;
use std::iter::Peekable;
use std::str::CharIndices;

/// Stands between a rule's name and its body.
const DEFINES: &str = "::=";

/// Whether a grammar is written in this notation.
pub(super) fn is_ebnf(text: &str) -> bool {
    text.contains(DEFINES)
}

/// The grammar in Lark. Its `root`, or else its first rule, becomes `start`.
///
/// # Errors
/// What is wrong, with the line.
pub(super) fn to_lark(text: &str) -> Result<String, GrammarError> {
    let mut reader = Reader {
        text,
        chars: text.char_indices().peekable(),
        names: HashMap::new(),
        first: None,
        lark: String::new(),
    };
    while let Some(&(at, c)) = reader.chars.peek() {
        reader.item(at, c)?;
    }
    let start = match reader.names.get("root").or(reader.first.as_ref()) {
        Some(start) => start.clone(),
        None => return Err(reader.wrong(0, "no rule")),
    };
    Ok(format!("start: {start}\n{}\n", reader.lark))
}

struct Reader<'a> {
    text: &'a str,
    chars: Peekable<CharIndices<'a>>,
    /// Lark's name of each rule.
    names: HashMap<&'a str, String>,
    /// That of the first rule.
    first: Option<String>,
    lark: String,
}

impl<'a> Reader<'a> {
    fn item(&mut self, at: usize, c: char) -> Result<(), GrammarError> {
        match c {
            '#' => self.skip_while(|c| c != '\n'),
            '"' | '\'' => {
                let literal = self.literal(at, c)?;
                self.push(&quoted(&literal));
            }
            '[' => {
                let class = self.class(at)?;
                self.push(&class);
            }
            '.' => {
                self.chars.next();
                self.push("/[\\s\\S]/");
            }
            '{' => {
                let end = self.text[at..].find('}');
                let end = end.ok_or_else(|| self.wrong(at, "`{` without `}`"))? + at + 1;
                self.skip_to(end);
                self.lark.push_str(&self.text[at..end]);
            }
            '*' | '+' | '?' => {
                self.chars.next();
                self.lark.push(c);
            }
            '(' | ')' | '|' => {
                self.chars.next();
                self.push(c.encode_utf8(&mut [0; 4]));
            }
            c if c.is_whitespace() => self.skip_while(char::is_whitespace),
            c if is_name(c) => self.name(at),
            c => return Err(self.wrong(at, &format!("unexpected {c:?}"))),
        }
        Ok(())
    }

    fn push(&mut self, lark: &str) {
        self.lark.push(' ');
        self.lark.push_str(lark);
    }

    /// A rule's name, at its definition or in another one's body.
    fn name(&mut self, at: usize) {
        self.skip_while(is_name);
        let end = self.chars.peek().map_or(self.text.len(), |&(at, _)| at);
        let count = self.names.len();
        let known = self.names.entry(&self.text[at..end]);
        let name = known.or_insert_with(|| format!("rule_{count}")).clone();
        let rest = self.text[end..].trim_start();
        if !rest.starts_with(DEFINES) {
            return self.push(&name);
        }
        self.skip_to(self.text.len() - rest.len() + DEFINES.len());
        self.lark.push('\n');
        self.lark.push_str(&name);
        self.lark.push(':');
        self.first.get_or_insert(name);
    }

    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) {
        while self.chars.next_if(|&(_, c)| wanted(c)).is_some() {}
    }

    fn skip_to(&mut self, end: usize) {
        while self.chars.next_if(|&(at, _)| at < end).is_some() {}
    }

    fn literal(&mut self, at: usize, quote: char) -> Result<String, GrammarError> {
        self.chars.next();
        let mut text = String::new();
        while let Some((place, c)) = self.chars.next() {
            match c {
                c if c == quote => return Ok(text),
                '\\' => text.push(self.escaped(place)?),
                c => text.push(c),
            }
        }
        Err(self.wrong(at, "a literal without its end"))
    }

    /// A set of characters as a regular expression.
    fn class(&mut self, at: usize) -> Result<String, GrammarError> {
        self.chars.next();
        let mut class = String::from("/[");
        if self.chars.next_if(|&(_, c)| c == '^').is_some() {
            class.push('^');
        }
        while let Some((place, c)) = self.chars.next() {
            match c {
                ']' => {
                    class.push_str("]/");
                    return Ok(class);
                }
                '-' if !class.ends_with(['[', '^']) && !self.next_is(']') => class.push('-'),
                '\\' => push_code(&mut class, self.escaped(place)?),
                c => push_code(&mut class, c),
            }
        }
        Err(self.wrong(at, "`[` without `]`"))
    }

    fn next_is(&mut self, wanted: char) -> bool {
        self.chars.peek().is_some_and(|&(_, c)| c == wanted)
    }

    /// The character behind a backslash.
    fn escaped(&mut self, at: usize) -> Result<char, GrammarError> {
        let digits = match self.chars.next() {
            Some((_, 'n')) => return Ok('\n'),
            Some((_, 'r')) => return Ok('\r'),
            Some((_, 't')) => return Ok('\t'),
            Some((_, 'x')) => 2,
            Some((_, 'u')) => 4,
            Some((_, 'U')) => 8,
            Some((_, c)) => return Ok(c),
            None => return Err(self.wrong(at, "a backslash at the end")),
        };
        let code: String = self.chars.by_ref().take(digits).map(|(_, c)| c).collect();
        let code = u32::from_str_radix(&code, 16).ok();
        let found = code.and_then(char::from_u32);
        found.ok_or_else(|| self.wrong(at, "an escape that names no character"))
    }

    fn wrong(&self, at: usize, what: &str) -> GrammarError {
        let line = self.text[..at].matches('\n').count() + 1;
        GrammarError::Invalid(format!("line {line} of the grammar: {what}"))
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

fn push_code(class: &mut String, c: char) {
    // Writing to a string cannot fail.
    let _ = write!(class, "\\x{{{:X}}}", u32::from(c));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_literals_classes_and_repetitions_are_translated() {
        let lark = to_lark(
            "# chess\nroot ::= (\"a\\\"\\n\" | item-1{2,3})+ # end\nitem-1 ::=\n  [^a-c\\]-] |\n  .? root\n",
        );
        let expected = "start: rule_0\n\nrule_0: ( \"a\\\"\\n\" | rule_1{2,3} )+\nrule_1: /[^\\x{61}-\\x{63}\\x{5D}\\x{2D}]/ | /[\\s\\S]/? rule_0\n";
        assert_eq!(lark.as_deref(), Ok(expected));
    }

    #[test]
    fn the_first_rule_begins_where_none_is_called_root() {
        let lark = to_lark("answer ::= 'yes' | 'no'").unwrap();
        assert!(lark.starts_with("start: rule_0\n"), "{lark}");
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, words) in [
            ("root ::= \"a", "line 1 of the grammar: a literal"),
            ("root ::= x\nx ::= [a", "line 2 of the grammar: `[`"),
            ("root ::= \"\\uD800\"", "names no character"),
            ("root ::= a{2", "`{` without"),
            ("root ::= $", "unexpected '$'"),
            (" ::= ", "unexpected ':'"),
        ] {
            let error = to_lark(text).expect_err(text).to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
