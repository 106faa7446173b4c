//! Where a JSON value ends in a text that comes in pieces. It need not be valid: only quotes and brackets are looked at.

/// How far a value has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JsonEnd {
    depth: usize,
    in_string: bool,
    escaped: bool,
    begun: bool,
}

/// What a character is to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A part of it.
    Inside,
    /// Its last character.
    Last,
    /// Behind its end: a number or a word ends only there.
    Behind,
}

impl JsonEnd {
    /// Takes the next character; the first is the value's own.
    pub fn take(&mut self, c: char) -> Seen {
        if self.in_string {
            return self.take_in_string(c);
        }
        let first = !std::mem::replace(&mut self.begun, true);
        match c {
            '"' => {
                if self.depth == 0 && !first {
                    return Seen::Behind;
                }
                self.in_string = true;
            }
            '{' | '[' => self.depth += 1,
            '}' | ']' if self.depth > 0 => {
                self.depth -= 1;
                if self.depth == 0 {
                    return Seen::Last;
                }
            }
            '}' | ']' | ',' if self.depth == 0 => return Seen::Behind,
            c if c.is_whitespace() && self.depth == 0 => return Seen::Behind,
            _ => {}
        }
        Seen::Inside
    }

    fn take_in_string(&mut self, c: char) -> Seen {
        match (self.escaped, c) {
            (true, _) => self.escaped = false,
            (false, '\\') => self.escaped = true,
            (false, '"') => {
                self.in_string = false;
                if self.depth == 0 {
                    return Seen::Last;
                }
            }
            _ => {}
        }
        Seen::Inside
    }
}
