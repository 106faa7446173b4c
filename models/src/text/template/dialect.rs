//! Bridges, in a template's source, what transformers' Jinja has and the engine lacks. Line numbers stay the same.
//!
//! - `{% generation %}`, `{% endgeneration %}` (they mark the assistant's tokens for training) become a plain scope.
//! - What a `for` runs over goes through [`LOOP_FILTER`].
//! - `'...' % value` is refused when the template is loaded, not when it is first used.

/// The filter that what a `for` runs over goes through; `environment.rs` defines it.
pub(super) const LOOP_FILTER: &str = "__loop_items";

/// A template that cannot be bridged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BridgeError {
    pub line: usize,
    pub detail: String,
}

/// The template in the engine's own dialect.
pub(super) fn bridge(source: &str) -> Result<String, BridgeError> {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        let (text, tag) = rest.split_at(start);
        out.push_str(text);
        let line = 1 + out.matches('\n').count();
        let len = match tag.as_bytes().get(1) {
            Some(b'#') => tag.find("#}").map_or(tag.len(), |end| end + 2),
            Some(b'%') => bridge_tag(tag, line, &mut out)?,
            Some(b'{') => code_end(&tag[2..], "}}", line)? + 2,
            _ => 1,
        };
        if tag.as_bytes().get(1) != Some(&b'%') {
            out.push_str(&tag[..len]);
        }
        rest = &tag[len..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Bridges the statement that `tag` starts with; returns its length in the source.
fn bridge_tag(tag: &str, line: usize, out: &mut String) -> Result<usize, BridgeError> {
    let after_open = tag[2..].trim_start_matches(['-', '+']).trim_start();
    let open = tag.len() - after_open.len();
    let word_len = after_open
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(after_open.len());
    let (word, rest) = after_open.split_at(word_len);
    if word == "raw" {
        let len = raw_end(tag);
        out.push_str(&tag[..len]);
        return Ok(len);
    }
    let body_len = code_end(rest, "%}", line)?;
    let body = &rest[..body_len];
    out.push_str(&tag[..open]);
    match word {
        "generation" => out.push_str("with"),
        "endgeneration" => out.push_str("endwith"),
        _ => out.push_str(word),
    }
    match loop_source(body).filter(|_| word == "for") {
        Some((start, end)) => {
            out.push_str(&body[..start]);
            out.push_str(&format!("({})|{LOOP_FILTER}", &body[start..end]));
            out.push_str(&body[end..]);
        }
        None => out.push_str(body),
    }
    Ok(open + word_len + body_len)
}

/// Length of a raw block, up to and with its end tag.
fn raw_end(tag: &str) -> usize {
    let mut from = 0;
    while let Some(at) = tag[from..].find("{%") {
        let inner = from + at + 2;
        let word = tag[inner..].trim_start_matches(['-', '+']).trim_start();
        if word.starts_with("endraw") {
            return tag[inner..]
                .find("%}")
                .map_or(tag.len(), |end| inner + end + 2);
        }
        from = inner;
    }
    tag.len()
}

/// Length of code up to and with `close`.
fn code_end(code: &str, close: &str, line: usize) -> Result<usize, BridgeError> {
    let mut scan = Scan::of(code);
    while let Some((at, token)) = scan.next() {
        if scan.depth_before == 0 && code[at..].starts_with(close) {
            return Ok(at + close.len());
        }
        let formats = token == Token::String
            && code[scan.at..].trim_start().starts_with('%')
            && !code[scan.at..].trim_start().starts_with("%}");
        if formats {
            return Err(BridgeError {
                line: line + code[..at].matches('\n').count(),
                detail: "the operator % on strings is not supported; use the format filter"
                    .to_owned(),
            });
        }
    }
    Ok(code.len())
}

/// Where in a `for` statement, after the word itself, the expression stands that it runs over.
fn loop_source(body: &str) -> Option<(usize, usize)> {
    let mut start = None;
    let mut scan = Scan::of(body);
    while let Some((at, token)) = scan.next() {
        if scan.depth_before > 0 {
            continue;
        }
        let word = match token {
            Token::Word => &body[at..scan.at],
            _ => "",
        };
        let closes = body[at..].starts_with("%}")
            || body[at..].starts_with("-%}")
            || body[at..].starts_with("+%}");
        match start {
            None if word == "in" => start = Some(scan.at),
            Some(start) if closes || matches!(word, "if" | "recursive") => {
                let source = body[start..at].trim();
                let begin = start + body[start..].find(source)?;
                return Some((begin, begin + source.len()));
            }
            _ => {}
        }
    }
    None
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Word,
    String,
    Other,
}

/// Goes through the tokens of code and counts open brackets.
struct Scan<'a> {
    code: &'a str,
    at: usize,
    depth: usize,
    /// Brackets open before the token that was last returned.
    depth_before: usize,
}

impl<'a> Scan<'a> {
    fn of(code: &'a str) -> Self {
        Self {
            code,
            at: 0,
            depth: 0,
            depth_before: 0,
        }
    }

    /// The next token and where it starts.
    fn next(&mut self) -> Option<(usize, Token)> {
        let rest = &self.code[self.at..];
        let blanks = rest.len() - rest.trim_start().len();
        let start = self.at + blanks;
        let rest = &self.code[start..];
        let first = rest.chars().next()?;
        let (len, token) = match first {
            '\'' | '"' => (string_len(rest, first), Token::String),
            _ if first.is_alphanumeric() || first == '_' => {
                let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                (len.unwrap_or(rest.len()), Token::Word)
            }
            _ => (first.len_utf8(), Token::Other),
        };
        self.depth_before = self.depth;
        match first {
            '(' | '[' | '{' => self.depth += 1,
            ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.at = start + len;
        Some((start, token))
    }
}

/// Length of the string literal that `code` starts with.
fn string_len(code: &str, quote: char) -> usize {
    let mut escaped = false;
    for (i, c) in code.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return i + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &str) {
        assert_eq!(bridge(source).as_deref(), Ok(expected), "{source}");
    }

    #[test]
    fn generation_blocks_become_scopes() {
        check(
            "a{%- generation -%}b{% endgeneration %}c",
            "a{%- with -%}b{% endwith %}c",
        );
        check("{# {% generation %} #}", "{# {% generation %} #}");
        check(
            "{% raw %}{% generation %}{% endraw %}{% generation %}",
            "{% raw %}{% generation %}{% endraw %}{% with %}",
        );
        check(
            "{{ '{% generation %}' }}{'{%'}",
            "{{ '{% generation %}' }}{'{%'}",
        );
    }

    #[test]
    fn what_a_loop_runs_over_is_filtered() {
        check(
            "{% for a in b %}{% endfor %}",
            "{% for a in (b)|__loop_items %}{% endfor %}",
        );
        check("{%-for a in b-%}", "{%-for a in (b)|__loop_items-%}");
        check(
            "{% for k, (a, b) in d.items() if k in x recursive %}",
            "{% for k, (a, b) in (d.items())|__loop_items if k in x recursive %}",
        );
        check(
            "{% for a in [x if y else ' %} ', {'k': 1}] +%}",
            "{% for a in ([x if y else ' %} ', {'k': 1}])|__loop_items +%}",
        );
        check(
            "{% set a = 'for b in c' %}{{ 7 % 3 }}",
            "{% set a = 'for b in c' %}{{ 7 % 3 }}",
        );
    }

    #[test]
    fn text_without_statements_stays() {
        for text in [
            "",
            "{",
            "a { b } c",
            "{# open",
            "{{ open",
            "{% open",
            "{{ {'a': {}} }}",
        ] {
            check(text, text);
        }
        check(
            "{{ {'a':{}}}}{% for x in y %}",
            "{{ {'a':{}}}}{% for x in (y)|__loop_items %}",
        );
    }

    #[test]
    fn formatting_by_percent_is_refused_with_its_line() {
        let error = bridge("a\n{{ x }}\n{{ 'a %s'\n % x }}").unwrap_err();
        assert_eq!(error.line, 3);
        assert!(error.detail.contains('%'));
    }
}
