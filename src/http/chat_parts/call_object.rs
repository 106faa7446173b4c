//! A call written as a JSON object: `{"name": …, "arguments": {…}}`, in any order, `parameters` for `arguments`. The arguments are given
//! out as they come, once the name is known.

use super::json_value::{JsonEnd, Seen};

/// What a character brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing that is certain.
    Open,
    /// The object is complete.
    Complete,
    /// It is no call.
    Wrong,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Before the brace.
    Start,
    /// Before a key or the end.
    Key,
    /// In a key or in a value; its text so far is `text`.
    InKey,
    Colon,
    BeforeValue,
    InValue,
    /// Behind a value.
    Comma,
}

/// Reads one object.
#[derive(Debug)]
pub(super) struct CallObject {
    place: Place,
    end: JsonEnd,
    key: String,
    text: String,
    /// The name, once it is known.
    pub name: Option<String>,
    /// Arguments that were not taken yet.
    pub arguments: String,
    has_arguments: bool,
}

impl CallObject {
    pub fn new() -> Self {
        CallObject {
            place: Place::Start,
            end: JsonEnd::default(),
            key: String::new(),
            text: String::new(),
            name: None,
            arguments: String::new(),
            has_arguments: false,
        }
    }

    /// Takes the next character.
    pub fn take(&mut self, c: char) -> Step {
        match (&self.place, c) {
            (Place::InKey | Place::InValue, c) => return self.take_inside(c),
            (_, c) if c.is_whitespace() => {}
            (Place::Start, '{') => self.place = Place::Key,
            (Place::Key, '}') | (Place::Comma, '}') => return self.complete(),
            (Place::Key, '"') => {
                self.begin(Place::InKey);
                return self.take_inside(c);
            }
            (Place::Colon, ':') => self.place = Place::BeforeValue,
            (Place::BeforeValue, c) => {
                self.begin(Place::InValue);
                return self.take_inside(c);
            }
            (Place::Comma, ',') => self.place = Place::Key,
            _ => return Step::Wrong,
        }
        Step::Open
    }

    fn begin(&mut self, place: Place) {
        self.place = place;
        self.end = JsonEnd::default();
        self.text.clear();
    }

    fn take_inside(&mut self, c: char) -> Step {
        let seen = self.end.take(c);
        if seen != Seen::Behind {
            self.text.push(c);
            if self.streams() {
                self.arguments.push(c);
            }
        }
        if seen == Seen::Inside {
            return Step::Open;
        }
        let fits = match self.place {
            Place::InKey => self.end_key(),
            _ => self.end_value(),
        };
        match (fits, seen) {
            (false, _) => Step::Wrong,
            (true, Seen::Behind) => self.take(c),
            (true, _) => Step::Open,
        }
    }

    /// Whether the value read now is arguments as they should be: an object, given out while it comes.
    fn streams(&self) -> bool {
        self.place == Place::InValue && self.holds_arguments() && self.text.starts_with('{')
    }

    fn holds_arguments(&self) -> bool {
        matches!(self.key.as_str(), "arguments" | "parameters")
    }

    fn end_key(&mut self) -> bool {
        self.place = Place::Colon;
        let key = serde_json::from_str(&self.text);
        key.map(|key| self.key = key).is_ok()
    }

    fn end_value(&mut self) -> bool {
        let streamed = self.streams();
        self.place = Place::Comma;
        if self.key == "name" {
            self.name = serde_json::from_str(&self.text).ok();
            return self.name.is_some();
        }
        if !self.holds_arguments() || streamed {
            self.has_arguments |= streamed;
            return true;
        }
        // Some models write the object as text, or null for none.
        match serde_json::from_str::<Option<String>>(&self.text) {
            Ok(text) => {
                self.has_arguments = text.is_some();
                self.arguments.push_str(&text.unwrap_or_default());
                true
            }
            Err(_) => false,
        }
    }

    fn complete(&mut self) -> Step {
        if self.name.is_none() {
            return Step::Wrong;
        }
        if !self.has_arguments {
            self.arguments.push_str("{}");
        }
        Step::Complete
    }
}
